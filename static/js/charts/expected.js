// Expected ranges of rates ("bands" in the snapshot): an area behind the measured line, as far as the range is known. A
// range is computed 15 minutes ahead. A dotted line marks a change of a rate's level.
import { resolve } from "../values/store.js";

const MIN_LABEL_WIDTH = 76;
const RATE = /^(totals|queues\..+)\.(in|out)_per_second$/;

/** @param {Series} options */
const isBanded = ({ path, kind, constant }) => constant === null && kind === "measured" && RATE.test(path);

/** Return the paths of the lower and the upper edge, or none if the series has no band.
 * @param {Series} series */
export function edgesOf(series) {
  return isBanded(series) ? ["low", "high"].map((edge) => `bands.${series.path}.${edge}`) : [];
}

/** Return the level changes of a lane's rates, the earliest first.
 * @param {Lane} lane @param {LiveSnapshot | null} snapshot @returns {(RateChange & { label: string })[]} */
export function changesOf(lane, snapshot) {
  const found = lane.series.filter(isBanded).flatMap(({ path, label }) => (resolve(snapshot, `bands.${path}.changes`) ?? []).map((/** @type {RateChange} */ change) => ({ ...change, label })));
  return found.sort((one, other) => one.at - other.at);
}

/** @param {RateChange} change @param {number} factor */
const levels = ({ before, after }, factor) => [before, after].map((rate) => (rate * factor).toLocaleString("en", { maximumSignificantDigits: 3 })).join(" → ");

/** Return the words of a level change near a time, "" if there is none.
 * @param {Lane} lane @param {LiveSnapshot | null} snapshot @param {number} at @param {number} nearSeconds */
export function changeAt(lane, snapshot, at, nearSeconds) {
  const change = changesOf(lane, snapshot).find((candidate) => Math.abs(candidate.at - at) <= nearSeconds);
  return change ? `${change.label}: rate changed, ${levels(change, lane.factor)}` : "";
}

/** Draw a dotted line at each change, with the levels where there is room.
 * @param {(RateChange & { label: string })[]} changes
 * @param {{ axis: string, factor: number, highest: number, lowest: number, width: number }} options @param {Colours} colours
 * @param {PlotLayout} layout */
export function marked(changes, { axis, factor, highest, lowest, width }, colours, layout) {
  const [from, to] = layout.xaxis.range.map(Number), shown = changes.filter(({ at }) => at * 1000 > from && at * 1000 < to);
  const place = (/** @type {number} */ at) => (at * 1000 - from) / (to - from) * width;
  shown.forEach((change, index) => {
    const x = new Date(change.at * 1000), next = shown[index + 1];
    layout.shapes.push({ type: "line", xref: "x", yref: axis, x0: x, x1: x, y0: lowest, y1: highest, line: { color: colours.muted, width: 1, dash: "dot" } });
    if ((next ? place(next.at) : width) - place(change.at) < MIN_LABEL_WIDTH) return;
    layout.annotations.push({ text: levels(change, factor), x, xref: "x", xshift: 3, y: highest, yref: axis, xanchor: "left", yanchor: "top", showarrow: false, font: { size: 11, color: colours.muted }, bgcolor: colours.surface });
  });
  if (!shown.length) return [];
  return [{
    x: shown.map(({ at }) => new Date(at * 1000)), y: shown.map(() => lowest), type: "scatter", mode: "markers", name: "rate changes", yaxis: axis, cliponaxis: false, hoverinfo: "skip",
    marker: { symbol: "diamond-open", size: 7, color: colours.muted },
  }];
}

/** Return an area for each rate of a lane whose band is known. The edges are constant between two stored values.
 * @param {Lane} lane @param {string} axis @param {{ time: number[], columns: Map<string, Numbers> }} options
 * @param {Colours} colours */
export function banded(lane, axis, { time, columns }, colours) {
  return lane.series.flatMap((series) => {
    const [low, high] = edgesOf(series).map((path) => columns.get(path) ?? []);
    if (!low?.some((value) => typeof value === "number")) return [];
    const edge = (/** @type {Numbers} */ values) => values.map((value) => (typeof value === "number" ? value * lane.factor : null));
    const common = { x: time.map((at) => new Date(at * 1000)), type: "scatter", mode: "lines", yaxis: axis, connectgaps: false, hoverinfo: "skip", line: { width: 0, shape: "hv" }, showlegend: false };
    return [
      { ...common, y: edge(low), name: "expected from" },
      { ...common, y: edge(high), name: "expected to", fill: "tonexty", fillcolor: colours.expected },
    ];
  });
}
