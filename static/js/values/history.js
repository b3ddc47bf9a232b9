// What was: columns of the metrics, asked of the server once, then continued by the live snapshots.

export const AGAIN_MILLISECONDS = 10_000; // after it did not answer
export const GAP_SECONDS = 10; // no snapshot for so long: what was between, the server knows

/** {time: [s], series: {name: [value or null]}} of a stretch of time, empty where nothing is kept; null: no answer. */
export async function history(names, { from, to, points }) {
  const query = new URLSearchParams({ from: from.toFixed(3), to: to.toFixed(3), points: String(points) });
  names.forEach((name) => query.append("series", name));
  try {
    const response = await fetch(`/api/v1/history?${query}`, { headers: { Accept: "application/json" } });
    if (response.status >= 500 || response.status === 429) return null;
    return response.ok ? await response.json() : { time: [], series: {} };
  } catch {
    return null;
  }
}
