// The time range of a page's charts, and their comparison. Both are in the address (minutes, or from and to; compare),
// so that a link shows the same. A zoom is a range, and the back button returns to the previous one.

const FIRST_MINUTES = 15, MAX_MINUTES = 400 * 1440, MIN_ZOOM_SECONDS = 5;
const DAY_SECONDS = 86400;
/** @type {Record<string, { seconds: number, words: string } | undefined>} */
const COMPARED = { day: { seconds: DAY_SECONDS, words: "1 day earlier" }, week: { seconds: 7 * DAY_SECONDS, words: "1 week earlier" } };
// Formats of the time axis by the distance of its labels, ms. Two labels never read the same.
export const TICK_FORMATS = [
  { dtickrange: [null, 999], value: "%H:%M:%S.%1f" },
  { dtickrange: [1000, 59_999], value: "%H:%M:%S" },
  { dtickrange: [60_000, 21_599_999], value: "%H:%M" },
  { dtickrange: [21_600_000, 86_399_999], value: "%H:%M\n%-d %b" },
  { dtickrange: [86_400_000, "M1"], value: "%-d %b" },
  { dtickrange: ["M1", null], value: "%b %Y" },
];

const query = () => new URLSearchParams(location.search);

/** Return the zoomed range {from, to}, Unix time; null without a zoom. */
function zoomed() {
  const from = Date.parse(query().get("from") ?? ""), to = Date.parse(query().get("to") ?? "");
  return from < to ? { from: from / 1000, to: to / 1000 } : null;
}

/** Return {seconds, until, before}. until: null for now. before: shift of the compared values and its words, or null.
 * own: the range of a figure that doesn't follow the page's choice, only a zoom.
 * @param {{ seconds: number, until: number | null } | null} own */
export function range(own) {
  const before = own ? null : COMPARED[query().get("compare") ?? ""] ?? null, part = zoomed();
  if (part) return { seconds: Math.min(part.to - part.from, MAX_MINUTES * 60), until: part.to, before };
  if (own) return { ...own, before };
  const minutes = Number(query().get("minutes"));
  return { seconds: 60 * (minutes > 0 && minutes <= MAX_MINUTES ? minutes : FIRST_MINUTES), until: null, before };
}

/** Show a time range in all charts. from and to: ms.
 * @param {number} from @param {number} to @param {Act} changed */
export function zoom(from, to, changed) {
  if (to - from < MIN_ZOOM_SECONDS * 1000) return changed();
  const [since, until] = [from, to].map((at) => `${new Date(at).toISOString().slice(0, 19)}Z`);
  write({ from: since, to: until }, changed);
}

/** Return from a zoom to live data. @param {Act} changed */
export const resume = (changed) => write({ from: null, to: null }, changed);

/** @param {Act} changed */
export function start(changed) {
  show(changed);
  addEventListener("popstate", () => { show(changed); changed(); });
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-range] button");
    if (button) write({ minutes: button.value, from: null, to: null }, changed);
  });
  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-compare]")) write({ compare: target.value }, changed);
  });
}

/** @param {Record<string, string | null>} values @param {Act} changed */
function write(values, changed) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  if (url.href !== location.href) window.history.pushState(null, "", url);
  show(changed);
  changed();
}

/** @param {Act} changed */
function show(changed) {
  const { seconds, until } = range(null), compare = query().get("compare") ?? "";
  for (const button of document.querySelectorAll("[data-range] button")) button.setAttribute("aria-pressed", String(until === null && Number(button.value) * 60 === seconds));
  const name = until === null ? describe(seconds / 60) : "Zoom";
  for (const place of document.querySelectorAll("[data-range-name]")) place.textContent = compare in COMPARED ? `${name}, compared` : name;
  for (const choice of document.querySelectorAll("select[data-compare]")) choice.value = compare in COMPARED ? compare : "";
  showZoom(changed);
}

/** Return a range as its button does: 15 min, 6 h, 7 d.
 * @param {number} minutes */
const describe = (minutes) => (minutes % 1440 === 0 ? `${minutes / 1440} d` : minutes % 60 === 0 ? `${minutes / 60} h` : `${minutes} min`);

/** Offer to end a zoom, and to compare its range with another one.
 * @param {Act} changed */
function showZoom(changed) {
  document.querySelector("[data-zoom]")?.remove();
  const part = zoomed(), place = document.querySelector("[data-range]") ?? document.querySelector("figure.chart");
  if (!part || !place) return;
  const shown = document.createElement("span");
  shown.dataset.zoom = "";
  const button = Object.assign(document.createElement("button"), { className: "button small", type: "button", textContent: "Resume live" });
  button.addEventListener("click", () => resume(changed));
  const [from, to] = [part.from, part.to].map((at) => new Date(at * 1000).toISOString());
  shown.append(button, Object.assign(document.createElement("a"), { className: "button small", href: `/differences/?${new URLSearchParams({ from, to })}`, textContent: "Compare this range" }));
  place.before(shown);
}
