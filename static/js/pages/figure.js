// Plots of a table or figure of a paper: each metric by case, with confidence bands, and the paper's values as crosses.
import { confidence, frame, heading, lineAt, markKey, plain, roundRange, scale, tokens } from "../charts/plot.js";
import { words } from "../values/format.js";

const HEIGHT = 260;
const MODES = { displaylogo: false, responsive: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"] };
/** @type {Promise<PaperFigure["values"]> | null} */
let asked = null;

start();

function start() {
  drawAll();
  document.addEventListener("weir:part", () => { asked = null; drawAll(); });
  document.addEventListener("weir:theme", drawAll);
  new ResizeObserver(drawAll).observe(document.getElementById("content"));
}

async function drawAll() {
  const figures = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("figure[data-metric]"));
  if (!figures.length || !window.Plotly) return;
  asked ??= load(figures[0].dataset);
  const values = await asked, colours = tokens(), laws = [...new Set(values.map(({ law }) => law))];
  figures.forEach((figure) => draw(figure, values.filter(({ metric }) => metric === figure.dataset.metric), laws, colours));
  drawKey(values, laws, colours);
}

/** @param {DOMStringMap} dataset @returns {Promise<PaperFigure["values"]>} */
async function load({ figure, experiment }) {
  try {
    const response = await fetch(`/api/v1/lab/figures/${figure}?experiment=${experiment}`, { headers: { Accept: "application/json" } });
    return response.ok ? (await response.json()).values : [];
  } catch {
    return []; // disconnected: the strip says so
  }
}

/** @param {HTMLElement} figure @param {PaperFigure["values"]} values @param {string[]} laws @param {Colours} colours */
function draw(figure, values, laws, colours) {
  const rowsOf = laws.map((law) => values.filter((row) => row.law === law)), xOf = rowsOf.map((rows) => rows.map((row) => words(row.case || row.law)));
  const bands = rowsOf.flatMap((rows, place) => {
    const [low, high] = [0, 1].map((end) => (rows.every(({ band }) => band) ? rows.map(({ band }) => band?.[end] ?? null) : []));
    return confidence(xOf[place], low, high, colours);
  });
  const lines = laws.flatMap((law, place) => {
    const rows = rowsOf[place], line = lineAt(place, colours), x = xOf[place], paper = rows.map((row) => (row.low === row.high ? row.low : null));
    return [
      { x, y: rows.map(({ ours }) => ours), type: "scatter", mode: "lines+markers", name: law, line: { ...line, width: 1.3 }, marker: { size: 5, color: line.color }, hovertemplate: `${plain(law)} %{y:,.4~g}<extra></extra>` },
      { x, y: paper, type: "scatter", mode: "markers", marker: { symbol: "x-thin", size: 9, line: { color: line.color, width: 2 } }, hovertemplate: `Paper, ${plain(law)} %{y:,.4~g}<extra></extra>` },
    ];
  });
  const data = [...bands, ...lines];
  const known = data.flatMap(({ y }) => y).map((value) => value ?? 0), layout = frame(colours, HEIGHT, true);
  Object.assign(layout.xaxis, { type: "category", tickformat: "", hoverformat: "" });
  layout.yaxis = scale(colours, [0, 1], roundRange(Math.min(...known, 0), Math.max(...known, 0) || 1));
  layout.annotations.push(heading(colours, words(figure.dataset.metric), 1, true));
  window.Plotly?.react(figure.querySelector(".plot"), data, layout, MODES);
}

/** @param {PaperFigure["values"]} values @param {string[]} laws @param {Colours} colours */
function drawKey(values, laws, colours) {
  const entries = laws.map((law, place) => {
    const entry = document.createElement("span");
    markKey(entry, lineAt(place, colours));
    entry.append(document.createElement("i"), words(law));
    return entry;
  });
  if (values.some(({ low, high }) => low !== null && low === high)) entries.push(Object.assign(document.createElement("span"), { textContent: "× Paper" }));
  document.getElementById("figure-key")?.replaceChildren(...entries);
}
