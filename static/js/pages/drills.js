// The chart of drills: the time to the right action of each drill by person, the median of five, and the target.
import { frame, MAX_SERIES, NARROW, plain, tokens } from "../charts/plot.js";

const HEIGHT = 260, SYMBOLS = ["circle", "square", "triangle-up", "diamond", "cross", "x"];

/** @typedef {{at: number, person: string, drill: string, seconds: number, notice: string, score: number}} Point */

function draw() {
  const figure = document.querySelector("figure.drill-chart"), source = document.getElementById("drill-results");
  if (!(figure instanceof HTMLElement) || !source || !window.Plotly) return;
  /** @type {{points: Point[], medians: {at: number, seconds: number}[]}} */
  const { points, medians } = JSON.parse(source.textContent ?? "");
  const colours = tokens(), target = Number(figure.dataset.target), layout = frame(colours, HEIGHT, false, 76);
  const people = [...new Set(points.map(({ person }) => person))];
  const highest = Math.max(target, ...points.map(({ seconds }) => seconds)) * 1.1;
  const end = Date.now(), begin = end - Number(figure.dataset.days) * 86_400_000;
  const traces = people.map((person, place) => trace(person, place, points.filter((point) => point.person === person), colours));
  Object.assign(layout, {
    hovermode: "closest", showlegend: people.length > 1, legend: { orientation: "h", y: 1.03, yanchor: "bottom", x: 0 },
    yaxis: { range: [0, highest], gridcolor: colours.line, zeroline: false, tickvals: ticks(highest), ticktext: ticks(highest).map(minutes), fixedrange: true },
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line: { color: colours.muted, width: 1, dash: "dash" } }],
    annotations: [{ text: `target ${minutes(target)}`, xref: "paper", x: 1, xshift: 6, y: target, xanchor: "left", yanchor: "middle", showarrow: false, font: { size: 12, color: colours.muted } }],
  });
  layout.margin.t = figure.offsetWidth < NARROW ? 28 + 19 * traces.length : 44;
  Object.assign(layout.xaxis, { range: [new Date(begin).toISOString(), new Date(end).toISOString()], tickformat: "%d %b", hoverformat: "%a %d %b, %H:%M:%S" });
  const line = { x: medians.map(({ at }) => new Date(at * 1000).toISOString()), y: medians.map(({ seconds }) => seconds), type: "scatter", mode: "lines", name: "median of 5", line: { color: colours.muted, width: 1.5 }, hoverinfo: "skip" };
  window.Plotly.react(figure.querySelector(".plot"), [...traces, ...(medians.length > 1 ? [line] : [])], layout, { displayModeBar: false, responsive: true });
}

/** @param {string} person @param {number} place @param {Point[]} points @param {Colours} colours */
function trace(person, place, points, colours) {
  const known = place < MAX_SERIES;
  return {
    x: points.map(({ at }) => new Date(at * 1000).toISOString()), y: points.map(({ seconds }) => seconds),
    type: "scatter", mode: "markers", name: plain(person),
    marker: { color: known ? colours.series[place] : colours.muted, symbol: SYMBOLS[place % SYMBOLS.length], size: 9 },
    hovertext: points.map(({ drill, seconds, notice, score }) => `${plain(person)}, ${plain(drill)} ${minutes(seconds)}<br>to notice ${notice}<br>score ${score}`),
    hovertemplate: "%{x} UTC<br>%{hovertext}<extra></extra>",
  };
}

/** @param {number} highest @returns {number[]} */
function ticks(highest) {
  const step = [30, 60, 120, 300, 600].find((each) => highest / each <= 6) ?? 1_200;
  return Array.from({ length: Math.floor(highest / step) + 1 }, (_, index) => index * step);
}

/** @param {number} seconds */
const minutes = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.round(seconds) % 60).padStart(2, "0")}`;

draw();
document.addEventListener("weir:theme", draw);
