// Metric history, requested from the server once and continued by live snapshots.

export const AGAIN_MILLISECONDS = 10_000; // retry delay after a failed request
export const GAP_SECONDS = 10; // after a gap this long, the history is requested again

/** Return {time: [s], series: {name: [value or null]}} of a time range, empty if nothing is stored, null if the server
 * is unavailable.
 * @param {string[]} names @param {{ from: number, to: number, points: number }} options
 * @returns {Promise<MetricHistory | null>} */
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
