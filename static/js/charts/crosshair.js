// One crosshair on all charts of a page, and a tooltip at the chart under the pointer: date, seconds, UTC, values, units.
// Left and right arrow keys move the crosshair of the chart that has the focus.
import { kept } from "../frame/past.js";
import { utc } from "../values/format.js";

const GAP = 14, KEY_STEPS = 60;
const dayFormat = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const zoneFormat = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
/** @type {Set<ReadableChart>} */
const charts = new Set();
let /** @type {number | null} */ shown = null; // ms

/** @param {ReadableChart} chart */
export function follow(chart) {
  charts.add(chart);
  const { figure } = chart;
  figure.tabIndex = 0;
  figure.addEventListener("pointermove", (event) => show(timeAt(chart, event.clientX), chart, event.clientY));
  figure.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => step(chart, event));
  figure.addEventListener("click", (event) => {
    const at = timeAt(chart, event.clientX), url = at === null ? null : chart.noteAt(at)?.url;
    if (url && isInDecisions(chart, event.clientY)) location.assign(kept(url));
  });
}

/** @param {ReadableChart} chart @param {number} clientX */
function timeAt({ area, plot }, clientX) {
  if (!area) return null;
  const x = clientX - plot.getBoundingClientRect().left - area.left;
  return x < 0 || x > area.width ? null : area.from + x / area.width * (area.to - area.from);
}

/** @param {ReadableChart} chart @param {number} clientY */
function isInDecisions({ area, plot }, clientY) {
  return area !== null && area.decisions > 0 && Math.abs(clientY - plot.getBoundingClientRect().top - area.top - area.height + area.decisions / 2) <= area.decisions;
}

/** @param {ReadableChart} chart @param {KeyboardEvent} event */
function step(chart, event) {
  const { area } = chart, direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "Escape") hide();
  if (!area || !direction) return;
  event.preventDefault();
  show(Math.min(area.to, Math.max(area.from, (shown ?? area.to) + direction * (area.to - area.from) / KEY_STEPS)), chart, null);
}

/** @param {number | null} at @param {ReadableChart} chart @param {number | null} clientY */
function show(at, chart, clientY) {
  if (at === null) return hide();
  shown = at;
  for (const other of charts) draw(other, at, other === chart ? clientY ?? "top" : null);
}

function hide() {
  shown = null;
  for (const { over } of charts) over.replaceChildren(...[...over.children].filter((part) => part.classList.contains("lane-title")));
}

/** @param {ReadableChart} chart @param {number} at @param {number | "top" | null} pointed */
function draw(chart, at, pointed) {
  const { over, area } = chart, titles = [...over.children].filter((part) => part.classList.contains("lane-title"));
  if (!area || at < area.from || at > area.to) return over.replaceChildren(...titles);
  const x = area.left + (at - area.from) / (area.to - area.from) * area.width, line = made("crosshair");
  Object.assign(line.style, { left: `${x}px`, top: `${area.top}px`, height: `${area.height}px` });
  const readings = chart.readings(at);
  const dots = readings.flatMap(({ y, colour }) => {
    if (y === null) return [];
    const dot = made("crosshair-dot");
    Object.assign(dot.style, { left: `${x}px`, top: `${y}px`, borderColor: colour });
    return [dot];
  });
  over.replaceChildren(...titles, line, ...dots);
  if (pointed === null) return;
  const tip = tooltip(chart, at, readings);
  over.append(tip);
  place(tip, chart, x, pointed);
}

/** @param {ReadableChart} chart @param {number} at @param {Reading[]} readings */
function tooltip(chart, at, readings) {
  const tip = made("chart-tooltip"), note = chart.noteAt(at);
  tip.setAttribute("role", "status");
  const rows = readings.filter(({ text }) => text).map(({ label, text, colour, dashed }) => {
    const row = made("reading"), key = document.createElement("i"), value = document.createElement("b");
    key.style.borderColor = colour;
    key.classList.toggle("dashed", dashed);
    value.textContent = text;
    row.append(key, label, value);
    return row;
  });
  tip.append(made("when", describeTime(new Date(at))), ...rows, ...note ? [made("note", note.words)] : []);
  return tip;
}

/** Return a time with its zone, and in UTC if that differs.
 * @param {Date} date */
function describeTime(date) {
  if (!date.getTimezoneOffset()) return `${dayFormat.format(date)} UTC`;
  const zone = zoneFormat.formatToParts(date).find(({ type }) => type === "timeZoneName")?.value ?? "";
  return `${dayFormat.format(date)} ${zone} (${utc(date).slice(11)})`;
}

/** Put the tooltip beside the crosshair, above the time axis.
 * @param {HTMLElement} tip @param {ReadableChart} chart @param {number} x @param {number | "top"} pointed */
function place(tip, { area, plot, over }, x, pointed) {
  if (!area) return;
  const { offsetWidth: width, offsetHeight: height } = tip, right = over.clientWidth;
  const left = x + GAP + width <= right ? x + GAP : Math.max(0, x - GAP - width);
  const wanted = pointed === "top" ? area.top : pointed - plot.getBoundingClientRect().top - height / 2;
  const top = Math.max(0, Math.min(wanted, area.top + area.height - height));
  Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
}

/** @param {string} className @param {string} text */
const made = (className, text = "") => Object.assign(document.createElement("div"), { className, textContent: text });
