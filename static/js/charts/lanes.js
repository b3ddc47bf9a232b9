// A lane of a chart: its series with their colors, its limits, and its axis.
//
// Kinds of series: measured (and in), second (out), step (set, running), wanted, reference (a target), limit, and entity
// or stacked, which are drawn by name: four of them, and the others together.
import { MAX_SERIES, brief } from "./plot.js";

const MAX_LIMIT = 3; // a limit that is further above the data is named in the title
const HEADROOM = 1.04, FITTED_MARGIN = 0.15, FITS_ABOVE = 0.4;
/** @type {Map<string, number>} the colors of the entities of this page, by name */
const entityColours = new Map();

/** @param {HTMLElement} element @returns {Lane} */
export function readLane(element) {
  const { dataset } = element, whole = dataset.lane ?? "", cut = whole.lastIndexOf(", ");
  const series = [...element.querySelectorAll("[data-series], [data-value]")].map(({ dataset: of }) => ({
    path: of.series ?? "", label: of.label ?? "", kind: of.kind ?? "", constant: of.value === undefined ? null : Number(of.value), breach: of.breach ?? "",
  }));
  return {
    title: cut < 0 ? whole : whole.slice(0, cut), unit: cut < 0 ? "" : whole.slice(cut + 2), factor: Number(dataset.scale ?? 1), series,
    stacked: "stacked" in dataset, highest: Number(dataset.highest ?? 0), fits: "fits" in dataset, whole: "whole" in dataset,
  };
}

/** @param {Series} series */
export const isLimit = ({ kind }) => kind === "limit" || kind === "reference";
/** @param {Series} series */
export const isEntity = ({ kind }) => kind === "entity" || kind === "stacked";

/** Return the entities of a lane that are drawn by name, and the others. The highest values have names.
 * @param {Lane} lane @param {(path: string) => Numbers} valuesOf */
export function pickEntities(lane, valuesOf) {
  const entities = lane.series.filter(isEntity);
  if (entities.length <= MAX_SERIES) return { named: entities, others: [] };
  const last = (/** @type {Series} */ series) => Number(valuesOf(series.path).findLast((value) => typeof value === "number") ?? -Infinity);
  const named = new Set([...entities].sort((one, other) => last(other) - last(one)).slice(0, MAX_SERIES));
  return { named: entities.filter((series) => named.has(series)), others: entities.filter((series) => !named.has(series)) };
}

/** Return the colors of a lane's series. An entity keeps its color in all charts of the page.
 * @param {Series[]} drawn @param {Colours} colours @returns {Map<Series, string>} */
export function coloursOf(drawn, colours) {
  const taken = new Set(drawn.filter(isEntity).map(({ label }) => entityColours.get(label)).filter((place) => place !== undefined));
  return new Map(drawn.map((series) => {
    if (!isEntity(series)) return [series, isLimit(series) ? colours.muted : series.kind === "measured" ? colours.series[0] : series.kind === "wanted" ? colours.series[3] : colours.series[1]];
    let place = entityColours.get(series.label);
    if (place === undefined) {
      place = colours.series.findIndex((_, free) => !taken.has(free));
      entityColours.set(series.label, place = Math.max(0, place));
      taken.add(place);
    }
    return [series, colours.series[place]];
  }));
}

/** Return the values between which the axis has to reach, and the limits that are too far above them.
 * Counts, waits, and latencies start at zero. Rates fit their data.
 * @param {Lane} lane @param {number[]} values the visible values @param {{ row: Series, value: number }[]} limits */
export function rangeOf(lane, values, limits) {
  const highest = values.reduce((most, value) => Math.max(most, value), 0), lowest = values.reduce((least, value) => Math.min(least, value), Infinity);
  const isNear = (/** @type {{ value: number }} */ { value }) => value <= highest * MAX_LIMIT || highest <= 0;
  const high = Math.max(highest * HEADROOM, ...limits.filter(isNear).map(({ value }) => value * HEADROOM)) || 1;
  const low = lane.fits && lowest > highest * FITS_ABOVE ? Math.max(0, lowest - (high - lowest) * FITTED_MARGIN) : Math.min(0, lowest);
  return { low, high, above: limits.filter((limit) => !isNear(limit)) };
}

/** Return the outline of each area between a line and its limit while the line is beyond it.
 * @param {any[]} x @param {Numbers} y @param {Numbers} limit one value for each of y @param {string} side */
export function breaches(x, y, limit, side) {
  /** @type {{ x: any[], y: (number | null)[] }} */
  const outline = { x: [], y: [] };
  let start = -1;
  const close = (/** @type {number} */ end) => {
    if (start < 0) return;
    const [first, last] = [Math.max(0, start - 1), end]; // from the point before, so that the tint begins at the crossing
    const inside = Array.from({ length: last - first }, (_, place) => first + place).filter((place) => typeof y[place] === "number" && typeof limit[place] === "number");
    const bounded = (/** @type {number} */ place) => (side === "below" ? Math.min : Math.max)(y[place] ?? 0, limit[place] ?? 0);
    outline.x.push(...inside.map((place) => x[place]), ...inside.map((place) => x[place]).reverse(), null);
    outline.y.push(...inside.map(bounded), ...inside.map((place) => limit[place]).reverse(), null);
    start = -1;
  };
  y.forEach((value, place) => {
    const bound = limit[place], isBeyond = typeof value === "number" && typeof bound === "number" && (side === "below" ? value < bound : value > bound);
    if (isBeyond && start < 0) start = place;
    else if (!isBeyond) close(place);
  });
  close(y.length);
  return outline;
}

/** Return a value with its unit. Number and unit never part.
 * @param {number} value @param {string} unit */
export const withUnit = (value, unit) => (unit ? `${brief(value)}\u00a0${unit}` : brief(value));
