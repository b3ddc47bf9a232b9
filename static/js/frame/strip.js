// The strip: connection and data age, overrides with the nearest countdown, alerts. Ticks honestly.
import { style, write } from "../values/bind.js";
import { calling } from "../values/derived.js";
import { SEVERITY_STATES, STATE_WORDS, age, countdown, words } from "../values/format.js";
import { ageSeconds } from "./live.js";
import { isPast } from "./past.js";
import { store, subscribe } from "../values/store.js";

const WORDS = { live: "Live", polling: "Polling", reading: "As of", starting: "Starting" };
const connection = document.getElementById("connection");

export function start() {
  if (!connection) return;
  document.addEventListener("weir:connection", show);
  document.addEventListener("weir:age", show);
  subscribe((snapshot) => { overrides(snapshot); alerts(snapshot); announce(snapshot); });
  setInterval(countDown, 500);
  countDown();
}

function show() {
  const { state, since, word } = store.connection;
  if (connection.dataset.connection !== state) {
    connection.dataset.connection = state;
    document.body.dataset.connection = state;
  }
  const seconds = ageSeconds();
  write(connection.querySelector(".word"), word ?? sentence(state, seconds, since));
  const aged = state === "live" || state === "polling";
  write(connection.querySelector(".age"), aged && seconds !== null ? `· ${age(seconds)}` : "");
}

function sentence(state, seconds, since) {
  if (state === "silent") return `Observer silent for ${age(seconds ?? 0)}`;
  if (state === "down") return `Disconnected since ${new Date(since).toLocaleTimeString("en-GB")}`;
  return WORDS[state] ?? state;
}

function overrides(snapshot) {
  const found = snapshot.overrides ?? [], place = document.getElementById("strip-overrides");
  const nearest = Math.min(...found.map((override) => override.expires_at ?? Infinity));
  const soon = found.find((override) => override.expires_at === nearest && override.notice_at && override.notice_at <= snapshot.at);
  const signature = `${found.length} ${nearest} ${Boolean(soon)}`;
  if (!place || place.dataset.shown === signature) return;
  place.dataset.shown = signature;
  place.classList.toggle("wide", !found.length);
  place.innerHTML = found.length ? `${clockIcon()}${soon ? reverting(nearest) : counted(found.length, nearest)}` : '<span class="quiet">No overrides</span>';
  if (soon) place.querySelector("b").textContent = words(soon.name);
  countDown();
}

const counted = (count, nearest) => `<span><b>${count}</b> <span class="wide">override${count === 1 ? "" : "s"}${Number.isFinite(nearest) ? " ·" : ""}</span>${Number.isFinite(nearest) ? ` <span class="n" data-until="${nearest}"></span>` : ""}</span>`;
const reverting = (nearest) => `<span class="state bare" data-state="BUSY"><i class="glyph" aria-hidden="true"></i></span><span><span class="wide"><b></b> reverts in</span> <span class="n" data-until="${nearest}"></span></span>`;

function alerts(snapshot) {
  const found = calling(snapshot), place = document.getElementById("strip-alerts");
  const signature = `${found.length} ${found[0]?.severity}`;
  if (!place || place.dataset.shown === signature) return;
  place.dataset.shown = signature;
  place.classList.toggle("wide", !found.length);
  place.innerHTML = found.length
    ? `<span class="state bare" data-state="${SEVERITY_STATES[found[0].severity]}"><i class="glyph" aria-hidden="true"></i></span><span><b>${found.length}</b> <span class="wide">alert${found.length === 1 ? "" : "s"}</span></span>`
    : '<span class="quiet">No alerts</span>';
}

/** The clock sign out of the sprite that the page already names. */
function clockIcon() {
  const sprite = document.querySelector(".icon use")?.getAttribute("href").split("#")[0];
  return `<svg class="icon" aria-hidden="true"><use href="${sprite}#clock"></use></svg>`;
}

/** Countdowns run by the plant's clock, as far as this browser's differs from it. */
function countDown() {
  const now = plantNow();
  for (const element of document.querySelectorAll("[data-until]")) {
    write(element, countdown(Number(element.dataset.until) - now));
  }
  for (const element of document.querySelectorAll("[data-since]")) {
    write(element, age(Math.max(0, Math.floor(now - Number(element.dataset.since)))));
  }
  for (const element of document.querySelectorAll("[data-override]")) {
    const from = Date.parse(element.dataset.from) / 1000, to = Date.parse(element.dataset.to) / 1000;
    const bar = element.querySelector(".remaining i");
    if (bar) style(bar, "--share", Math.max(0, Math.min(1, (to - now) / (to - from))).toFixed(3));
  }
  const clock = document.getElementById("now");
  if (clock) write(clock, new Date(now * 1000).toLocaleString("en-GB", CLOCK));
}

/** @type {Intl.DateTimeFormatOptions} */
const CLOCK = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };

function plantNow() {
  if (isPast() && store.snapshot) return store.snapshot.at;
  const seconds = ageSeconds();
  return seconds === null || !store.snapshot ? Date.now() / 1000 : store.snapshot.at + seconds;
}

let announced = null;

/** Readers hear of a change of state, not of every number. */
function announce(snapshot) {
  const state = snapshot.health?.state;
  if (announced !== null && announced !== state) {
    write(document.getElementById("announcer"), `${STATE_WORDS[state] ?? "Unknown"}: ${snapshot.health.sentence}`);
  }
  announced = state;
}
