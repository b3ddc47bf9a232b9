// The way of the snapshot into the page: websocket first, and a visible fallback to polling. Honest about age.
import { logIn } from "../forms/sending.js";
import { connect, merged, replace, store } from "../values/store.js";

const POLL_SECONDS = 2, PATIENCE_MILLISECONDS = 10_000;
const FIRST_WAIT_SECONDS = 0.5, MAX_WAIT_SECONDS = 3;
const FAILURES_BEFORE_POLLING = 2;
const SILENT_AFTER_SECONDS = 3;
const DEAD_AFTER_SECONDS = 8; // a console that lives sends something each few seconds: if nothing else, that nothing came
const DELAYS = 60; // as many of the newest fresh snapshots are compared
const NOT_LOGGED_IN = 4401, NOT_ALLOWED = 4403, NOT_SEEN = "Not allowed";
// All live connections of this person, or of the console, are taken: polling shows the same, and another may end.
const TOO_MANY = 4429, TRY_LATER = 1013;
const CROWDED_WAIT_SECONDS = 60;

const view = document.body.dataset.view || "whole"; // what this page shows of the plant (console/live/view.py)
let socket = null, failures = 0, polling = null, asked = false, crowded = false;
let arrived = null; // when the newest word on age came, on the browser's own monotonic clock
let ageOnArrival = 0;
let heard = 0; // when anything at all came over the socket, on the same clock
let polled = null; // the number of the snapshot that the last poll brought
let pollUnderWay = false;
const delays = []; // of fresh snapshots: this browser's monotonic clock less the plant's

/** Seconds since the newest snapshot was made: its age on arrival, then by a clock that can't jump; null: unknown. */
export function ageSeconds() {
  return arrived === null ? null : ageOnArrival + (performance.now() - arrived) / 1000;
}

export function start() {
  open();
  setInterval(watch, 250);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) reopen(); });
  addEventListener("online", reopen);
}

function reopen() {
  leaveDead();
  open();
}

function open() {
  if (socket && socket.readyState <= WebSocket.OPEN) return;
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const query = new URLSearchParams({ of: view });
  if (store.snapshot) Object.entries({ after: store.snapshot.seq, at: store.snapshot.at }).forEach(([name, value]) => query.set(name, value));
  if (window.DecompressionStream) query.set("packed", "1");
  const opened = new WebSocket(`${scheme}://${location.host}/live/?${query}`);
  opened.binaryType = "arraybuffer";
  asked = false; // what was asked of the socket before, nobody answers any more
  // One after the other: unpacking takes its time, and no delta may overtake another.
  let before = Promise.resolve();
  opened.addEventListener("message", ({ data }) => {
    if (socket === opened) heard = performance.now();
    before = before.then(() => unpacked(data))
      .then((message) => { if (socket === opened) receive(message); }, () => opened.close()) // unreadable: begin anew
      .catch(reportError); // a fault of one message's must not silence those after it
  });
  // After what came before it, or a message still being unpacked would call a closed connection live.
  opened.addEventListener("close", (event) => { before = before.then(() => { if (socket === opened) closed(event.code); }); });
  socket = opened;
  heard = performance.now();
}

/** A network may drop a connection unsaid: the browser calls it open, and nothing comes any more. */
function leaveDead() {
  if (!socket || socket.readyState > WebSocket.OPEN || performance.now() - heard < DEAD_AFTER_SECONDS * 1000) return;
  const dead = socket;
  socket = null; // first, for its end takes a while when nobody answers it
  dead.close();
  closed();
}

/** A message as it was meant: text, or packed in zlib's format. */
async function unpacked(data) {
  if (typeof data === "string") return JSON.parse(data);
  return new Response(new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

function closed(code = 0) {
  if (code === NOT_LOGGED_IN) return logIn();
  if (code === NOT_ALLOWED) return connect("down", { word: NOT_SEEN });
  crowded = code === TOO_MANY || code === TRY_LATER;
  if (crowded) return waitForRoom();
  failures += 1;
  if (!polling) connect("down");
  if (failures >= FAILURES_BEFORE_POLLING) poll();
  // Every page of a plant loses its socket at the same instant: a random part keeps them from returning as one.
  const wait = Math.min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** failures) * (0.75 + Math.random() / 2);
  setTimeout(open, wait * 1000);
}

function waitForRoom() {
  poll();
  setTimeout(open, CROWDED_WAIT_SECONDS * (0.75 + Math.random() / 2) * 1000);
}

function receive(message) {
  failures = 0;
  crowded = false;
  stopPolling();
  if (message.silent_seconds !== undefined) return silent(message.silent_seconds);
  if (message.snapshot) accept(message.snapshot, ageOfAny(message.snapshot.at));
  else if (message.delta && store.snapshot && message.seq === store.snapshot.seq + 1) {
    const snapshot = { ...merged(store.snapshot, message.delta), seq: message.seq, at: message.at };
    accept(snapshot, ageOfFresh(snapshot.at));
  } else if (message.delta && (!store.snapshot || message.at > store.snapshot.at)) ask();
}

/** A gap, or an observer that counts anew: what came between is unknown, so ask for the whole, once until it comes. */
function ask() {
  if (asked) return;
  asked = true;
  socket.send('{"ask": "snapshot"}');
}

function accept(snapshot, age) {
  asked = false;
  arrived = performance.now();
  ageOnArrival = age;
  replace(snapshot);
  if (age >= SILENT_AFTER_SECONDS) connect("silent");
  else if (polling) sayPolling();
  else connect("live");
}

/** The server measured the silence itself; its word needs no agreement of clocks. */
function silent(seconds) {
  arrived = performance.now();
  ageOnArrival = seconds;
  connect("silent");
}

/** The age of a snapshot that may be old: against fresh ones, or by both wall clocks as long as none has come. */
function ageOfAny(at) {
  if (delays.length) return Math.max(0, delayOf(at) - Math.min(...delays));
  const apparent = Date.now() / 1000 - at;
  return apparent > 0 && apparent < 86400 ? apparent : 0;
}

/** The age of one that is sent as soon as it is made: by how much it is later than the quickest of the last minute. This
 * browser's wall clock is not asked, so one that is wrong, or put right, makes nothing old. */
function ageOfFresh(at) {
  if (store.snapshot && at < store.snapshot.at) delays.length = 0; // the plant's clock was put back
  delays.push(delayOf(at));
  if (delays.length > DELAYS) delays.shift();
  return delays.at(-1) - Math.min(...delays);
}

const delayOf = (at) => performance.now() / 1000 - at;

async function poll() {
  if (polling) return;
  polling = setInterval(fetchOnce, POLL_SECONDS * 1000);
  fetchOnce();
}

async function fetchOnce() {
  if (pollUnderWay) return; // one at a time, or a slow console would get ever more of them
  pollUnderWay = true;
  try {
    const headers = { Accept: "application/json" }, signal = AbortSignal.timeout(PATIENCE_MILLISECONDS);
    const response = await fetch(`/api/v1/live?of=${encodeURIComponent(view)}`, { headers, signal });
    if (response.status === 401) return logIn();
    if (response.status === 403) return connect("down", { word: NOT_SEEN });
    if (!response.ok) throw new Error(String(response.status));
    const { seq, snapshot } = await response.json();
    if (!polling) return;
    if (arrived === null || isNewer(seq, snapshot.at)) accept(snapshot, isFresh(seq) ? ageOfFresh(snapshot.at) : ageOfAny(snapshot.at));
    else if (ageSeconds() < SILENT_AFTER_SECONDS) sayPolling();
    else connect("silent");
    polled = seq;
  } catch {
    if (polling) connect("down");
  } finally {
    pollUnderWay = false;
  }
}

/** An answer that was long on its way may be older than what is shown. An observer that starts anew counts from 1, and a
 * plant's clock may be put back, but hardly both at once. */
const isNewer = (seq, at) => !store.snapshot || seq > store.snapshot.seq || at > store.snapshot.at;

/** Made since the last poll, so young; of the first nobody knows how long it has been there. */
const isFresh = (seq) => polled !== null && seq !== polled;

/** Every few seconds instead of each second; when too many pages are open, that is said, and nothing is wrong. */
function sayPolling() {
  connect("polling", crowded ? { word: "Polling: too many open pages" } : {});
}

function stopPolling() {
  clearInterval(polling);
  polling = polled = null;
}

/** A connection may be open and nothing come: silence is said whatever the reason. */
function watch() {
  leaveDead();
  const seconds = ageSeconds();
  if (seconds !== null && seconds >= SILENT_AFTER_SECONDS && ["live", "polling"].includes(store.connection.state)) {
    connect("silent");
  }
  document.dispatchEvent(new CustomEvent("weir:age", { detail: seconds }));
}
