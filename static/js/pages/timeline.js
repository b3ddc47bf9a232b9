// Input of the timeline: a crosshair reads values, a cursor sets the instant, and a drag zooms. The server draws
// everything from the address, so each input changes the address and fetches the parts. Times come from the server,
// never from the browser's clock.
import { formatted, isFormat, timestamp } from "../values/format.js";
import { STATE_WORDS } from "../values/rules.js";
import { refreshAll } from "../values/refresh.js";
import { write } from "../values/bind.js";

const DRAG_PIXELS = 6, MIN_ZOOM_SECONDS = 10, SETTLE_MILLISECONDS = 350;
const STEP = 1 / 200, /** @type {Record<string, number>} */ STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10, PageDown: -10 };

let /** @type {{ pointer: number, from: number, x: number, touch: boolean } | null} */ drag = null, settle = 0, focused = false;
let /** @type {TimelineData | null} */ data = null, /** @type {number | null} */ pinned = null;

const strips = () => document.getElementById("strips");
const over = () => document.querySelector("[data-plots]");
const cursor = () => document.querySelector("[data-cursor]");

function start() {
  document.cookie = `weir-zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; path=/timeline; max-age=31536000; samesite=lax`;
  const main = document.getElementById("content");
  main.addEventListener("pointerdown", begin);
  main.addEventListener("pointermove", move);
  main.addEventListener("pointerleave", restore);
  addEventListener("pointerup", end);
  addEventListener("pointercancel", leave);
  main.addEventListener("keydown", step);
  main.addEventListener("click", fill);
  addEventListener("popstate", () => location.reload());
  document.addEventListener("weir:part", ({ detail }) => { if (detail.id === "strips") arrive(); });
  arrive();
}

/** Read the data of the new strips, and restore the focus of the cursor. */
function arrive() {
  const text = document.getElementById("timeline-scrub")?.textContent;
  data = text ? JSON.parse(text) : null;
  const { instant } = strips().dataset;
  pinned = instant ? shareOf(Date.parse(instant) / 1000) : null;
  if (focused) cursor()?.focus({ preventScroll: true });
}

/** @param {number} seconds */
const shareOf = (seconds) => (data ? (seconds - data.since) / (data.until - data.since) : 1);
/** @param {number} share */
const secondsAt = (share) => (data ? data.since + share * (data.until - data.since) : 0);
/** @param {number} seconds */
const iso = (seconds) => new Date(seconds * 1000).toISOString().replace(/\.\d+Z$/, "Z");

/** Return the pointer's position on the axis, 0 to 1, or null outside the plots.
 * @param {PointerEvent} event */
function shareUnder(event, clamped = false) {
  const box = over()?.getBoundingClientRect();
  if (!box || !data) return null;
  const share = (event.clientX - box.left) / box.width;
  if (clamped) return Math.max(0, Math.min(1, share));
  const inside = share >= 0 && share <= 1 && event.clientY >= box.top - 28 && event.clientY <= box.bottom + 24;
  return inside && /** @type {Element} */ (event.target).closest(".plots") ? share : null;
}

/** @param {PageEvents["pointerdown"]} event */
function begin(event) {
  if (event.button !== 0 || event.target.closest("a, button, input")) return;
  const share = shareUnder(event);
  if (share === null) return;
  drag = { pointer: event.pointerId, from: share, x: event.clientX, touch: event.pointerType === "touch" };
  if (!drag.touch) event.preventDefault(); // a drag over the strips must not select text
}

/** @param {PointerEvent} event */
function move(event) {
  if (!drag) {
    const share = shareUnder(event);
    return share === null ? restore() : read(share);
  }
  if (event.pointerId !== drag.pointer) return;
  const share = shareUnder(event, true);
  if (share === null) return;
  if (drag.touch) return read(share); // a touch reads values while it moves, and sets the instant when it ends
  if (Math.abs(event.clientX - drag.x) < DRAG_PIXELS) return;
  const band = document.querySelector("[data-select]"), [left, right] = [drag.from, share].sort((one, other) => one - other);
  if (!band) return;
  band.hidden = false;
  band.style.left = `${100 * left}%`;
  band.style.width = `${100 * (right - left)}%`;
}

/** Cancel the drag, because the browser uses the pointer for something else, such as scrolling.
 * @param {PointerEvent} event */
function leave(event) {
  if (event.pointerId !== drag?.pointer) return;
  letGo();
  restore();
}

function letGo() {
  drag = null;
  const band = document.querySelector("[data-select]");
  if (band) band.hidden = true;
}

/** @param {PointerEvent} event */
function end(event) {
  if (event.pointerId !== drag?.pointer) return;
  const { from, x, touch } = drag, share = shareUnder(event, true);
  letGo();
  if (share === null) return;
  if (touch || Math.abs(event.clientX - x) < DRAG_PIXELS) return look(share);
  const [since, until] = [from, share].sort((one, other) => one - other).map(secondsAt);
  if (until - since >= MIN_ZOOM_SECONDS) go({ from: iso(since), to: iso(until) }, true);
}

/** Move the cursor by key. The page follows after a short pause.
 * @param {PageEvents["keydown"]} event */
function step(event) {
  if (!event.target.matches("[data-cursor]") || !data) return;
  const now = pinned ?? 1;
  const next = event.key === "Home" ? 0 : event.key === "End" ? 1 : event.key in STEPS ? now + STEPS[event.key] * STEP : null;
  if (next === null) return;
  event.preventDefault();
  const share = pinned = Math.max(0, Math.min(1, next));
  read(share);
  clearTimeout(settle);
  settle = setTimeout(() => look(share), SETTLE_MILLISECONDS);
}

/** @param {number} share */
function look(share) {
  pinned = share;
  if (!data) return;
  go({ from: iso(data.since), to: iso(data.until), at: iso(Math.max(Math.ceil(data.since), Math.min(Math.floor(data.until), secondsAt(share)))) });
}

/** Change the address and fetch the parts, without loading the page.
 * @param {Record<string, string>} query */
function go(query, kept = false) {
  const address = `${location.pathname}?${new URLSearchParams(query)}`;
  focused = document.activeElement?.matches("[data-cursor]") ?? false;
  window.history[kept ? "pushState" : "replaceState"](null, "", address);
  refreshAll();
}

// --- values at an instant -------------------------------------------------------------------------------------

/** @param {number} share */
function read(share) {
  const line = cursor(), seconds = secondsAt(share), shown = data;
  if (!line || !shown) return;
  line.classList.remove("at-end");
  line.style.left = `${100 * share}%`;
  write(line.querySelector("[data-flag]"), timestamp(new Date(seconds * 1000), "clock"));
  line.setAttribute("aria-valuenow", String(Math.round(1000 * share)));
  line.setAttribute("aria-valuetext", timestamp(new Date(seconds * 1000), "date"));
  const place = newest(seconds, shown);
  for (const element of document.querySelectorAll("[data-value]")) {
    const { value = "", format } = element.dataset;
    write(element, formatted(place === null ? null : shown.columns[value]?.[place], isFormat(format) ? format : "number"));
  }
  for (const strip of document.querySelectorAll(".track.node")) showState(strip, share);
}

/** Return the index of the newest row at or before an instant, or null if the row is too old.
 * @param {number} seconds @param {TimelineData} options */
function newest(seconds, { times, reach }) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= seconds) low = middle + 1;
    else high = middle;
  }
  return low && seconds - times[low - 1] <= reach ? low - 1 : null;
}

/** @param {HTMLElement} strip @param {number} share */
function showState(strip, share) {
  const mark = strip.querySelector("[data-node-state]");
  if (!mark) return;
  const band = [...strip.querySelectorAll(".band")].findLast(({ style }) => {
    const left = parseFloat(style.left) / 100;
    return left <= share && share <= left + parseFloat(style.width) / 100 + 0.005;
  });
  mark.dataset.state = band?.dataset.state ?? "";
  write(mark.querySelector(".word"), STATE_WORDS[band?.dataset.state ?? ""] ?? "—");
}

/** Show the selected instant, or the end of the range, after the pointer leaves. */
function restore() {
  const line = cursor();
  if (drag || !line || !data) return;
  if (pinned === null && line.classList.contains("at-end")) return;
  read(pinned ?? 1);
  line.classList.toggle("at-end", pinned === null);
}

// --- marks ---------------------------------------------------------------------------------------------------

/** @param {PageEvents["click"]} options */
function fill({ target }) {
  const form = target.closest("form[data-mark], form[data-share]");
  if (!form || !data) return;
  if (target.matches("[data-from-instant]")) {
    form.elements.at.value = iso(secondsAt(pinned ?? 1));
    if (form.elements.until) form.elements.until.value = "";
  } else if (target.matches("[data-from-range]")) {
    form.elements.at.value = iso(data.since);
    form.elements.until.value = iso(data.until);
  }
}

start();
