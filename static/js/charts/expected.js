// Where a rate is expected (`bands` of the snapshot): an area behind the line that was measured, of as far as any is
// known. It is made a quarter of an hour before its time.
const RATE = /^(totals|queues\..+)\.(in|out)_per_second$/;

const isBanded = ({ path, kind, constant }) => constant === null && kind === "measured" && RATE.test(path);

/** The series of the lower and the upper edge; none where no band is made. */
export function edgesOf(series) {
  return isBanded(series) ? ["low", "high"].map((edge) => `bands.${series.path}.${edge}`) : [];
}

/** An area for each rate of a lane whose band is known: its edges stand still between two that are kept. */
export function banded(lane, axis, { time, columns }, colours) {
  return lane.series.flatMap((series) => {
    const [low, high] = edgesOf(series).map((path) => columns.get(path));
    if (!low?.some((value) => typeof value === "number")) return [];
    const edge = (values) => values.map((value) => (typeof value === "number" ? value * lane.factor : null));
    const common = { x: time.map((at) => new Date(at * 1000)), type: "scatter", mode: "lines", yaxis: axis, connectgaps: false, hoverinfo: "skip", line: { width: 0, shape: "hv" }, showlegend: false };
    return [
      { ...common, y: edge(low), name: "expected from" },
      { ...common, y: edge(high), name: "expected to", fill: "tonexty", fillcolor: colours.expected },
    ];
  });
}
