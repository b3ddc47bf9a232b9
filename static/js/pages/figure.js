// The entry point of a table or figure of a paper: a plot for each series over time, or the first metrics by case, with
// confidence bands, and the paper's values as markers.
import { frame, heading, plain, scale, tokens } from "../charts/plot.js";
import { words } from "../values/format.js";

const HEIGHT = 260, MAX_METRICS = 4, MAX_CURVES = 8;
const MODES = { displaylogo: false, responsive: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"] };
/** @type {Promise<PaperFigure | null> | null} */
let asked = null;

start();

function start() {
  drawAll();
  document.addEventListener("weir:part", () => { asked = null; drawAll(); });
  document.addEventListener("weir:theme", drawAll);
  new ResizeObserver(drawAll).observe(document.getElementById("content"));
}

async function drawAll() {
  const place = /** @type {HTMLElement | null} */ (document.querySelector("[data-figure]"));
  if (!place || !window.Plotly) return;
  asked ??= load(place);
  const figure = await asked, colours = tokens();
  if (!figure || !place.isConnected) return;
  const names = [...new Set(figure.curves.map(({ series }) => series))];
  if (names.length) names.forEach((name) => drawCurves(plotOf(place, name), name, figure, colours));
  else [...new Set(figure.values.map(({ metric }) => metric))].slice(0, MAX_METRICS).forEach((metric) => drawCases(plotOf(place, metric), metric, figure, colours));
  drawKey(figure, colours, names.length > 0);
}

/** @param {HTMLElement} place @returns {Promise<PaperFigure | null>} */
async function load({ dataset }) {
  try {
    const response = await fetch(`/api/v1/lab/figures/${dataset.figure}?experiment=${dataset.experiment}`, { headers: { Accept: "application/json" } });
    return response.ok ? await response.json() : null;
  } catch {
    return null; // disconnected: the strip says so
  }
}

/** @param {HTMLElement} place @param {string} name */
function plotOf(place, name) {
  const found = place.querySelector(`[data-plot="${name}"]`);
  if (found) return /** @type {HTMLElement} */ (found.firstElementChild);
  const figure = document.createElement("figure"), plot = document.createElement("div");
  figure.className = "chart multiple";
  figure.dataset.plot = name;
  figure.setAttribute("role", "figure");
  figure.setAttribute("aria-label", words(name));
  plot.className = "plot";
  figure.append(plot);
  place.append(figure);
  return plot;
}

/** @param {PaperFigure} figure @param {boolean} overTime */
const linesOf = (figure, overTime) => [...new Set(overTime ? figure.curves.map(({ run }) => run) : figure.values.map(({ law }) => law))];
/** @param {number} place @param {Colours} colours */
const colour = (place, colours) => (place <= 0 ? colours.text : colours.hues[(place - 1) % colours.hues.length]);

/** @param {Numbers} low @param {Numbers} high @param {(number | string)[]} x @param {string} line */
const band = (low, high, x, line) => (low.length ? [
  { x, y: low, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip" },
  { x, y: high, type: "scatter", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: `color-mix(in srgb, ${line} 18%, transparent)`, hoverinfo: "skip" },
] : []);

/** @param {HTMLElement} plot @param {string} name @param {PaperFigure} figure @param {Colours} colours */
function drawCurves(plot, name, figure, colours) {
  const order = linesOf(figure, true), curves = figure.curves.filter(({ series }) => series === name).slice(0, MAX_CURVES);
  const end = Math.max(...curves.map(({ seconds }) => seconds.at(-1) ?? 0)), [size, unit] = end > 7200 ? [3600, "h"] : end > 600 ? [60, "min"] : [1, "s"];
  const data = curves.flatMap(({ run, seconds, values, low, high }) => {
    const x = seconds.map((at) => at / size), line = colour(order.indexOf(run), colours);
    return [...band(low, high, x, line), { x, y: values, type: "scatter", mode: "lines", name: run, line: { color: line, width: 1.3 }, hovertemplate: `${plain(run)} %{y:,.4~g}<extra></extra>` }];
  });
  const layout = layoutOf(name, data, colours);
  Object.assign(layout.xaxis, { type: "linear", range: [0, end / size], tickformat: "", hoverformat: ",.4~g", ticksuffix: ` ${unit}`, showticksuffix: "last" });
  window.Plotly?.react(plot, data, layout, MODES);
}

/** @param {HTMLElement} plot @param {string} metric @param {PaperFigure} figure @param {Colours} colours */
function drawCases(plot, metric, figure, colours) {
  const order = linesOf(figure, false);
  const data = order.flatMap((law, place) => {
    const rows = figure.values.filter((row) => row.metric === metric && row.law === law), line = colour(place, colours);
    const x = rows.map((row) => words(row.case || law)), y = rows.map(({ ours }) => ours), paper = rows.map(({ low, high }) => (low !== null && low === high ? low : null));
    const edges = rows.every((row) => row.band) ? [rows.map((row) => row.band?.[0] ?? null), rows.map((row) => row.band?.[1] ?? null)] : [[], []];
    return [
      ...band(edges[0], edges[1], x, line),
      { x, y, type: "scatter", mode: "lines+markers", name: law, line: { color: line, width: 1.3 }, marker: { size: 5, color: line }, hovertemplate: `${plain(law)} %{y:,.4~g}<extra></extra>` },
      ...(paper.some((value) => value !== null) ? [{ x, y: paper, type: "scatter", mode: "markers", name: law, marker: { symbol: "x-thin", size: 9, line: { color: line, width: 2 } }, hovertemplate: `Paper, ${plain(law)} %{y:,.4~g}<extra></extra>` }] : []),
    ];
  });
  const layout = layoutOf(metric, data, colours);
  Object.assign(layout.xaxis, { type: "category", tickformat: "", hoverformat: "" });
  window.Plotly?.react(plot, data, layout, MODES);
}

/** @param {string} name @param {{ y: Numbers }[]} data @param {Colours} colours */
function layoutOf(name, data, colours) {
  const known = data.flatMap(({ y }) => y).map((value) => value ?? 0), layout = frame(colours, HEIGHT, true);
  layout.yaxis = scale(colours, [0, 1], Math.max(...known, 0) * 1.08 || 1);
  if (Math.min(...known) < 0) layout.yaxis.range = [Math.min(...known) * 1.08, layout.yaxis.range[1]];
  layout.annotations.push(heading(colours, words(name), 1, true));
  return layout;
}

/** @param {PaperFigure} figure @param {Colours} colours @param {boolean} overTime */
function drawKey(figure, colours, overTime) {
  const entries = linesOf(figure, overTime).map((name, place) => {
    const entry = document.createElement("span"), mark = document.createElement("i");
    mark.setAttribute("aria-hidden", "true");
    entry.style.setProperty("--line", colour(place, colours));
    entry.append(mark, words(name));
    return entry;
  });
  const reported = !overTime && figure.values.some(({ low, high }) => low !== null && low === high);
  if (reported) entries.push(Object.assign(document.createElement("span"), { textContent: "× Paper" }));
  document.getElementById("figure-key")?.replaceChildren(...entries);
}
