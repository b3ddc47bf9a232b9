// Forms with a preview: each change requests it from the server, which applies nothing.
import { timestamp } from "../values/format.js";

const PAUSE_MILLISECONDS = 350;
/** @type {WeakMap<HTMLFormElement, number>} the number of a form's newest request: answers to older ones are outdated */
const asked = new WeakMap();

export function start() {
  for (const form of document.querySelectorAll("form[data-preview]")) {
    let timer = 0;
    const later = () => { clearTimeout(timer); timer = setTimeout(() => ask(form), PAUSE_MILLISECONDS); };
    form.addEventListener("input", later);
    form.addEventListener("change", later);
    if (form.elements.name?.value || matched(form)) ask(form);
  }
  for (const select of document.querySelectorAll("select[data-shows]")) {
    select.addEventListener("change", () => show(select));
    show(select);
  }
  document.addEventListener("click", ({ target }) => { if (target.closest("[data-print]")) print(); });
}

/** @param {HTMLFormElement} form */
const matched = (form) => [...form.elements].some((field) => field.name === "matcher-value" && field.value);

/** @param {HTMLFormElement} form */
async function ask(form) {
  const number = (asked.get(form) ?? 0) + 1;
  asked.set(form, number);
  const answer = await answered(form);
  if (asked.get(form) !== number) return;
  const place = form.querySelector("[data-preview-result]") ?? document.querySelector("[data-preview-result]");
  if (place) write(place, answer);
  form.querySelector("[data-editor]")?.dispatchEvent(new CustomEvent("weir:line", { detail: answer.line ?? null }));
  if (answer.names) form.querySelector("[data-editor]")?.dispatchEvent(new CustomEvent("weir:names", { detail: answer.names }));
}

/** @param {HTMLFormElement} form @returns {Promise<Preview>} */
async function answered(form) {
  try {
    const response = await fetch(form.dataset.preview ?? "", { method: "POST", body: new FormData(form), headers: { Accept: "application/json" } });
    if (response.ok && !response.redirected) return await response.json();
    return { sentence: `No preview: the console returned ${response.status}.`, rows: [] };
  } catch {
    return { sentence: "No preview: the console is not responding.", rows: [] };
  }
}

/** @param {HTMLElement} place @param {Preview} options */
function write(place, { sentence, rows, difference = [] }) {
  const words = Object.assign(document.createElement("p"), { textContent: sentence });
  const list = document.createElement("ul");
  list.append(...rows.map(item));
  place.replaceChildren(words, ...(rows.length ? [list] : []), ...(difference.length ? [differing(difference)] : []));
}

/** Create the block of added and removed lines, with the markup that the server also uses.
 * @param {DifferenceLine[]} lines */
function differing(lines) {
  const block = Object.assign(document.createElement("pre"), { className: "mono difference", tabIndex: 0 });
  block.setAttribute("aria-label", "Difference");
  block.append(...lines.map(({ sign, text }) => {
    const line = Object.assign(document.createElement("span"), { textContent: sign === "@" ? "…" : `${sign} ${text}` });
    line.dataset.sign = sign;
    return line;
  }));
  return block;
}

/** @param {PreviewRow} options */
function item({ title, url, at, note }) {
  const row = document.createElement("li"), name = document.createElement(url ? "a" : "span"), side = document.createElement("span");
  name.textContent = title;
  if (url) Object.assign(name, { href: url, className: "link" });
  side.className = "push";
  side.textContent = [at === undefined ? "" : timestamp(new Date(at * 1000), "date"), note].filter(Boolean).join(", ");
  row.append(name, side);
  return row;
}

/** Show only the fields of the selected choice.
 * @param {HTMLSelectElement} select */
function show(select) {
  for (const field of select.form?.querySelectorAll("[data-of]") ?? []) field.hidden = !field.dataset.of?.split(" ").includes(select.value);
}
