// Forms that change the plant: current and new values, the difference in words, errors beside their fields, and undo.
import { clockOrDay, formatted, words } from "../values/format.js";
import { copied } from "./clipboard.js";
import { refreshAll } from "../values/refresh.js";
import { NOT_TYPED, newKey, send, valuesOf } from "./sending.js";
import { toast } from "./toast.js";

// The newest submission per address whose outcome is unknown. A repetition reuses its key, so it runs only once.
/** @type {Map<string, { text: string, key: string }>} */
const submissions = new Map();

export function start() {
  document.querySelectorAll("form.steer").forEach(differ);
  document.addEventListener("submit", submit);
  document.addEventListener("input", ({ target }) => { const form = target.closest("form.steer"); if (form) differ(form); });
  document.addEventListener("reset", ({ target }) => { if (target.matches("form.steer")) setTimeout(() => { clearErrors(target); prepare(target); }); });
  document.addEventListener("change", ({ target }) => { if (target.closest("form[data-selection]")) select(target); if (target.matches("[data-expiry]")) expire(target); });
  document.addEventListener("click", ({ target }) => { const button = target.closest("[data-copy], [data-copy-link]"); if (button) copy(button); });
  document.addEventListener("weir:restored", () => toast("You are logged in again. Your input was restored and has not been sent."));
  document.addEventListener("weir:part", ({ detail }) => [detail, ...detail.querySelectorAll("form")].forEach(prepare));
  document.querySelectorAll("form[data-selection]").forEach((form) => select(form));
}

/** @param {HTMLElement} part */
function prepare(part) {
  part.querySelectorAll("[data-expiry]").forEach(expire);
  if (!(part instanceof HTMLFormElement)) return;
  if (part.matches(".steer")) differ(part);
  if (part.matches("[data-selection]")) select(part);
}

// --- current and new values ---------------------------------------------------------------------------------

/** @param {Element} field */
const isChoice = (field) => field.matches("select");
/** @param {HTMLFormElement} form */
const changed = (form) => [...form.querySelectorAll(".would:not(:disabled)")]
  .filter((field) => field.value.trim() !== "" && (isChoice(field) ? field.value !== field.dataset.is : Number(field.value) !== Number(field.dataset.is)));

/** @param {HTMLFormElement} form */
function differ(form) {
  const fields = [...form.querySelectorAll(".would")];
  fields.forEach(showRange);
  const different = changed(form), place = form.querySelector("[data-difference]");
  fields.forEach((field) => field.classList.toggle("changed", different.includes(field)));
  const wrong = different.filter((field) => outside(field));
  if (place) {
    place.textContent = different.length ? different.map(sentence).join(" ") : `Change a value to preview the effect.${form.matches("[data-steer]") ? " The override ends when it expires." : ""}`;
    place.classList.toggle("grave", wrong.length > 0);
  }
  const button = form.querySelector("[data-effect]");
  if (!button) return;
  button.textContent = effect(form, different, button.dataset.effect ?? "");
  button.disabled = !different.length || wrong.length > 0;
}

/** Return the expiry as button text: for 30 min, until 14:30 (with the day if it is not today), or with no expiry.
 * @param {HTMLFormElement} form */
function ending(form) {
  const { minutes, expires_at: at } = form.elements;
  if (minutes.value === "endless") return "with no expiry";
  if (minutes.value === "until") return at.value ? `until ${clockOrDay(new Date(at.value), "minute")}` : "until…";
  return minutes.value ? `for ${minutes.selectedOptions[0].textContent.trim().replace(/^in /, "")}` : "";
}

/** Show the time field if "Custom time…" is selected.
 * @param {HTMLInputElement | HTMLSelectElement} choice */
function expire(choice) {
  const label = /** @type {HTMLFormElement} */ (choice.form).querySelector("[data-custom-expiry]"), field = label.querySelector("input");
  label.hidden = field.disabled = choice.value !== "until";
  field.required = !field.disabled;
  if (!field.disabled && !field.value) field.value = localTime(new Date(Date.now() + 3600e3));
}

/** @param {Date} instant */
const localTime = (instant) => new Date(instant.getTime() - instant.getTimezoneOffset() * 60e3).toISOString().slice(0, 16);
/** @param {HTMLElement} field */
const labelOf = (field) => words(field.dataset.name);

/** @param {HTMLFormElement} form @param {HTMLInputElement[]} different @param {string} verb */
function effect(form, different, verb) {
  if (!different.length) return verb;
  const [first] = different;
  const what = different.length === 1 ? `${labelOf(first)} to ${plain(first.value)}` : `${different.length} values`;
  return `Override ${what} ${ending(form)}`;
}

/** Format a typed value, with digit grouping if it is a plain number.
 * @param {string} text */
const plain = (text) => (Number.isFinite(Number(text)) ? formatted(Number(text)) : text);

/** @param {HTMLInputElement} field */
function sentence(field) {
  if (isChoice(field)) return `${capital(labelOf(field))} ${field.value} instead of ${field.dataset.is}${after(field)}.`;
  const was = Number(field.dataset.is), would = Number(field.value);
  if (!Number.isFinite(would)) return `${capital(labelOf(field))} must be a number.`;
  const limit = outside(field);
  if (limit) return limit;
  const share = was ? Math.abs(would - was) / Math.abs(was) : null;
  const by = share === null ? "" : ` ${formatted(share, "percent")} % ${would > was ? "higher" : "lower"}:`;
  return `${capital(labelOf(field))}${by} ${measured(would, field)} instead of ${measured(was, field)}${after(field)}.`;
}

/** Format a number with its unit. "% of capacity" is shortened to "%".
 * @param {number} value @param {HTMLElement} field */
function measured(value, field) {
  const unit = (field.dataset.unit ?? "").split(" ")[0];
  return ["%", "MiB", "s"].includes(unit) ? `${formatted(value)} ${unit}` : formatted(value);
}

/** Return the words on the end of an override. A form without data-steer requests data, so nothing takes effect.
 * @param {HTMLInputElement} field */
const after = (field) => (field.form?.matches("[data-steer]") ? " until the override ends" : "");

/** @param {string} text */
const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Return an error sentence if the value is outside its range, otherwise an empty text.
 * @param {HTMLInputElement} field */
function outside(field) {
  if (isChoice(field)) return "";
  const value = Number(field.value), low = limitOf(field, "minimum"), high = limitOf(field, "maximum");
  if (!Number.isFinite(value)) return `${capital(labelOf(field))} must be a number.`;
  if (low !== null && value < low) return `${capital(labelOf(field))} must be at least ${formatted(low)}.`;
  if (high !== null && value > high) return `${capital(labelOf(field))} must be at most ${formatted(high)}.`;
  return "";
}

/** @param {HTMLElement} field @param {"minimum" | "maximum"} name */
function limitOf(field, name) {
  const text = field.dataset[name];
  return text === undefined || text === "" || text === "None" ? null : Number(text);
}

/** @param {HTMLInputElement} field */
function showRange(field) {
  const range = field.closest("tr")?.querySelector(".range");
  const low = limitOf(field, "minimum"), high = limitOf(field, "maximum");
  if (!range || low === null || high === null || high <= low) return;
  const place = (/** @type {number} */ value) => Math.max(0, Math.min(1, position(value, low, high))).toFixed(3);
  range.querySelector(".is").style.setProperty("--at", place(Number(field.dataset.is)));
  const mark = range.querySelector(".would-be"), different = Number(field.value) !== Number(field.dataset.is);
  mark.hidden = !different || !Number.isFinite(Number(field.value));
  if (!mark.hidden) mark.style.setProperty("--at", place(Number(field.value)));
}

/** Return a value's position in its range, 0 to 1. The scale of a wide range is logarithmic: a linear scale would
 * compress its lower half to one pixel.
 * @param {number} value @param {number} low @param {number} high */
function position(value, low, high) {
  if (low < 0 && high > 0 && high - low > 100) return 0.5 + Math.sign(value) * Math.log1p(Math.abs(value)) / Math.log1p(Math.max(-low, high)) / 2;
  if (high - low > 100) return value > low ? Math.log1p(value - low) / Math.log1p(high - low) : 0;
  return (value - low) / (high - low);
}

// --- sending ----------------------------------------------------------------------------------------------

/** @param {PageEvents["submit"]} event */
async function submit(event) {
  const form = event.target;
  if (form.matches("form[data-mode-form]")) return askWhy(event);
  if (!form.matches("form[data-steer]") || event.submitter?.matches("[data-plain]")) return;
  event.preventDefault();
  if (form.dataset.sending) return; // the second click of a double click
  clearErrors(form);
  // The attribute is read because a button named "action" hides the property.
  const url = event.submitter?.getAttribute("formaction") ?? form.getAttribute("action") ?? "";
  form.dataset.sending = "true";
  const values = valuesOf(form, event.submitter), settle = showPending(event.submitter);
  const answer = await send(url, values, keyOf(url, values));
  delete form.dataset.sending;
  settle();
  if (!answer.unknown) submissions.delete(url);
  if (answer.ok) done(form, answer);
  else refuse(form, answer.errors, event.submitter);
}

/** Show at once that a button was pressed. Returns a function that ends this.
 * @param {HTMLButtonElement | null} button */
function showPending(button) {
  const dots = document.createTextNode("…");
  button?.setAttribute("aria-busy", "true");
  button?.append(dots);
  return () => { dots.remove(); button?.removeAttribute("aria-busy"); };
}

/** Return the key of a submission. Another value or button needs another key. The tokens of a form that the server
 * rendered again don't count.
 * @param {string} url @param {FormData} values */
function keyOf(url, values) {
  const said = [...values].filter(([name]) => !NOT_TYPED.includes(name))
    .map(([name, value]) => [name, value instanceof File ? [value.name, value.size, value.lastModified] : value]);
  const text = JSON.stringify(said);
  const before = submissions.get(url), key = before?.text === text ? before.key : newKey();
  submissions.set(url, { text, key });
  return key;
}

/** Names that error messages omit: no visible field has them, and the message is a whole sentence. */
const NAMELESS = new Set(["digest", "form"]);

/** @param {HTMLFormElement} form @param {Record<string, string[]>} errors @param {HTMLButtonElement | null} pressed */
function refuse(form, errors, pressed) {
  const said = document.getElementById(form.dataset.said);
  if (said) return say(said, Object.values(errors).flat().join(" "));
  for (const [name, messages] of Object.entries(errors)) {
    // A rejected button has no place for a message, so it goes to the end of the form. A button with a value needs no
    // name before the message.
    const field = [...form.elements].find((element) => element.name === name && element.type !== "submit" && element.checkVisibility());
    const beside = field?.closest("label, td, .pair, .field");
    const note = Object.assign(document.createElement("span"), { className: "error", textContent: `${beside || pressed?.value || NAMELESS.has(name) ? "" : `${words(name)}: `}${messages.join(" ")}` });
    note.setAttribute("role", "alert");
    (beside ?? form.querySelector(".line-form") ?? form).append(note);
    if (field) {
      field.setAttribute("aria-invalid", "true");
      field.focus();
    }
  }
}

/** Show an error under the page's title, for a form that has only buttons.
 * @param {HTMLElement} place @param {string} text */
function say(place, text) {
  place.textContent = text;
  place.hidden = false;
}

/** @param {HTMLFormElement} form */
function clearErrors(form) {
  const said = document.getElementById(form.dataset.said);
  if (said) said.hidden = true;
  form.querySelectorAll(".error").forEach((note) => note.remove());
  form.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
}

/** @param {HTMLFormElement} form @param {Success} answer */
function done(form, answer) {
  if (answer.go) return location.assign(answer.go);
  const offer = answer.undo;
  toast(answer.message, offer ? () => undo(offer) : null);
  form.closest("#why")?.setAttribute("hidden", "");
  form.closest("details.quick-action")?.removeAttribute("open");
  if (form.elements.reason) form.elements.reason.value = "";
  // The active values have changed: the server renders the form again once it is not in use.
  const focus = document.activeElement;
  if (focus instanceof HTMLElement && form.contains(focus)) focus.blur();
  refreshAll(form);
}

/** Undo a submission, as the server offered it.
 * @param {{ url: string, fields: Record<string, string> }} offer */
async function undo({ url, fields }) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) body.set(name, value);
  const answer = await send(url, body);
  toast(answer.ok ? answer.message : Object.values(answer.errors).flat().join(" "));
  refreshAll();
}

// --- modes: effect, reason, and expiry in one line under the title ------------------------------------------

/** @type {Record<string, string>} */
const EFFECTS = {
  auto: "Auto: the loop applies the decisions of its law.",
  advise: "Advise: the loop records its decisions but applies nothing.",
  hold: "Hold: the actuator keeps its value. The loop still records each tick.",
  manual: "Manual: the loop applies only the actuator value that you set.",
};

/** @param {PageEvents["submit"]} event */
function askWhy(event) {
  event.preventDefault();
  const line = document.getElementById("why"), form = line.querySelector("form"), mode = event.submitter?.value ?? "";
  const handedOver = mode === "hold" || mode === "manual"; // no automatic control: these modes expire by default
  form.elements.mode.value = mode;
  form.elements.minutes.querySelector('[value=""]').hidden = handedOver;
  form.elements.minutes.value = handedOver ? event.target.elements.minutes?.value ?? "30" : "";
  // The custom time of an earlier choice must not be sent with this one.
  expire(form.elements.minutes);
  form.querySelector("[data-manual]").hidden = form.elements.value.disabled = mode !== "manual";
  line.querySelector("[data-what]").textContent = EFFECTS[mode];
  nameMode(form);
  line.hidden = false;
  form.elements.reason.focus();
  form.elements.minutes.onchange = () => nameMode(form);
  line.querySelector("[data-cancel]").onclick = () => { line.hidden = true; };
}

/** @param {HTMLFormElement} form */
function nameMode(form) {
  const { mode } = form.elements;
  const verb = mode.value === "hold" ? "Hold loop" : `Set to ${mode.value}`;
  form.querySelector("[data-do]").textContent = `${verb} ${ending(form)}`.trim();
}

// --- selections: actions and number of selected rows ---------------------------------------------------------

/** @param {HTMLInputElement | HTMLFormElement} target */
function select(target) {
  const form = target.closest("form[data-selection]");
  if (!form) return;
  const boxes = [...form.querySelectorAll("[data-choice]")];
  if (target instanceof HTMLInputElement && target.matches("[data-select-all]")) boxes.forEach((box) => { box.checked = target.checked; });
  // All rows that match a filter. The checkboxes show only one page of them.
  const all = form.querySelector("[data-all]:checked");
  const count = all ? Number(all.dataset.all) : boxes.filter((box) => box.checked).length;
  for (const button of form.querySelectorAll("[data-counts]")) {
    const { counts = "" } = button.dataset, what = nounOf(form) ? `${formatted(count, "integer")} ${nounOf(form)}${count === 1 ? "" : "s"}` : boxes.find((box) => box.checked)?.value ?? "";
    button.textContent = count ? counts.replace("{}", what) : counts.replace(" {}", "");
    button.disabled = !count;
  }
}

/** @type {Record<string, string>} */
const NOUNS = { letters: "dead letter", experiments: "experiment" };

/** @param {HTMLFormElement} form */
const nounOf = (form) => NOUNS[form.dataset.selection ?? ""];

/** @param {HTMLElement} button */
async function copy(button) {
  const source = document.getElementById(button.dataset.copy), label = button.textContent;
  const text = source ? source.textContent : location.href;
  if (!await copied(text)) return toast(`The browser blocked copying. Copy this text: ${text}`);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 2000);
}
