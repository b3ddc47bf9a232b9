// What loops did in a stretch of time, for the triangles of a chart: asked of the server, and again when a loop has acted.

const MIN_MILLISECONDS = 5_000;

const NONE = { decisions: [], guard: [] };

/** {decisions: [{at, verdict, count, url, title}], guard: [{at, url, title}]} of the loops that `about` names (loop=3, queue=alert, node=n1; empty: all). */
export async function decisions(about, { from, to }) {
  const query = new URLSearchParams(about);
  query.set("from", from.toFixed(3));
  query.set("to", to.toFixed(3));
  try {
    const response = await fetch(`/api/v1/decisions?${query}`, { headers: { Accept: "application/json" } });
    return response.ok ? await response.json() : NONE;
  } catch {
    return NONE;
  }
}

/** Says of a snapshot whether loops have acted since the last one it was asked about, at most each few seconds. */
export function watch() {
  let seen = null, last = -Infinity;
  return (snapshot) => {
    const now = (snapshot.deeds ?? []).map((deed) => `${deed.entry}${deed.verdict}`).join();
    if (seen === null) seen = now;
    if (now === seen || performance.now() - last < MIN_MILLISECONDS) return false;
    seen = now;
    last = performance.now();
    return true;
  };
}
