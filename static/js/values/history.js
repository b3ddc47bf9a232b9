// What was: columns of the metrics, asked of the server once, then continued by the live snapshots.

/** {time: [s], series: {name: [value or null]}} of the last so many seconds; empty when the server can't say. */
export async function history(names, { from, to, points }) {
  const query = new URLSearchParams({ from: from.toFixed(3), to: to.toFixed(3), points: String(points) });
  names.forEach((name) => query.append("series", name));
  try {
    const response = await fetch(`/api/v1/history?${query}`, { headers: { Accept: "application/json" } });
    if (!response.ok) return { time: [], series: {} };
    return await response.json();
  } catch {
    return { time: [], series: {} };
  }
}
