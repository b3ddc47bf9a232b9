// Delivery of snapshots to the page by WebSocket, with polling as the fallback, and the age of the data.
import { logIn } from "../forms/sending.js";
import { connect, merged, replace, store } from "../values/store.js";

const POLL_SECONDS = 2, PATIENCE_MILLISECONDS = 10_000;
const FIRST_WAIT_SECONDS = 0.5, MAX_WAIT_SECONDS = 3;
const FAILURES_BEFORE_POLLING = 2;
const SILENT_AFTER_SECONDS = 3;
const DEAD_AFTER_SECONDS = 8; // the server sends a snapshot or a silence message at least every few seconds
const DELAYS = 60; // number of recent fresh snapshots to compare
const NOT_LOGGED_IN = 4401, NOT_ALLOWED = 4403, NOT_SEEN = "Not allowed";
// Close codes for too many live connections of the user or of the console. The page polls until a slot is free.
const TOO_MANY = 4429, TRY_LATER = 1013;
const CROWDED_WAIT_SECONDS = 60;

const view = document.body.dataset.view || "whole"; // part of the plant that this page shows (console/live/view.py)
let /** @type {WebSocket | null} */ socket = null, failures = 0, /** @type {number | undefined} */ polling, asked = false, crowded = false;
/** @type {number | null} */
let arrived = null; // time of the newest information on age, on the browser's monotonic clock
let ageOnArrival = 0;
let heard = 0; // time of the last message or connection attempt, on the same clock
/** @type {number | null} */
let polled = null; // sequence number of the last polled snapshot
let pollUnderWay = false;
/** @type {number[]} */
const delays = []; // of fresh snapshots: the browser's monotonic clock minus the snapshot's time

/** Return the newest snapshot's age in seconds, null if unknown. The monotonic clock that it uses can't jump. */
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
  if (store.snapshot) Object.entries({ after: store.snapshot.seq, at: store.snapshot.at }).forEach(([name, value]) => query.set(name, String(value)));
  if (window.DecompressionStream) query.set("packed", "1");
  const opened = new WebSocket(`${scheme}://${location.host}/live/?${query}`);
  opened.binaryType = "arraybuffer";
  asked = false; // a request on the previous socket gets no answer
  // Messages are chained because unpacking is asynchronous, and a delta must not overtake an earlier one.
  let before = Promise.resolve();
  opened.addEventListener("message", ({ data }) => {
    if (socket === opened) heard = performance.now();
    before = before.then(() => unpacked(data))
      .then((message) => { if (socket === opened) receive(message); }, () => opened.close()) // unreadable: reconnect
      .catch(reportError); // an error in one message must not stop the later ones
  });
  // Queued after the messages: a message that is still being unpacked would set a closed connection to live.
  opened.addEventListener("close", (event) => { before = before.then(() => { if (socket === opened) closed(event.code); }); });
  socket = opened;
  heard = performance.now();
}

/** Abandon a connection that the network dropped silently: the browser reports it as open, but no messages arrive. */
function leaveDead() {
  if (!socket || socket.readyState > WebSocket.OPEN || performance.now() - heard < DEAD_AFTER_SECONDS * 1000) return;
  const dead = socket;
  socket = null; // cleared before close(), because an unanswered close takes a while
  dead.close();
  closed();
}

/** Parse a message: JSON text, or JSON compressed in the zlib format.
 * @param {string | ArrayBuffer} data @returns {Promise<LiveMessage>} */
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
  // All pages lose their sockets at the same instant. The random factor spreads their reconnections.
  const wait = Math.min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** failures) * (0.75 + Math.random() / 2);
  setTimeout(open, wait * 1000);
}

function waitForRoom() {
  poll();
  setTimeout(open, CROWDED_WAIT_SECONDS * (0.75 + Math.random() / 2) * 1000);
}

/** @param {LiveMessage} message */
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

/** Request a whole snapshot after a gap or an observer restart, once until it arrives. */
function ask() {
  if (asked) return;
  asked = true;
  socket?.send('{"ask": "snapshot"}');
}

/** @param {LiveSnapshot} snapshot @param {number} age */
function accept(snapshot, age) {
  asked = false;
  arrived = performance.now();
  ageOnArrival = age;
  replace(snapshot);
  if (age >= SILENT_AFTER_SECONDS) connect("silent");
  else if (polling) sayPolling();
  else connect("live");
}

/** Set the age to the server's measurement of the silence, which needs no synchronized clocks.
 * @param {number} seconds */
function silent(seconds) {
  arrived = performance.now();
  ageOnArrival = seconds;
  connect("silent");
}

/** Return the age of a snapshot that may be old: relative to fresh ones, or by wall clocks if there are none yet.
 * @param {number} at */
function ageOfAny(at) {
  if (delays.length) return Math.max(0, delayOf(at) - Math.min(...delays));
  const apparent = Date.now() / 1000 - at;
  return apparent > 0 && apparent < 86400 ? apparent : 0;
}

/** Return the age of a snapshot that is sent as soon as it is made: its delay beyond the smallest recent delay. The
 * browser's wall clock is not used, so a wrong or corrected clock makes no snapshot look old.
 * @param {number} at */
function ageOfFresh(at) {
  if (store.snapshot && at < store.snapshot.at) delays.length = 0; // the plant's clock was set back
  delays.push(delayOf(at));
  if (delays.length > DELAYS) delays.shift();
  return delays[delays.length - 1] - Math.min(...delays);
}

/** @param {number} at */
const delayOf = (at) => performance.now() / 1000 - at;

async function poll() {
  if (polling) return;
  polling = setInterval(fetchOnce, POLL_SECONDS * 1000);
  fetchOnce();
}

async function fetchOnce() {
  if (pollUnderWay) return; // one request at a time; otherwise a slow console would receive more and more of them
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
    else if ((ageSeconds() ?? 0) < SILENT_AFTER_SECONDS) sayPolling();
    else connect("silent");
    polled = seq;
  } catch {
    if (polling) connect("down");
  } finally {
    pollUnderWay = false;
  }
}

/** Check if a polled snapshot is newer than the shown one, because a slow answer may be older. A restarted observer
 * counts from 1, and a plant's clock may be set back, but both at once is unlikely.
 * @param {number} seq @param {number} at */
const isNewer = (seq, at) => !store.snapshot || seq > store.snapshot.seq || at > store.snapshot.at;

/** Check if a snapshot was made since the last poll. The age of the first polled snapshot is unknown.
 * @param {number} seq */
const isFresh = (seq) => polled !== null && seq !== polled;

/** Set the connection state to polling, with the reason if too many pages are open. */
function sayPolling() {
  connect("polling", crowded ? { word: "Polling: too many open pages" } : {});
}

function stopPolling() {
  clearInterval(polling);
  polling = undefined;
  polled = null;
}

/** Report the age and any silence, because an open connection may deliver nothing. */
function watch() {
  leaveDead();
  const seconds = ageSeconds();
  if (seconds !== null && seconds >= SILENT_AFTER_SECONDS && ["live", "polling"].includes(store.connection.state)) {
    connect("silent");
  }
  document.dispatchEvent(new CustomEvent("weir:age", { detail: seconds }));
}
