// The time range of a page's charts, and their comparison. Both are in the address (minutes, or from and to; compare),
// so that a link shows the same.

const FIRST_MINUTES = 15, MAX_MINUTES = 400 * 1440;
const DAY_SECONDS = 86400;
/** @type {Record<string, { seconds: number, words: string } | undefined>} */
const COMPARED = { day: { seconds: DAY_SECONDS, words: "1 day earlier" }, week: { seconds: 7 * DAY_SECONDS, words: "1 week earlier" } };

const query = () => new URLSearchParams(location.search);

/** Return {seconds, until, before}. until: null for now. before: shift of the compared values and its words, or
 * null. */
export function range() {
  const asked = query(), before = COMPARED[asked.get("compare") ?? ""] ?? null;
  const since = Date.parse(asked.get("from") ?? ""), until = Date.parse(asked.get("to") ?? "");
  if (since < until) return { seconds: Math.min((until - since) / 1000, MAX_MINUTES * 60), until: until / 1000, before };
  const minutes = Number(asked.get("minutes"));
  return { seconds: 60 * (minutes > 0 && minutes <= MAX_MINUTES ? minutes : FIRST_MINUTES), until: null, before };
}

/** Return the formats of times on the axis and in the tooltip.
 * @param {number} seconds */
export function timeFormats(seconds) {
  if (seconds <= DAY_SECONDS / 4) return { tickformat: "%H:%M", hoverformat: "%H:%M:%S" };
  return { tickformat: seconds <= 2 * DAY_SECONDS ? "%H:%M" : "%-d %b", hoverformat: "%a %-d %b, %H:%M" };
}

/** @param {Act} changed */
export function start(changed) {
  show();
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
  window.history.replaceState(null, "", url);
  show();
  changed();
}

function show() {
  const { seconds, until } = range(), compare = query().get("compare") ?? "";
  for (const button of document.querySelectorAll("[data-range] button")) button.setAttribute("aria-pressed", String(until === null && Number(button.value) * 60 === seconds));
  for (const choice of document.querySelectorAll("select[data-compare]")) choice.value = compare in COMPARED ? compare : "";
}
