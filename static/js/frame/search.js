// The command palette: pages, subjects, plans, alerts, and actions by name. Ctrl-K or / opens it, arrow keys select,
// and Enter opens the result. The server returns what the user may see (/api/v1/palette). Late answers are dropped.

import { kept } from "./past.js";

const PAUSE_MS = 120;
const field = document.getElementById("search");
const list = document.getElementById("search-results");
let chosen = 0, asked = 0, timer = 0, answered = "", goesWhenAnswered = false;

export function start() {
  if (!field) return;
  field.addEventListener("input", () => {
    goesWhenAnswered = false;
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  });
  field.addEventListener("focus", ask);
  field.addEventListener("blur", () => setTimeout(close, 150)); // a click on a result comes after the blur
  field.addEventListener("keydown", key);
  list.addEventListener("mousedown", (event) => go(event.target.closest("li")));
  document.addEventListener("keydown", open);
}

/** Open the palette on Ctrl-K or Cmd-K, even while another field has the focus.
 * @param {KeyboardEvent} event */
function open(event) {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  if (document.querySelector("dialog[open]")) return;
  event.preventDefault();
  field.focus();
  field.select();
}

const typed = () => field.value.trim().slice(0, 100);

async function ask() {
  const question = ++asked, text = typed();
  clearTimeout(timer);
  try {
    const answer = await fetch(`/api/v1/palette?${new URLSearchParams({ text })}`);
    if (!answer.ok) throw new Error(String(answer.status));
    const { results, total } = await answer.json();
    if (question !== asked || document.activeElement !== field) return;
    answered = text;
    show(results, total);
    if (goesWhenAnswered) go(options()[0]);
  } catch {
    if (question === asked && document.activeElement === field) show([], 0, "The console is not responding. Try again.");
  }
}

/** @param {PaletteResult[]} results @param {number} total */
function show(results, total, error = "") {
  chosen = 0;
  const rows = results.map(item);
  if (!rows.length) rows.push(saying(error || "No results"));
  else if (total > results.length) rows.push(saying(`${total - results.length} more results. Refine the search.`));
  list.replaceChildren(...rows);
  list.hidden = false;
  field.setAttribute("aria-expanded", "true");
  choose();
  document.getElementById("announcer").textContent = error || `${total} result${total === 1 ? "" : "s"}`;
}

/** @param {PaletteResult} options @param {number} index */
function item({ kind, label, about, url }, index) {
  const row = document.createElement("li");
  Object.assign(row, { id: `found-${index}`, role: "option" });
  row.dataset.url = url;
  const name = document.createElement("span"), what = document.createElement("span");
  name.textContent = label;
  what.textContent = about || kind;
  what.className = "kind";
  row.append(name, " ", what);
  return row;
}

/** @param {string} text */
function saying(text) {
  const row = document.createElement("li");
  Object.assign(row, { role: "option", ariaDisabled: "true", className: "kind", textContent: text });
  return row;
}

const options = () => [...list.querySelectorAll("[data-url]")];

function choose() {
  for (const [index, row] of options().entries()) row.ariaSelected = String(index === chosen);
  const row = options()[chosen];
  row?.scrollIntoView({ block: "nearest" });
  field.setAttribute("aria-activedescendant", row?.id ?? "");
}

/** @param {KeyboardEvent} event */
function key(event) {
  const count = options().length;
  if (event.key === "Escape") { field.blur(); close(); }
  else if (event.key === "Enter") enter();
  else if (count && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    chosen = (chosen + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
    choose();
  }
}

/** Open the selected result. If it belongs to an earlier text, wait for the answer to the current one. */
function enter() {
  if (!list.hidden && answered === typed()) return go(options()[chosen]);
  goesWhenAnswered = true;
  ask();
}

/** @param {HTMLElement | null | undefined} row */
function go(row) {
  if (row?.dataset.url) location.assign(kept(row.dataset.url));
}

function close() {
  goesWhenAnswered = false;
  list.hidden = true;
  field.setAttribute("aria-expanded", "false");
  field.setAttribute("aria-activedescendant", "");
}
