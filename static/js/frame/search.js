// Search over what the snapshot names, and the pages: arrows choose, Enter opens.
import { words } from "../values/format.js";
import { store } from "../values/store.js";

const MOST = 10;
const field = /** @type {HTMLInputElement} */ (document.getElementById("search"));
const list = document.getElementById("search-results");
let chosen = 0;

export function start() {
  if (!field) return;
  field.addEventListener("input", () => { chosen = 0; show(); });
  field.addEventListener("focus", show);
  field.addEventListener("blur", () => setTimeout(close, 150)); // a click on a result comes after the blur
  field.addEventListener("keydown", key);
  list.addEventListener("mousedown", (event) => go(event.target.closest("li")));
}

function candidates() {
  const { nodes = {}, queues = {}, loops = {}, plans = [], alerts = [] } = store.snapshot ?? {};
  return [
    ...Object.keys(nodes).map((name) => ["node", name, `/nodes/${name}/`]),
    ...Object.keys(queues).map((name) => ["queue", name, `/queues/${name}/`]),
    ...Object.entries(loops).map(([name, loop]) => ["loop", words(name), `/loops/${loop.id}/`]),
    ...alerts.map((alert) => ["alert", alert.title, `/alerts/${alert.id}/`]),
    ...plans.map((plan) => ["plan", plan.title, `/plans/${plan.id}/`]),
    ...[...document.querySelectorAll(".rail li a")].map((link) => ["page", link.title, link.getAttribute("href")]),
  ];
}

function show() {
  const text = field.value.trim().toLowerCase();
  const found = candidates().filter(([, name]) => name.toLowerCase().includes(text)).slice(0, MOST);
  chosen = Math.max(0, Math.min(chosen, found.length - 1));
  list.replaceChildren(...(found.length ? found.map(item) : [nothing()]));
  list.hidden = false;
  field.setAttribute("aria-expanded", "true");
  field.setAttribute("aria-activedescendant", found.length ? `found-${chosen}` : "");
}

function item([kind, name, url], index) {
  const row = document.createElement("li");
  Object.assign(row, { id: `found-${index}`, role: "option", ariaSelected: String(index === chosen) });
  row.dataset.url = url;
  const label = document.createElement("span"), about = document.createElement("span");
  label.textContent = name;
  about.textContent = kind;
  about.className = "kind";
  row.append(label, about);
  return row;
}

function nothing() {
  const row = document.createElement("li");
  Object.assign(row, { role: "option", ariaDisabled: "true", className: "kind", textContent: "Nothing is called that." });
  return row;
}

function key(event) {
  const count = list.querySelectorAll("[data-url]").length;
  if (event.key === "Escape") { field.blur(); close(); }
  else if (event.key === "Enter") go(list.querySelector('[aria-selected="true"]'));
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    chosen = count ? (chosen + (event.key === "ArrowDown" ? 1 : count - 1)) % count : 0;
    show();
  }
}

function go(row) {
  if (row?.dataset.url) location.assign(row.dataset.url);
}

function close() {
  list.hidden = true;
  field.setAttribute("aria-expanded", "false");
}
