// Parts whose rows change are rendered only by the server: when their content changes, the page is fetched again and
// only these parts are replaced. Each row has one template, and values stay live between fetches.
import { NOT_TYPED, isLogin, logIn } from "../forms/sending.js";
import { localise, update, write } from "./bind.js";
import { isPointed, isTypedIn, isWorkedOn } from "./hand.js";
import { resolve, store, subscribe } from "./store.js";

const PAUSE_SECONDS = 4, MAX_PAUSE_SECONDS = 32, OUTDATED_PAUSE_SECONDS = 0.5;
const PATIENCE_MILLISECONDS = 30_000; // a fetch that hangs would block all later ones
const WORST_SECONDS = 15, RECEIVERS_SECONDS = 5, RECORDS_SECONDS = 10;

const OURS = "– Weir"; // title suffix of the console's own pages, which a proxy's error page lacks
/** @type {Record<number, string>} */
const GONE = {
  403: "You no longer have access to this page. Ask an administrator for the required role. The last known state is shown below.",
  404: "This item no longer exists. The last known state is shown below.",
};

const FIELDS = "input[name]:not([type=file], [type=hidden]), textarea[name], select[name]";
const CHECKED = new Set(["radio", "checkbox"]);

/** @type {WeakMap<Element, string | null>} the signature of a part's content */
const signatures = new WeakMap();
let /** @type {Set<string>} */ due = new Set(), running = false, last = -Infinity;
/** @type {Set<string | null> | null} */
let asked = null; // set by a user's change until the next fetch: the actions whose forms are cleared
let refusals = 0; // consecutive failures
let connectionBefore = "";

/** Signatures by kind: texts that change when a part must be rendered again.
 * @type {Record<string, (snapshot: LiveSnapshot, argument: string) => string>} */
const SIGNATURES = {
  keys: (snapshot, path) => Object.keys(resolve(snapshot, path) ?? {}).sort().join(),
  value: (snapshot, path) => String(resolve(snapshot, path) ?? ""),
  decisions: (snapshot) => acted(snapshot).join(),
  overrides: overrideSignature,
  mode: (snapshot, loop) => overrideSignature(snapshot) + String(snapshot.loops?.[loop]?.mode),
  hands: handSignature,
  places: (snapshot) => Object.keys(snapshot.nodes).sort().join() + Object.entries(snapshot.queues)
    .map(([name, queue]) => name + Object.keys(queue.containers).sort().join()).sort().join(),
  node: (snapshot, name) => {
    const { drained, cordoned, points, state } = snapshot.nodes[name] ?? {};
    return [drained, cordoned, points, state].map(String).join();
  },
  split: (snapshot, queue) => JSON.stringify(Object.entries(snapshot.queues[queue]?.containers ?? {}).map(([node, row]) => [node, row.points]))
    + Object.values(snapshot.nodes).map((node) => [node.state === "OFFLINE", node.drained, node.cordoned]).join(),
  alerts: (snapshot) => alertSignature(snapshot),
  alert: (snapshot, id) => alertSignature(snapshot, Number(id)),
  incident: (snapshot, id) => alertSignature(snapshot, Number(id)) + findingSignature(snapshot, Number(id)) + Math.floor(snapshot.at / RECORDS_SECONDS),
  tried: (snapshot, id) => alertSignature(snapshot, Number(id)) + acted(snapshot).join(),
  receivers: (snapshot) => String(Math.floor(snapshot.at / RECEIVERS_SECONDS)),
  hero: heroSignature,
  plans: (snapshot) => (snapshot.plans ?? []).map((plan) => `${plan.id}${plan.state}`).join(),
  plan: (snapshot, id) => JSON.stringify((snapshot.plans ?? []).find((plan) => plan.id === Number(id)) ?? null),
  runs: (snapshot) => Object.entries(snapshot.runs ?? {}).map(([id, { state }]) => id + state).join(),
  run: (snapshot, id) => JSON.stringify(snapshot.runs?.[id] ?? null),
  every: (snapshot, seconds) => String(Math.floor(snapshot.at / Number(seconds))),
  starting: (snapshot) => Object.entries(snapshot.parts ?? {}).map(([name, part]) => name + part.state).sort().join(),
  never: () => "", // only after a user's change
  rules: (snapshot) => JSON.stringify(snapshot.pipeline?.rules ?? null),
  worst: (snapshot) => Object.entries(snapshot.states ?? {}).filter(([, state]) => state.kind !== "loop" || state.finding)
    .map(([key, state]) => key + state.severity + state.sign + state.stale).join() + Math.floor(snapshot.at / WORST_SECONDS),
};

/** Return the time by which the effect of an action should occur, once this time has passed. The page then offers the next action.
 * @param {HTMLElement} element @param {LiveSnapshot} snapshot */
function settled(element, snapshot) {
  const { settles } = element.dataset;
  return settles && snapshot.at >= Number(settles) ? settles : "";
}

/** The headline is rendered again for other problems or actions. A warning also shows new actions of loops and people.
 * @param {LiveSnapshot} snapshot */
function heroSignature(snapshot) {
  const findings = snapshot.health.findings ?? [], loud = ["critical", "warning"].includes(findings[0]?.severity ?? "");
  const shown = findings.map(({ subject, severity, incident, opens_at, actions = [] }) => [subject, severity, incident, opens_at, actions.map(({ words }) => words)]);
  return JSON.stringify(shown) + (loud ? alertSignature(snapshot) + Math.floor(snapshot.at / RECORDS_SECONDS) : "");
}

/** @param {LiveSnapshot} snapshot */
const acted = (snapshot) => Object.values(snapshot.loops ?? {})
  .filter((loop) => loop.verdict && loop.verdict !== "no action").map((loop) => `${loop.entry}${loop.verdict}`);

/** @param {LiveSnapshot} snapshot */
function overrideSignature(snapshot) {
  return (snapshot.overrides ?? []).map((row) => `${row.id}@${row.expires_at}`).join();
}

/** @param {LiveSnapshot} snapshot */
function handSignature(snapshot) {
  return (snapshot.hands ?? []).map((change) => `${change.key}${change.until}${change.value}${change.effect}${change.warning}`).join();
}

/** Return the signature of an alert and those under it, or of all alerts. @param {LiveSnapshot} snapshot @param {number | null} id */
function alertSignature(snapshot, id = null) {
  return (snapshot.alerts ?? []).filter((alert) => id === null || alert.id === id || alert.under === id)
    .map((alert) => [alert.id, alert.severity, alert.state, alert.quiet, alert.quiet_until, alert.under, alert.round, alert.step].join(" ")).join();
}

/** Return what a finding offers and whom it affects; its sentences are live values. @param {LiveSnapshot} snapshot @param {number} id */
function findingSignature(snapshot, id) {
  const finding = (snapshot.health.findings ?? []).find(({ incident }) => incident === id);
  return finding ? JSON.stringify([finding.affected, finding.actions]) : "";
}

export function start() {
  // A page rendered before the first snapshot shows nothing of it, so any snapshot is a change.
  if (!store.snapshot) for (const element of document.querySelectorAll("[data-refresh][id]")) signatures.set(element, null);
  subscribe(look);
  document.addEventListener("visibilitychange", () => { if (store.snapshot) look(store.snapshot); });
  setInterval(goOn, RECORDS_SECONDS * 1000);
  document.addEventListener("weir:connection", follow);
}

/** Refresh parts with records when a silence begins and ends: the server knows why no snapshot arrives. */
function follow() {
  const { state } = store.connection, before = connectionBefore;
  connectionBefore = state;
  if (state !== before && [state, before].includes("silent")) refreshRecords();
}

/** Refresh parts with records while no snapshot arrives: alerts still start and end, or are no longer evaluated. */
function goOn() {
  if (store.connection.state === "silent") refreshRecords();
}

function refreshRecords() {
  const records = document.querySelectorAll("[data-records][id]:not([data-paused])");
  records.forEach(({ id }) => due.add(id));
  if (records.length && !document.hidden) run();
}

/** Refresh all parts after a user's change. form: the form that made the change, if any.
 * @param {HTMLFormElement | null} form */
export function refreshAll(form = null) {
  for (const element of document.querySelectorAll("[data-refresh][id]")) due.add(element.id);
  asked ??= new Set();
  if (form) asked.add(form.getAttribute("action"));
  run();
}

/** @param {LiveSnapshot} snapshot */
function look(snapshot) {
  if (document.hidden) return; // fetched when the page becomes visible again
  for (const element of document.querySelectorAll("[data-refresh][id]:not([data-paused])")) {
    const [kind, path] = split(element.dataset.refresh ?? "");
    const signature = SIGNATURES[kind](snapshot, path) + settled(element, snapshot);
    // The first call gets the snapshot that the server rendered the page with.
    if (!signatures.has(element)) signatures.set(element, signature);
    else if (signatures.get(element) !== signature) {
      signatures.set(element, signature);
      due.add(element.id);
    }
  }
  const isOutdated = [...due].some((id) => document.getElementById(id)?.matches("[data-outdated]"));
  const pause = Math.min(MAX_PAUSE_SECONDS, (isOutdated ? OUTDATED_PAUSE_SECONDS : PAUSE_SECONDS) * 2 ** refusals);
  if (due.size && performance.now() - last > pause * 1000) run();
}

/** @param {string} text */
function split(text) {
  const at = text.indexOf(":");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

async function run() {
  if (running) return; // a running fetch may predate a user's change: another one follows it
  running = true;
  const ids = [...due], emptied = asked;
  due = new Set();
  asked = null;
  try {
    // A page can declare the address of its parts, because its own address may select other data by now.
    const address = document.body.dataset.parts ? document.body.dataset.parts + location.search : location.href;
    const response = await fetch(address, {
      headers: { Accept: "text/html", "X-Weir-Parts": "1" }, signal: AbortSignal.timeout(PATIENCE_MILLISECONDS),
    });
    if (isLogin(response)) return logIn();
    if (response.status >= 500 || response.status === 429) throw new Error(String(response.status));
    refusals = 0;
    if (response.redirected) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    sayGone(fresh.title.endsWith(OURS) ? GONE[response.status] : undefined);
    if (response.ok) replaceParts(ids, fresh, emptied);
  } catch {
    refusals += 1;
    ids.forEach((id) => due.add(id)); // busy or disconnected: retried with increasing pauses
  } finally {
    running = false;
    last = performance.now();
    if (asked) run();
  }
}

/** Say why the page no longer updates: its subject was removed, or the user lost access.
 * @param {string | undefined} text */
function sayGone(text) {
  const said = document.getElementById("page-gone");
  if (!text) return said?.remove();
  if (said) return write(said, text);
  const notice = Object.assign(document.createElement("p"), { id: "page-gone", className: "card notice grave", textContent: text });
  notice.setAttribute("role", "alert");
  document.getElementById("content").prepend(notice);
}

/** @param {string[]} ids @param {Document} fresh @param {Emptied} emptied */
function replaceParts(ids, fresh, emptied) {
  const isBehind = "absent" in fresh.body.dataset && store.snapshot !== null;
  // The new page has no placeholder, so this page has none of its parts: reload it.
  if (!isBehind && ids.some((id) => isInstead(id) && !fresh.getElementById(id))) return location.reload();
  for (const id of ids) {
    const old = document.getElementById(id), part = fresh.getElementById(id);
    if (!old) continue;
    if ("paused" in old.dataset) signatures.set(old, null); // refreshed when it is resumed
    else if (waits(old, part, isBehind, emptied)) due.add(id);
    else swap(old, part, emptied);
  }
}

/** Check if a part must be replaced later. A page rendered without a snapshot knows less than this one, but has
 * all records.
 * @param {HTMLElement} old @param {HTMLElement | null} part @param {boolean} isBehind @param {Emptied} emptied */
function waits(old, part, isBehind, emptied) {
  if (isBehind && !(part && (emptied || old.matches("[data-records]")))) return true;
  // The server that rendered the page may not have received the snapshot yet.
  return (isInstead(old.id) && part !== null && !emptied) || isHeld(old, emptied);
}

/** Check if a part is in use and must not be replaced. After a user's change, only a field with the focus counts. The
 * pointer doesn't hold a part with data-eager, which has no rows to click, or an outdated one, whose buttons are hidden.
 * @param {HTMLElement} part @param {Emptied} emptied */
function isHeld(part, emptied) {
  if (emptied) return isTypedIn(part);
  return isWorkedOn(part) || (isPointed(part) && !part.matches("[data-eager], [data-outdated]")) || part.querySelector("[data-choice]:checked, [data-all]:checked") !== null;
}

/** Check if a part is the placeholder of a page that can't be shown yet.
 * @param {string} id */
const isInstead = (id) => document.getElementById(id)?.matches("[data-instead]") ?? false;

/** @param {HTMLElement} old @param {HTMLElement | null} part @param {Emptied} emptied */
function swap(old, part, emptied) {
  if (!part) return old.replaceChildren();
  keepTyped(old, part, emptied);
  if (signatures.has(old)) signatures.set(part, signatures.get(old) ?? null);
  for (const { id } of old.querySelectorAll("details[open][id]")) part.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  if (old.matches("details[open]")) part.setAttribute("open", "");
  const focused = focusIn(old, part), scrolled = [old, ...old.querySelectorAll(".scroll")].map(({ scrollTop, scrollLeft }) => [scrollTop, scrollLeft]);
  old.replaceWith(part);
  [part, ...part.querySelectorAll(".scroll")].forEach((each, place) => { if (place in scrolled) [each.scrollTop, each.scrollLeft] = scrolled[place]; });
  localise(part);
  if (store.snapshot) update(store.snapshot, part);
  document.dispatchEvent(new CustomEvent("weir:part", { detail: part }));
  focused?.focus({ preventScroll: true });
}

/** Return the element of the new part that corresponds to the focused element of the old part.
 * @param {HTMLElement} old @param {HTMLElement} part @returns {HTMLElement | null} */
function focusIn(old, part) {
  const focus = document.activeElement;
  if (focus === old) return part;
  if (!old.contains(focus)) return null;
  const name = ["id", "href"].find((each) => focus?.hasAttribute(each));
  return name ? part.querySelector(`[${name}="${CSS.escape(focus?.getAttribute(name) ?? "")}"]`) : null;
}

/** @param {Field} field */
const actionOf = (field) => field.form?.getAttribute("action") ?? "";

/** Copy typed and selected values to the same fields of the new part, except in forms whose action was carried out.
 * @param {HTMLElement} old @param {HTMLElement} part @param {Emptied} emptied */
export function keepTyped(old, part, emptied) {
  const [before, fields] = [old, part].map((each) => /** @type {Field[]} */ ([...each.querySelectorAll(FIELDS)]));
  for (const field of before) {
    if (emptied?.has(actionOf(field))) continue;
    const same = sameField(field, before, fields);
    if (!same) continue;
    if (field instanceof HTMLInputElement && CHECKED.has(field.type)) {
      if (field.checked !== field.defaultChecked) /** @type {HTMLInputElement} */ (same).checked = field.checked;
    } else if (isChanged(field)) same.value = field.value;
  }
}

/** Find the same field of the new part: in the form of the same row, or the only one of its kind before and after.
 * @param {Field} field @param {Field[]} before @param {Field[]} fields */
function sameField(field, before, fields) {
  const isAlike = (/** @type {Field} */ each) => each.name === field.name && each.type === field.type && actionOf(each) === actionOf(field)
    && (!CHECKED.has(field.type) || each.value === field.value);
  const alike = fields.filter(isAlike), only = alike.length === 1 && before.filter(isAlike).length === 1;
  return alike.find((each) => rowOf(each) === rowOf(field)) ?? (only ? alike[0] : null);
}

/** Identify a field's form by its id and hidden values, because forms of several rows may share an action.
 * @param {Field} field */
function rowOf(field) {
  const unseen = [...(field.form?.querySelectorAll("input[type=hidden]") ?? [])].filter(({ name }) => !NOT_TYPED.includes(name));
  return [field.form?.id, ...unseen.map(({ name, value }) => `${name}=${value}`)].join();
}

/** @param {Field} field */
function isChanged(field) {
  if (field instanceof HTMLSelectElement) return [...field.options].some((option) => option.selected !== option.defaultSelected);
  return field.value !== field.defaultValue;
}
