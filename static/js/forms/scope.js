// The bulk override form: the values that a parameter accepts, and the loops that the override applies to.
import { words } from "../values/format.js";
import { store } from "../values/store.js";

const MAX_NAMED = 4;

export function start() {
  document.querySelectorAll("form[data-scope]").forEach(show);
  document.addEventListener("input", ({ target }) => { const form = target.closest("form[data-scope]"); if (form) show(form); });
}

/** @param {HTMLFormElement} form */
function show(form) {
  const option = form.elements.name.selectedOptions[0];
  const place = form.querySelector("[data-covers]"), button = form.querySelector(".primary");
  /** @type {string[]} */
  const values = (option.dataset.choices ?? "").split(" ").filter(Boolean);
  form.querySelector("datalist")?.replaceChildren(...values.map((value) => new Option(value)));
  const law = option.closest("optgroup").dataset.law || form.elements.law.value;
  const wanted = { law, queue: form.elements.queue.value, node: form.elements.node.value };
  const help = `${option.dataset.help} The value ${option.dataset.takes}.`;
  if (!Object.values(wanted).some(Boolean)) {
    place.textContent = `${help} Choose a law, a queue, or a node.`;
    button.textContent = "Override";
    return;
  }
  const names = covered(wanted);
  place.textContent = `${help} ${names.length ? `Applies to ${listed(names)}.` : "No matching loops. Choose another law, queue, or node."}`;
  button.textContent = names.length ? `Override ${words(form.elements.name.value.split("/").pop())} on ${names.length} loop${names.length === 1 ? "" : "s"}` : "Override";
}

/** @param {{ law: string, queue: string, node: string }} options */
function covered({ law, queue, node }) {
  return Object.entries(store.snapshot?.loops ?? {})
    .filter(([, loop]) => (!law || loop.law === law) && (!queue || loop.target.queue === queue) && (!node || loop.target.node === node))
    .map(([name]) => words(name));
}

/** @param {string[]} names */
function listed(names) {
  const first = names.slice(0, MAX_NAMED).join(", ");
  return names.length > MAX_NAMED ? `${first} and ${names.length - MAX_NAMED} more` : first;
}
