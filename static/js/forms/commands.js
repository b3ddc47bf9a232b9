// "Copy as command": the terminal command for a form. The form names the command, and its fields are the options.
import { copied } from "./clipboard.js";
import { toast } from "./toast.js";
import { NOT_TYPED, valuesOf } from "./sending.js";

const WOULD = "would-", BESIDE = /^(unit|was)-/;

export function start() {
  document.querySelectorAll("form[data-command]").forEach(offer);
  document.addEventListener("weir:part", ({ detail }) => detail.querySelectorAll("form[data-command]").forEach(offer));
  document.addEventListener("click", ({ target }) => { if (target.form && target.matches("[data-copy-command]")) copy(target.form); });
}

/** Add the button to a form with a row of buttons. A form with one button has no room for it.
 * @param {HTMLFormElement} form */
function offer(form) {
  const line = form.querySelector(".line-form, .buttons");
  if (!line || form.querySelector("[data-copy-command]")) return;
  const button = Object.assign(document.createElement("button"), { type: "button", className: "link plain", textContent: "Copy as command" });
  button.dataset.copyCommand = "";
  line.append(button);
}

/** @param {HTMLFormElement} form */
async function copy(form) {
  const text = commandOf(form);
  toast(await copied(text) ? `Copied: ${text}` : `The browser blocked copying. Copy this text: ${text}`);
}

/** Return the command, or one command per changed value if the form changes several values.
 * @param {HTMLFormElement} form */
function commandOf(form) {
  const values = [...valuesOf(form)].filter(([name, value]) => !NOT_TYPED.includes(name) && !BESIDE.test(name) && value !== "" && !(name === "minutes" && value === "until"));
  const would = [...form.querySelectorAll(".would:not(:disabled)")], named = would.map((field) => field.name);
  const shared = values.filter(([name]) => !named.includes(name)).map(option);
  const each = would.filter((field) => field.value !== field.dataset.is)
    .map((field) => `--name ${quoted(field.name.replace(WOULD, ""))} --value ${quoted(inLaw(field))}`);
  if (!each.length) each.push("");
  return each.map((more) => ["manage.py weir", form.dataset.command, more, ...shared].filter(Boolean).join(" ")).join("\n");
}

/** Convert a value to the unit of the law, which commands expect.
 * @param {HTMLInputElement} options */
function inLaw({ value, dataset }) {
  const factor = Number(dataset.factor ?? 1);
  return factor === 1 ? value : String(Number((Number(value) / factor).toPrecision(12)));
}

/** @param {[string, FormDataEntryValue]} options */
function option([name, value]) {
  if (name === "minutes" && value === "endless") return "--endless true";
  return `--${name} ${quoted(String(value))}`;
}

/** @param {string} text */
const quoted = (text) => (/^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
