// Browser notifications for alerts: one per escalation step, however many pages are open. The snapshot lists the step
// until someone acts, so a page that was closed shows it later.
import { isPast } from "./past.js";
import { subscribe } from "../values/store.js";

const KEPT = "weir-announced", LOCK = "weir-announce";
const AGAIN_MILLISECONDS = 10_000; // retry delay after a failed notification
const ASKED = "Show alerts as browser notifications, even while you work in another window.";

export function start() {
  document.addEventListener("click", ({ target }) => {
    if (target.closest("[data-notify]")) allow();
    if (target.closest("[data-notify-test]")) test();
  });
  offer();
  if (isPast()) return; // past alerts need no notification
  subscribe((snapshot) => announce((snapshot.alerts ?? []).filter((alert) => alert.announce)));
}

function offer() {
  const place = document.getElementById("notify-ask");
  if (!place) return;
  const state = "Notification" in window && isSecureContext ? Notification.permission : "impossible";
  const words = /** @type {Record<string, string>} */ ({ default: ASKED, denied: "Notifications are blocked for this site. Allow them in the browser settings.", impossible: "Browser notifications require HTTPS." })[state];
  place.hidden = !words;
  place.querySelector("[data-words]").textContent = words ?? "";
  place.querySelector("[data-notify]").hidden = state !== "default";
}

async function allow() {
  await Notification.requestPermission();
  offer();
}

/** Show a test notification in the browser that requested it. */
async function test() {
  if (!("Notification" in window)) return;
  if (Notification.permission === "default") await allow();
  if (Notification.permission === "granted") await show({ id: "test", severity: "notice", title: "Receiver test", sentence: "Alerts reach this browser.", url: location.pathname });
}

/** @type {string | null} */
let pending = null;

/** Show new alerts in one page at a time, because all pages receive the same snapshot.
 * @param {AlertStatus[]} alerts */
function announce(alerts) {
  if (!alerts.length || !("Notification" in window) || Notification.permission !== "granted") return;
  const signature = alerts.map((alert) => `${alert.id}@${alert.announce}`).join();
  if (pending === signature) return;
  pending = signature;
  const showing = navigator.locks ? navigator.locks.request(LOCK, () => showNew(alerts)) : showNew(alerts);
  showing.catch(() => setTimeout(() => { pending = null; }, AGAIN_MILLISECONDS));
}

/** @param {AlertStatus[]} alerts */
async function showNew(alerts) {
  const known = read();
  for (const alert of alerts) {
    if (known[alert.id] === alert.announce) continue;
    await show(alert);
    known[alert.id] = alert.announce; // set after showing, so that a failed notification is retried
    remember(known, alerts);
  }
}

/** @param {Record<string, string | null>} known @param {AlertStatus[]} alerts */
function remember(known, alerts) {
  const open = new Set(alerts.map((alert) => String(alert.id)));
  const kept = Object.entries(known).filter(([id]) => open.has(id)).concat(Object.entries(known).slice(-50));
  localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(kept)));
}

/** @returns {Record<string, string | null>} */
function read() {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "null") ?? {};
  } catch {
    return {};
  }
}

/** @param {{ id: number | string, severity: string, title: string, sentence: string, url?: string }} alert */
async function show(alert) {
  const words = `${alert.severity[0].toUpperCase()}${alert.severity.slice(1)}: ${alert.title}`;
  const silent = document.documentElement.dataset.sound !== "on";
  const options = { body: alert.sentence, silent, tag: `weir-alert-${alert.id}`, renotify: true, requireInteraction: alert.severity === "critical", data: { url: alert.url ?? `/alerts/${alert.id}/` } };
  try {
    const note = new Notification(words, options);
    note.onclick = () => { window.focus(); location.assign(options.data.url); };
  } catch {
    // Mobile browsers show notifications only through a service worker.
    await (await worker()).showNotification(words, options);
  }
}

/** Return the service worker's registration once it is active; before that, it can't show notifications. */
async function worker() {
  const { href } = document.getElementById("notifier");
  const registration = await navigator.serviceWorker.register(href), coming = registration.installing ?? registration.waiting;
  if (registration.active || !coming) return registration;
  await new Promise((done) => coming.addEventListener("statechange", () => { if (registration.active || coming.state === "redundant") done(null); }));
  return registration;
}
