// Trials of a pattern: the matches in pasted events, and why the other events don't match. The page shows texts of events as text, never as HTML.
import { timestamp, utc } from "../values/format.js";
import { isLogin, logIn } from "./sending.js";

const MAX_FILE_BYTES = 256 * 1024; // as on the server
const MIN_DATE_SECONDS = 1e8; // smaller times are seconds from 0, as in tests

export function start() {
  for (const form of document.querySelectorAll("form[data-trial]")) prepare(form);
}

/** @param {HTMLFormElement} form */
function prepare(form) {
  const section = /** @type {HTMLElement} */ (form.closest("section"));
  section.hidden = false;
  if (location.hash === `#${section.id}`) section.scrollIntoView();
  document.querySelector("[data-editor]")?.addEventListener("weir:names", ({ detail }) => list(form.elements.pattern, detail.patterns));
  form.addEventListener("submit", (event) => { event.preventDefault(); run(form); });
  form.querySelector("[data-load-newest]")?.addEventListener("click", () => loadNewest(form));
  form.querySelector("[data-load-file]")?.addEventListener("change", ({ target }) => loadFile(form, target));
}

/** Show the names of the patterns, and keep the selected one.
 * @param {HTMLSelectElement} select @param {string[]} patterns */
function list(select, patterns) {
  if (patterns.join() === [...select.options].map((option) => option.value).join()) return;
  const selected = select.value;
  select.replaceChildren(...patterns.map((name) => new Option(name, name, false, name === selected)));
}

/** @param {HTMLFormElement} form */
const result = (form) => /** @type {HTMLElement} */ (form.querySelector("[data-trial-result]"));

/** Return the values of the form, with the text in the editor.
 * @param {HTMLFormElement} form */
function valuesWithText(form) {
  const values = new FormData(form);
  values.set("text", document.querySelector("[data-editor] textarea")?.value ?? "");
  return values;
}

/** @param {HTMLFormElement} form */
async function run(form) {
  const trial = await answered(form, form.action);
  if (trial) show(form, [element("p", trial.sentence), ...notes(trial), ...matches(trial.matches ?? []), ...events(trial.events ?? [])]);
}

/** @param {HTMLFormElement} form */
async function loadNewest(form) {
  const newest = await answered(form, form.dataset.newestEvents ?? "");
  if (!newest) return;
  if (newest.events) form.elements.events.value = newest.events;
  show(form, [element("p", newest.sentence), ...notes(newest)]);
}

/** @param {HTMLFormElement} form @param {HTMLInputElement} field */
async function loadFile(form, field) {
  const file = field.files?.[0];
  if (!file) return;
  if (file.size > MAX_FILE_BYTES) return fail(form, { file: [`must have at most ${MAX_FILE_BYTES / 1024} KiB, not ${Math.round(file.size / 1024)} KiB`] });
  form.elements.events.value = await file.text();
  show(form, [element("p", `Loaded ${file.name}.`)]);
}

/** Return the answer of the console, or show its errors.
 * @param {HTMLFormElement} form @param {string} url @returns {Promise<any>} */
async function answered(form, url) {
  const buttons = form.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  const answer = await request(url, valuesWithText(form));
  for (const button of buttons) button.disabled = false;
  if (!answer.errors) return answer;
  fail(form, answer.errors);
  return null;
}

/** A trial changes nothing, so it needs no idempotency key.
 * @param {string} url @param {FormData} body @returns {Promise<any>} */
async function request(url, body) {
  try {
    const response = await fetch(url, { method: "POST", body, headers: { Accept: "application/json" } });
    if (isLogin(response)) return logIn();
    const answer = await response.json().catch(() => ({}));
    return response.ok || answer.errors ? answer : { errors: { form: [`The console returned ${response.status}.`] } };
  } catch {
    return { errors: { form: ["The console is not responding."] } };
  }
}

/** @param {HTMLFormElement} form @param {Record<string, string[]>} errors */
function fail(form, errors) {
  show(form, Object.entries(errors).map(([field, texts]) => element("p", `${field === "form" ? "" : `${field}: `}${texts.join(" ")}`, "grave")));
}

/** @param {HTMLFormElement} form @param {HTMLElement[]} parts */
const show = (form, parts) => result(form).replaceChildren(...parts);

/** @param {{ notes?: string[] }} trial */
const notes = (trial) => (trial.notes ?? []).map((note) => element("p", note, "muted"));

/** @param {TrialMatch[]} found */
function matches(found) {
  if (!found.length) return [];
  return [element("h3", "Matches"), listing(found.map((match) => {
    const head = element("p", `Match ${match.number}: ${match.events.join(", ")}${match.suppressed ? " (suppressed)" : ""}`);
    const measures = match.measures.map(({ name, value }) => element("li", `${name}: ${value}`));
    const conditions = match.conditions.map((text) => wrap("li", element("code", text)));
    return [head, reasons([...conditions, ...measures])];
  }))];
}

/** @param {TriedEvent[]} tried */
function events(tried) {
  if (!tried.length) return [];
  return [element("h3", "Events"), listing(tried.map((event) => {
    const key = event.key === null ? [] : [element("span", event.key, "muted")];
    const outcome = event.match === null ? element("span", "No match", "push muted") : element("strong", `Match ${event.match}${event.symbol ? `: ${event.symbol}` : ""}`, "push");
    const line = element("p", "", "line");
    line.append(element("span", event.id, "mono"), moment(event.time), element("span", event.type ?? "—"), ...key, outcome);
    return [line, reasons(event.reasons.map((text) => element("li", text)))];
  }))];
}

/** Show a time as a date, or in seconds if it starts at 0.
 * @param {number} seconds */
function moment(seconds) {
  if (seconds < MIN_DATE_SECONDS) return element("span", `${seconds} s`, "n");
  const date = new Date(seconds * 1000), shown = element("time", timestamp(date, "date"), "n");
  shown.title = utc(date);
  return shown;
}

/** @param {HTMLElement[][]} rows */
function listing(rows) {
  const made = element("ol", "", "trial-rows");
  made.append(...rows.map((parts) => wrap("li", ...parts)));
  return made;
}

/** @param {HTMLElement[]} items */
const reasons = (items) => wrap("ul", ...items);

/** @param {string} name @param {HTMLElement[]} parts */
function wrap(name, ...parts) {
  const made = document.createElement(name);
  made.append(...parts);
  made.hidden = !parts.length;
  return made;
}

/** @param {string} name @param {string} text @param {string} [className] */
function element(name, text, className = "") {
  return Object.assign(document.createElement(name), { textContent: text, className });
}
