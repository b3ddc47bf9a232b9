// The status strip: open incidents and their age, manual changes with the next end, connection state and data age.
import { localise, style, write } from "../values/bind.js";
import { calling } from "../values/derived.js";
import { age, clockOrDay, countdown, healthWord, words } from "../values/format.js";
import { SEVERITY_STATES } from "../values/rules.js";
import { ageSeconds } from "./live.js";
import { isPast } from "./past.js";
import { store, subscribe } from "../values/store.js";

/** @type {Record<string, string>} */
const WORDS = { live: "Live", polling: "Polling", silent: "Stale", down: "Offline" };
/** @type {Record<string, string>} states in which the page shows old data */
const OLD = { silent: "Observer not responding", down: "Disconnected" };
const ASK_SECONDS = 5; // between two requests for the open alerts, while the observer is not responding
const AGED = ["live", "polling", "silent", "down"]; // states whose slot shows the age of the data
const connection = /** @type {HTMLElement} */ (document.getElementById("connection"));
const title = document.title;

export function start() {
  if (!connection) return;
  document.addEventListener("weir:connection", show);
  document.addEventListener("weir:age", show);
  subscribe((snapshot) => { manualChanges(snapshot); plannedWindow(snapshot); incidents(calling(snapshot)); announce(snapshot); countInTitle(snapshot); });
  setInterval(countDown, 500);
  countDown();
}

/** Show the number of unacknowledged alerts in the title of the browser tab.
 * @param {LiveSnapshot} snapshot */
function countInTitle(snapshot) {
  if (isPast()) return;
  const count = calling(snapshot).filter((alert) => alert.quiet == null).length;
  const shown = count ? `(${count}) ${title}` : title;
  if (document.title !== shown) document.title = shown;
}

function show() {
  const { state, since, word } = store.connection;
  const seconds = ageSeconds(), before = connection.dataset.connection ?? "";
  if (before !== state) {
    connection.dataset.connection = state;
    document.body.dataset.connection = state;
    if (state in OLD || before in OLD) say(state in OLD ? `${word ?? OLD[state]}. ${asOf()}` : WORDS[state]);
  }
  // Keep the server's text until the first message arrives. It says whether the plant is starting or unreachable, and
  // gives the time of the page.
  if (state !== "starting") {
    write(connection.querySelector(".word"), WORDS[state] ?? state);
    write(connection.querySelector(".age"), AGED.includes(state) && seconds !== null ? age(seconds) : "");
  }
  connection.title = word ?? "";
  showBar(state, seconds, since, word);
  if (store.snapshot) showTime(store.snapshot, state in OLD);
}

/** Say the snapshot's time in the headline while the data is old. The next snapshot overwrites it.
 * @param {LiveSnapshot} snapshot @param {boolean} old */
function showTime(snapshot, old) {
  if (!old) return;
  askForIncidents(snapshot);
  const { at, health } = snapshot, time = clockOrDay(new Date(at * 1000));
  for (const element of document.querySelectorAll('[data-bind="health.sentence"]')) {
    write(element, `At ${time}: ${health.sentence}`);
  }
  for (const element of document.querySelectorAll('[data-bind="health"]')) element.toggleAttribute("data-stale", true);
}

/** Show a bar with the start of the outage and the time of the data, unless the page has a notice with the cause
 * (templates/frame/outage.html). Its age changes constantly, so screen readers get only the change of state, from the
 * announcer.
 * @param {string} state @param {number | null} seconds @param {number} since @param {string | undefined} word */
function showBar(state, seconds, since, word) {
  const bar = document.getElementById("disconnected"), old = state in OLD;
  if (!bar || !store.snapshot) return; // the server's text says why there is none
  bar.hidden = !old || (state === "silent" && document.querySelector("#frame-outage h2") !== null);
  if (old) write(bar, `${word ?? sentence(state, seconds, since)}. ${asOf()}`);
}

function asOf() {
  if (!store.snapshot) return "No data yet.";
  return `The plant is shown as of ${clockOrDay(new Date(store.snapshot.at * 1000))}.`;
}

/** @param {string} state @param {number | null} seconds @param {number} since */
function sentence(state, seconds, since) {
  if (state === "silent") return `${OLD.silent} for ${age(seconds ?? 0)}`;
  return `${OLD.down} since ${clockOrDay(new Date(since))}`;
}

/** @param {LiveSnapshot} snapshot */
function manualChanges(snapshot) {
  const changes = snapshot.hands ?? [], place = document.getElementById("strip-overrides");
  const nearest = Math.min(...changes.map((change) => change.until ?? Infinity)), count = changes.length;
  const soon = (snapshot.overrides ?? []).find((override) => override.expires_at === nearest && override.notice_at && override.notice_at <= snapshot.at);
  const signature = `${count} ${nearest} ${soon?.name}`;
  if (!place || place.dataset.shown === signature) return;
  place.dataset.shown = signature;
  place.title = soon ? `The override of ${words(soon.name)} ends soon` : "";
  place.toggleAttribute("data-soon", Boolean(soon));
  const later = Number.isFinite(nearest) ? ` <span class="later"><span class="wide">next ends</span> <span class="n" data-until="${nearest}"></span></span>` : "";
  place.innerHTML = `${icon("clock")}<span><b>${count}</b> <span class="wide">manual change${count === 1 ? "" : "s"}</span></span>${later}`;
  countDown();
}

/** @type {Record<string, string>} */
const WINDOW_KINDS = { maintenance: "Maintenance", freeze: "Change freeze" };

/** Show the planned window that is active, or begins within an hour. The snapshot has active windows first.
 * @param {LiveSnapshot} snapshot */
function plannedWindow(snapshot) {
  const place = document.getElementById("strip-window"), rows = (snapshot.windows ?? []).filter((row) => row.kind in WINDOW_KINDS);
  const row = rows.find((each) => each.active) ?? rows.sort((one, other) => one.starts_at - other.starts_at)[0];
  const signature = row ? `${row.id} ${row.active} ${row.starts_at} ${row.ends_at}` : "";
  if (!place || place.dataset.shown === signature) return;
  place.dataset.shown = signature;
  place.hidden = !row;
  if (!row) return place.replaceChildren();
  place.setAttribute("href", `/windows/${row.id}/`);
  place.title = `${WINDOW_KINDS[row.kind]} ${row.name}`;
  const when = row.active ? `until ${timeTag(row.ends_at)}` : `<span class="wide">begins</span> in <span class="n" data-until="${row.starts_at}"></span>`;
  place.innerHTML = `${icon("calendar")}<span class="wide title-words"></span> <span>${when}</span>`;
  write(place.querySelector(".title-words"), place.title);
  localise(place);
  countDown();
}

/** @param {number} seconds */
const timeTag = (seconds) => `<time datetime="${new Date(seconds * 1000).toISOString()}" data-time="minute"></time>`;

/** Show the open incidents: the alerts that no other alert explains. null: they are unknown.
 * @param {AlertStatus[] | null} open */
function incidents(open) {
  const place = document.getElementById("strip-incidents"), { state, word, url, since } = describeIncidents(open);
  const signature = `${word} ${state} ${since}`;
  if (!place || place.dataset.shown === signature) return;
  place.dataset.shown = signature;
  const ticking = Number.isFinite(since) ? ` <span class="age"><span class="n" data-ticking="${since}"></span></span>` : "";
  place.innerHTML = `<span class="state" data-state="${state}"><i class="glyph" aria-hidden="true"></i><span class="word">${word}</span></span>${ticking}`;
  place.setAttribute("href", url);
  countDown();
}

/** @param {AlertStatus[] | null} open */
function describeIncidents(open) {
  if (!open) return { state: "OFFLINE", word: "Incidents unknown", url: "/alerts/", since: Infinity };
  if (!open.length) return { state: "NORMAL", word: "No incident", url: "/alerts/", since: Infinity };
  const [{ id, severity }] = open, since = Math.min(...open.map((alert) => alert.since ?? Infinity)), state = SEVERITY_STATES[severity];
  if (open.length === 1) return { state, word: `Incident ${id}`, url: `/alerts/${id}/`, since };
  return { state, word: `${open.length} incidents`, url: "/alerts/", since };
}

let asking = -Infinity;

/** Ask the console for the open alerts while the snapshot is old: the alerter does not need the observer.
 * @param {LiveSnapshot} snapshot */
async function askForIncidents(snapshot) {
  if (performance.now() - asking < ASK_SECONDS * 1000) return;
  asking = performance.now();
  try {
    const answer = await fetch("/api/v1/alerts?state=open");
    if (!answer.ok) throw new Error(String(answer.status));
    const open = calling({ ...snapshot, alerts: (await answer.json()).alerts.reverse() });
    if (store.connection.state in OLD) incidents(open.length ? open : null); // another may start without a report
  } catch {
    const known = calling(snapshot);
    if (store.connection.state in OLD) incidents(known.length ? known : null);
  }
}

/** Return an icon of the sprite that the page already uses.
 * @param {string} name */
function icon(name) {
  const sprite = document.querySelector(".icon use")?.getAttribute("href")?.split("#")[0];
  return `<svg class="icon" aria-hidden="true"><use href="${sprite}#${name}"></use></svg>`;
}

/** Update countdowns by the plant's clock, which can differ from the browser's. */
function countDown() {
  const now = plantNow();
  for (const element of document.querySelectorAll("[data-until]")) {
    write(element, countdown(Number(element.dataset.until) - now));
  }
  for (const element of document.querySelectorAll("[data-since]")) {
    write(element, age(Math.max(0, Math.floor(now - Number(element.dataset.since)))));
  }
  for (const element of document.querySelectorAll("[data-ticking]")) {
    write(element, countdown(Math.floor(now - Number(element.dataset.ticking))));
  }
  for (const element of document.querySelectorAll("[data-override]")) {
    const from = Date.parse(element.dataset.from ?? "") / 1000, to = Date.parse(element.dataset.to ?? "") / 1000;
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

/** @type {string | null} */
let announced = null;

/** Announce each new headline to screen readers, with its own words, but not each changed number.
 * @param {LiveSnapshot} snapshot */
function announce({ health }) {
  const text = `${healthWord(health)}: ${health.sentence}`, subject = health.findings?.[0]?.subject ?? "";
  const signature = `${subject} ${text.replace(/\d[\d.,]*/g, "")}`;
  if (announced !== null && announced !== signature) say(text);
  announced = signature;
}

/** @param {string} text */
const say = (text) => write(document.getElementById("announcer"), text);
