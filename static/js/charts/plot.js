// Common parts of all plots: the colors of the tokens, one layout, axes with round steps, and labels at the right end.
import { formatted } from "../values/format.js";

export const TOP = 32, BOTTOM = 28, NARROW = 520;
const LEFT = 56, NARROW_LEFT = 44, LABEL_HEIGHT = 15, CHARACTER_WIDTH = 6.6, MIN_RIGHT = 24, MAX_LABEL = 26;
const STEPS = [1, 2, 3, 4, 5, 10], INTERVALS = 4;
export const MAX_SERIES = 4;

const COLOURS = ["text", "muted", "line", "surface", "raised", "toobusy", "busy", "accent", "expected", "band"];
const SERIES = Array.from({ length: MAX_SERIES }, (_, place) => `series-${place + 1}`);

// A registered token resolves to its color in the current theme, not to light-dark(…).
for (const name of [...COLOURS, ...SERIES]) CSS.registerProperty({ name: `--${name}`, syntax: "<color>", inherits: true, initialValue: "transparent" });

/** @returns {Colours} */
export function tokens() {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const [text, muted, line, surface, raised, toobusy, busy, accent, expected, band] = COLOURS.map(of);
  return { text, muted, line, surface, raised, toobusy, busy, accent, expected, band, series: SERIES.map(of) };
}

/** Return a color of a token, "rgb(…)", with an opacity.
 * @param {string} colour @param {number} opacity */
export const faded = (colour, opacity) => `${colour.slice(0, 3)}a${colour.slice(3, -1)}, ${opacity})`;

/** Return the color and the dashes of the line at a place of a comparison. The fifth line repeats the first color, dotted.
 * @param {number} place @param {Colours} colours */
export const lineAt = (place, colours) => ({ color: colours.series[Math.max(0, place) % MAX_SERIES], dash: place < MAX_SERIES ? "solid" : "dot" });

/** Show a line in the legend. @param {HTMLElement} key @param {{ color: string, dash: string }} line */
export function markKey(key, { color, dash }) {
  key.style.setProperty("--line", color);
  key.classList.toggle("dotted", dash !== "solid");
}

/** Return the layout that all charts share. right: width of the margin with the labels.
 * @param {Colours} colours @param {number} height @param {boolean} narrow @returns {PlotLayout} */
export function frame(colours, height, narrow, right = 12) {
  const font = { family: "system-ui, sans-serif", size: 12, color: colours.muted };
  return {
    height, font, autosize: true, showlegend: false, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    margin: { l: narrow ? NARROW_LEFT : LEFT, r: right, t: TOP, b: BOTTOM, pad: 0 }, hovermode: "x", dragmode: "zoom",
    hoverlabel: { bgcolor: colours.surface, bordercolor: colours.line, font: { ...font, color: colours.text } },
    modebar: { bgcolor: "transparent", color: colours.muted, activecolor: colours.text, orientation: "h" },
    annotations: [], shapes: [],
    xaxis: { type: "date", gridcolor: "transparent", linecolor: colours.line, showline: true, zeroline: false, nticks: narrow ? 4 : 7, anchor: "free", position: 0 },
  };
}

/** Return the ends and the step of an axis that contains both values, with round steps.
 * @param {number} low @param {number} high @param {number} leastStep @returns {AxisRange} */
export function roundRange(low, high, leastStep = 0) {
  const rough = Math.max((high - low) / INTERVALS, leastStep, Number.MIN_VALUE), size = 10 ** Math.floor(Math.log10(rough));
  const step = size * (STEPS.find((factor) => factor * size >= rough * 0.999) ?? 10);
  return { low: Math.floor(low / step + 1e-9) * step, high: Math.max(Math.ceil(high / step - 1e-9), Math.floor(low / step) + 1) * step, step };
}

/** @param {Colours} colours @param {[number, number]} domain @param {AxisRange} range */
export function scale(colours, domain, { low, high, step }) {
  return {
    domain, range: [low, high], dtick: step, tick0: low, gridcolor: colours.line, zeroline: false, fixedrange: true, tickformat: high >= 10000 ? "~s" : ",~g", ticksuffix: " ",
    tickfont: { color: colours.muted, size: 12 },
  };
}

/** Return the traces of a confidence band; none without one. They go before all lines, which they would cover.
 * @param {(number | string)[]} x @param {Numbers} low @param {Numbers} high @param {Colours} colours */
export const confidence = (x, low, high, colours) => (low.length ? [
  { x, y: low, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip" },
  { x, y: high, type: "scatter", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: colours.expected, hoverinfo: "skip" },
] : []);

/** Escape a text for Plotly, which interprets some tags, such as links, and %{…}. Names can come from other plants.
 * @param {unknown} text */
export const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "%\u200b{");

/** Return a heading above the axis. A rotated title would be harder to read.
 * @param {Colours} colours @param {string} text @param {number} y @param {boolean} narrow */
export function heading(colours, text, y, narrow) {
  return { text: plain(text), x: 0, xshift: narrow ? -40 : -LEFT + 4, y, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", yshift: 7, showarrow: false, font: { size: 12, color: colours.muted } };
}

/** Return a number with the digits that a chart needs.
 * @param {number} value */
export function brief(value) {
  const size = Math.abs(value);
  if (size < 1) return formatted(Number(value.toPrecision(2)));
  return formatted(value, Number.isInteger(value) || size >= 100 ? "integer" : "rate");
}

/** Shorten a long name. The tooltip has the whole name.
 * @param {string} label */
export const shortened = (label) => (label.length > MAX_LABEL ? `${label.slice(0, MAX_LABEL - 1)}…` : label);

/** Name the limits on their lines at the left end, where a small chart has room.
 * @param {LabelEnd[]} limits @param {string} axis @param {PlotLayout} layout @param {AxisRange} range @param {number} height */
export function limitLabels(limits, axis, layout, { low, high }, height) {
  for (const { label, value, at, colour } of limits) {
    const isBelow = (high - at) / (high - low) * height < LABEL_HEIGHT;
    layout.annotations.push({ text: `${plain(label)} ${value}`, x: 0, xref: "paper", xshift: 4, y: at, yref: axis, xanchor: "left", yanchor: isBelow ? "top" : "bottom", showarrow: false, font: { size: 12, color: colour } });
  }
}

/** Return the width of the right margin that the labels need.
 * @param {{ label: string, value: string }[]} ends */
export const marginFor = (ends) => Math.max(MIN_RIGHT, ...ends.map(({ label, value }) => Math.ceil((shortened(label).length + 1 + value.length) * CHARACTER_WIDTH) + 14));

/** Add names and values at the right end, in the color of each line. Labels that would overlap are moved apart.
 * @param {LabelEnd[]} ends @param {string} axis @param {PlotLayout} layout @param {AxisRange} range
 * @param {number} height */
export function labels(ends, axis, layout, { low, high }, height) {
  const perPixel = (high - low) / height, sorted = [...ends].sort((one, other) => other.at - one.at);
  const places = sorted.map(({ at }) => (high - Math.min(Math.max(at, low), high)) / perPixel);
  for (let index = 1; index < places.length; index += 1) places[index] = Math.max(places[index], places[index - 1] + LABEL_HEIGHT);
  for (let index = places.length - 1, most = height; index >= 0; index -= 1, most -= LABEL_HEIGHT) places[index] = Math.min(places[index], most);
  sorted.forEach(({ label, value, colour, strong }, index) => {
    const name = plain(shortened(label));
    layout.annotations.push({ text: `${strong ? `<b>${name}</b>` : name} ${value}`, x: 1, xref: "paper", xshift: 6, y: high - places[index] * perPixel, yref: axis, xanchor: "left", yanchor: "middle", showarrow: false, font: { size: 12, color: colour } });
  });
}
