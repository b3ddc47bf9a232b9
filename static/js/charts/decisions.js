// Decisions of loops in a time range, for the triangles of a chart. They are requested again after a loop acts.

const MIN_MILLISECONDS = 5_000;

/** @type {Decisions} */
const NONE = { decisions: [], guard: [] };

/** Return {decisions: [{at, verdict, count, url, title}], guard: [{at, url, title}]} of the loops that "about" names
 * (loop=3, queue=alert, node=n1; empty: all).
 * @param {string} about @param {{ from: number, to: number }} options @returns {Promise<Decisions>} */
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

/** Return a function that checks if a snapshot has new actions of loops. It reports them at most every 5 s. */
export function watch() {
  let /** @type {string | null} */ seen = null, last = -Infinity;
  return (/** @type {LiveSnapshot} */ snapshot) => {
    const now = (snapshot.deeds ?? []).map((deed) => `${deed.entry}${deed.verdict}`).join();
    if (seen === null) seen = now;
    if (now === seen || performance.now() - last < MIN_MILLISECONDS) return false;
    seen = now;
    last = performance.now();
    return true;
  };
}
