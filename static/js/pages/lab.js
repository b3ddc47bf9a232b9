// The entry point of the lab's pages: small multiples, one plot per series, with one legend. The first law is on top.
// Plots of the same series share a scale.
import { confidence, frame, heading, lineAt, markKey, plain, roundRange, scale, tokens } from "../charts/plot.js";
import { words } from "../values/format.js";

/** @type {[number, number, string][]} minimum duration in seconds, seconds per unit, unit name */
const UNITS = [[172800, 86400, "days"], [7200, 3600, "hours"], [300, 60, "min"], [0, 1, "s"]];
const HEIGHT = 210;
/** @type {Map<string | undefined, Promise<Laws>>} the requested series by experiment */
const asked = new Map();

start();

function start() {
  drawAll(document);
  document.addEventListener("weir:part", ({ detail }) => { asked.clear(); drawAll(detail); });
  document.addEventListener("weir:theme", () => drawAll(document));
  new ResizeObserver(() => drawAll(document)).observe(document.getElementById("content"));
}

/** @param {string} experiment @returns {Promise<Laws>} */
function series(experiment) {
  const found = asked.get(experiment) ?? load(experiment);
  asked.set(experiment, found);
  return found;
}

/** @param {string} experiment @returns {Promise<Laws>} */
async function load(experiment) {
  try {
    const response = await fetch(`/api/v1/experiments/${experiment}/series`, { headers: { Accept: "application/json" } });
    return response.ok ? (await response.json()).laws : {};
  } catch {
    return {}; // disconnected: the strip says so, and the figures say that there is no data
  }
}

/** @param {ParentNode} root */
async function drawAll(root) {
  const figures = [...root.querySelectorAll("figure[data-multiple]")];
  const found = await Promise.all(figures.map((figure) => series(figure.dataset.experiment ?? "")));
  /** @type {Map<string | undefined, number>} */
  const highest = new Map();
  figures.forEach(({ dataset }, index) => highest.set(dataset.multiple, Math.max(highest.get(dataset.multiple) ?? 0, most(lines(found[index], dataset.multiple)))));
  figures.forEach((figure, index) => draw(figure, lines(found[index], figure.dataset.multiple), highest.get(figure.dataset.multiple) ?? 0));
}

/** @param {Laws} laws @param {string | undefined} name */
const lines = (laws, name) => Object.entries(laws).flatMap(([law, columns]) => (columns[name ?? ""] ? [{ ...columns[name ?? ""], law }] : []));
/** @param {LawLine[]} all */
const most = (all) => all.flatMap(({ values }) => values).reduce((/** @type {number} */ top, value) => Math.max(top, value ?? 0), 0);

/** @param {HTMLElement} figure @param {LawLine[]} all @param {number} high */
function draw(figure, all, high) {
  const plot = figure.querySelector(".plot");
  if (!window.Plotly || !figure.offsetWidth) return;
  if (!all.length) return plot.replaceChildren(Object.assign(document.createElement("p"), { className: "nothing", textContent: "No data for this metric." }));
  const colours = tokens(), order = (figure.dataset.laws ?? "").split(" ");
  const end = Math.max(...all.map(({ seconds }) => seconds.at(-1) ?? 0)), [, size, unit] = UNITS.find(([least]) => end >= least) ?? UNITS[UNITS.length - 1];
  const layout = frame(colours, HEIGHT, true);
  Object.assign(layout.xaxis, { type: "linear", range: [0, end / size], tickformat: "", hoverformat: ",.4~g", ticksuffix: ` ${unit}`, showticksuffix: "last" });
  layout.yaxis = scale(colours, [0, 1], roundRange(0, high > 0 ? high : 1));
  layout.annotations.push(heading(colours, words(figure.dataset.multiple), 1, true));
  const sorted = all.sort((one, other) => order.indexOf(other.law) - order.indexOf(one.law)).map((line) => ({ ...line, x: line.seconds.map((at) => at / size) }));
  const data = [...sorted.flatMap((line) => confidence(line.x, line.low, line.high, colours)), ...sorted.map(({ law, x, values }) => ({
    x, y: values, type: "scatter", mode: "lines", name: law, line: { ...lineAt(order.indexOf(law), colours), width: order.indexOf(law) ? 1.1 : 1.6 }, hovertemplate: `${plain(law)} %{y:,.4~g}<extra></extra>`,
  }))];
  plot.querySelector(".nothing")?.remove();
  window.Plotly.react(plot, data, layout, { displaylogo: false, responsive: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"] });
  key(figure, order, colours);
}

/** Color the legend, which all plots of an experiment share.
 * @param {HTMLElement} figure @param {string[]} order @param {Colours} colours */
function key(figure, order, colours) {
  const place = document.getElementById(figure.dataset.key);
  place?.querySelectorAll("[data-law]").forEach((element) => markKey(element, lineAt(order.indexOf(element.dataset.law ?? ""), colours)));
}
