// Common parts of all plots: the colors of the tokens, one layout, axes from zero, and labels at the right end.
import { formatted } from "../values/format.js";

export const TOP = 32, BOTTOM = 28, NARROW = 520;
const RIGHT = 132, LEFT = 56, LABEL_HEIGHT = 15;

const COLOURS = ["text", "muted", "line", "surface", "raised", "toobusy", "accent", "expected", "fill", "band"];
const HUES = [1, 2, 3, 4, 5, 6, 7, 8].map((place) => `hue-${place}`);

// A registered token resolves to its color in the current theme, not to light-dark(…).
for (const name of COLOURS) CSS.registerProperty({ name: `--${name}`, syntax: "<color>", inherits: true, initialValue: "transparent" });

/** @returns {Colours} */
export function tokens() {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const [text, muted, line, surface, raised, toobusy, accent, expected, ...shades] = COLOURS.map(of);
  return { text, muted, line, surface, raised, toobusy, accent, expected, shades, hues: HUES.map(of) };
}

/** Return the layout that all charts share.
 * @param {Colours} colours @param {number} height @param {boolean} narrow @returns {PlotLayout} */
export function frame(colours, height, narrow) {
  const font = { family: "system-ui, sans-serif", size: 12, color: colours.muted };
  return {
    height, font, autosize: true, showlegend: false, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    margin: { l: narrow ? 44 : LEFT, r: narrow ? 12 : RIGHT, t: TOP, b: BOTTOM, pad: 0 }, hovermode: "x", dragmode: "zoom",
    hoverlabel: { bgcolor: colours.surface, bordercolor: colours.line, font: { ...font, color: colours.text } },
    modebar: { bgcolor: "transparent", color: colours.muted, activecolor: colours.text, orientation: "h" },
    annotations: [], shapes: [], uirevision: "still",
    xaxis: {
      type: "date", gridcolor: colours.line, linecolor: colours.line, showline: true, zeroline: false, nticks: narrow ? 4 : 7, tickformat: "%H:%M",
      showspikes: true, spikemode: "across", spikethickness: 1, spikedash: "solid", spikecolor: colours.muted, spikesnap: "cursor", anchor: "free", position: 0, hoverformat: "%H:%M:%S",
    },
  };
}

/** @param {Colours} colours @param {[number, number]} domain @param {number} highest */
export function scale(colours, domain, highest) {
  return {
    domain, range: [0, highest], gridcolor: colours.line, zeroline: false, nticks: 4, fixedrange: true, tickformat: highest >= 10000 ? "~s" : ",~g", ticksuffix: " ",
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

/** Add names and values at the right end. Labels that would overlap are moved apart.
 * @param {LabelEnd[]} ends @param {string} axis @param {Colours} colours @param {PlotLayout} layout
 * @param {number} highest @param {number} height */
export function labels(ends, axis, colours, layout, highest, height) {
  const least = highest * LABEL_HEIGHT / height;
  const sorted = ends.sort((one, other) => other.last - one.last);
  let above = Infinity;
  for (const { series, last, value: own = last } of sorted) {
    const y = Math.min(Math.max(last, 0), above - least, highest);
    above = y;
    const value = series.constant === null || series.kind === "threshold" ? formatted(own, Math.abs(own) < 10 && !Number.isInteger(own) ? "fraction" : Math.abs(own) < 100 && !Number.isInteger(own) ? "rate" : "integer") : "";
    const strong = series.kind === "measured" || series.kind === "step";
    layout.annotations.push({ text: `${plain(series.label)} ${value}`, x: 1, xref: "paper", xshift: 6, y, yref: axis, xanchor: "left", yanchor: "middle", showarrow: false, font: { size: 12, color: strong ? colours.text : colours.muted } });
  }
}
