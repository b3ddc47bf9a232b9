// Elements with data-bind follow the snapshot. Only changed values are written.
import { formatted, healthWord, isFormat, timestamp, utc } from "./format.js";
import { writeSentence } from "./names.js";
import { GRACE_SECONDS, LATE_INTERVALS, VERDICT_WORDS } from "./rules.js";
import { derived } from "./derived.js";
import { resolve, subscribe } from "./store.js";

// The evaluation of a subject that the snapshot lacks: the page shows old data about it.
export const NOT_JUDGED = { sign: "", stale: true, finding: "", word: "Unknown" };

/** @type {Record<string, (element: HTMLElement, value: any, snapshot: LiveSnapshot) => void>} */
const SPECIAL = {
  text: (element, value) => write(element, value ?? "—"),
  headline: (element, value, { health }) => {
    const first = health.findings?.[0], hero = element.closest("#hero");
    writeSentence(element, value ?? "—", first);
    // The impact and the actions of another problem are hidden until they are rendered again.
    if (hero instanceof HTMLElement) hero.toggleAttribute("data-outdated", (hero.dataset.first ?? "") !== (first?.subject ?? ""));
  },
  state: (element, row) => {
    const word = healthWord(row) + (row?.stale ? ", stale" : "");
    if (element.dataset.state !== (row?.state ?? "")) element.dataset.state = row?.state ?? "";
    element.toggleAttribute("data-stale", Boolean(row?.stale));
    element.closest("tr[data-row]")?.toggleAttribute("data-stale", Boolean(row?.stale));
    write(element.querySelector(".word"), element.closest("h1") ? `${word}: ` : word);
  },
  judged: (element, row) => {
    const { sign, stale, finding, word } = { ...NOT_JUDGED, ...row };
    if (element.dataset.state !== (sign ?? "")) element.dataset.state = sign ?? "";
    element.toggleAttribute("data-stale", stale);
    element.closest("tr[data-row], li[data-worst]")?.toggleAttribute("data-stale", stale);
    if (element.title !== finding) element.title = finding;
    write(element.querySelector(".word"), word);
  },
  finding: (element, row) => {
    const said = [row?.finding, ...(row?.also ?? []).map((/** @type {SubjectFinding} */ each) => each.sentence), row?.step];
    const text = said.filter(Boolean).join(" ");
    element.hidden = !text;
    write(element, text);
  },
  bar: (element, value) => {
    const { busy, toobusy } = element.dataset;
    const passed = (/** @type {string | undefined} */ limit) => limit !== "" && value !== null && value >= Number(limit);
    const level = passed(toobusy) ? "TOOBUSY" : passed(busy) ? "BUSY" : "";
    if (element.dataset.level !== level) element.dataset.level = level;
    style(element, "--share", Math.min(value ?? 0, 1).toFixed(3));
  },
  tick: (element, value, snapshot) => {
    const interval = Number(element.dataset.interval), since = snapshot.at - value;
    const late = value !== null && since > LATE_INTERVALS * interval + GRACE_SECONDS;
    element.classList.toggle("late", late);
    write(element, late ? `${formatted(value, "clock")}, ${formatted(since - interval, "age")} late` : formatted(value, "clock"));
  },
  verdict: (element, value) => {
    const mark = element.querySelector(".verdict");
    if (!mark || mark.dataset.verdict === value) return;
    mark.dataset.verdict = value ?? "";
    if (mark.lastChild) mark.lastChild.textContent = VERDICT_WORDS[value] ?? "—";
  },
};

/** Update each bound element of a part of the page. Also called for replaced parts.
 * @param {LiveSnapshot} snapshot @param {ParentNode} root */
export function update(snapshot, root = document) {
  for (const element of root.querySelectorAll("[data-bind]")) {
    const { bind = "", format = "" } = element.dataset, value = resolve(snapshot, bind);
    if (SPECIAL[format]) SPECIAL[format](element, value, snapshot);
    else write(element, formatted(value, isFormat(format) ? format : "number"));
  }
  for (const element of root.querySelectorAll("[data-old]")) {
    element.toggleAttribute("data-stale", Boolean(resolve(snapshot, "states")?.[element.dataset.old ?? ""]?.stale));
  }
  for (const element of root.querySelectorAll("[data-derived]")) {
    derived[element.dataset.derived ?? ""]?.(element, snapshot);
  }
}

/** Convert times from UTC, as the server writes them, to the user's time zone. The tooltip shows UTC.
 * @param {ParentNode} root */
export function localise(root = document) {
  for (const element of root.querySelectorAll("time[data-time]")) {
    const date = new Date(element.dateTime);
    write(element, timestamp(date, /** @type {Parameters<typeof timestamp>[1]} */ (element.dataset.time)));
    element.title = utc(date);
  }
}

/** @param {Element | null | undefined} element @param {string | number} text */
export function write(element, text) {
  if (element && element.textContent !== String(text)) element.textContent = String(text);
}

/** @param {HTMLElement} element @param {string} name @param {string} value */
export function style(element, name, value) {
  if (element.style.getPropertyValue(name) !== String(value)) element.style.setProperty(name, value);
}

export function start() {
  localise();
  subscribe((snapshot) => update(snapshot));
}
