// Spark lines: the last 15 minutes of a value, drawn again every few seconds.
import { AGAIN_MILLISECONDS, GAP_SECONDS, history } from "../values/history.js";
import { resolve, store, subscribe } from "../values/store.js";

const SECONDS = 900, POINTS = 90, STEP_SECONDS = 5, WIDTH = 72, HEIGHT = 18, PAD = 2, MIN_SPAN = 0.4;
const MAX_SERIES = 50; // per request: the server accepts 100, and a proxy an address of 8 kB
/** @type {Map<string, Points>} values by path */
const kept = new Map();
/** @type {number | null} */
let newest = null; // the time of the last snapshot

export function start() {
  const now = store.snapshot?.at ?? Date.now() / 1000;
  load(paths(), now);
  subscribe(extend);
  document.addEventListener("weir:part", ({ detail }) => {
    const unknown = [...detail.querySelectorAll("[data-spark]")].map((spark) => spark.dataset.spark ?? "").filter((path) => !kept.has(path));
    if (unknown.length) load(unknown, store.snapshot?.at ?? now);
    else drawAll();
  });
}

const paths = () => [...new Set([...document.querySelectorAll("[data-spark]")].map((spark) => spark.dataset.spark ?? ""))];

/** @param {string[]} names @param {number} now */
async function load(names, now) {
  names.forEach((name) => kept.set(name, kept.get(name) ?? []));
  for (let first = 0; first < names.length; first += MAX_SERIES) await loadSome(names.slice(first, first + MAX_SERIES), now);
}

/** @param {string[]} names @param {number} now */
async function loadSome(names, now) {
  const found = await history(names, { from: now - SECONDS, to: now, points: POINTS });
  if (!found) return setTimeout(() => loadSome(names, store.snapshot?.at ?? now), AGAIN_MILLISECONDS);
  for (const name of names) {
    const before = evened(found.series[name] ?? [], found.time), last = before.at(-1)?.[0] ?? -Infinity;
    kept.set(name, [...before, ...(kept.get(name) ?? []).filter(([at]) => at > last)]);
  }
  drawAll();
}

/** Average the minimum and maximum that the server returns for each step, because a small line is clearer that way.
 * @param {Numbers} values @param {number[]} time @returns {Points} */
function evened(values, time) {
  /** @type {Points} */
  const points = [];
  for (let index = 0; index < values.length; index += 2) {
    const both = values.slice(index, index + 2).filter((value) => typeof value === "number");
    points.push([time[index], both.length ? both.reduce((sum, value) => sum + value, 0) / both.length : null]);
  }
  return points;
}

/** @param {LiveSnapshot} snapshot */
function extend(snapshot) {
  let changed = false;
  if (newest !== null && snapshot.at - newest > GAP_SECONDS) load([...kept.keys()], snapshot.at);
  newest = snapshot.at;
  for (const [path, points] of kept) {
    if (points.length && snapshot.at - points[points.length - 1][0] < STEP_SECONDS) continue;
    points.push([snapshot.at, resolve(snapshot, path)]);
    while (points[0][0] < snapshot.at - SECONDS) points.shift();
    changed = true;
  }
  if (changed) drawAll();
}

function drawAll() {
  for (const spark of document.querySelectorAll("[data-spark]")) draw(spark, kept.get(spark.dataset.spark ?? "") ?? []);
}

/** Draw a line around its middle. The scale spans at least 40 % of the highest value: a small change looks small.
 * @param {HTMLElement} spark @param {Points} points */
function draw(spark, points) {
  const known = /** @type {[number, number][]} */ (points.filter(([, value]) => typeof value === "number"));
  if (known.length < 2) return spark.replaceChildren();
  // The time axis ends now: a line without a current value ends before the right edge, and gaps stay empty.
  const [end] = points[points.length - 1], [lastAt, lastValue] = known[known.length - 1], values = known.map(([, value]) => value);
  const highest = Math.max(...values), lowest = Math.min(...values);
  const span = Math.max(highest - lowest, MIN_SPAN * Math.abs(highest), 1e-9), middle = (highest + lowest) / 2;
  const x = (/** @type {number} */ at) => (WIDTH - PAD) * (1 - (end - at) / SECONDS);
  const y = (/** @type {number} */ value) => HEIGHT / 2 - (HEIGHT - 2 * PAD) * (value - middle) / span;
  const begins = (/** @type {number} */ at, /** @type {number} */ index) => !index || at - known[index - 1][0] > GAP_SECONDS * 4;
  const line = known.map(([at, value], index) => `${begins(at, index) ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  spark.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  if (!spark.firstElementChild) spark.innerHTML = '<path/><circle r="1.8"/>';
  const [path, dot] = spark.children;
  path.setAttribute("d", line);
  dot.setAttribute("cx", x(lastAt).toFixed(1));
  dot.setAttribute("cy", y(lastValue).toFixed(1));
}
