// The palette: pages, subjects, plans, alerts, and actions by name. Ctrl-K, /, or a button opens it, arrow keys select,
// and Enter opens the result. The server returns what the user may see (/api/v1/palette). Late answers are dropped.

import { kept } from "./past.js";

const PAUSE_MS = 120;
/** @type {Record<string, string>} icons of kinds; those without one have the icon of a page */
const ICONS = { suggestion: "bolt", action: "bolt", alert: "alerts", plan: "plans", node: "nodes", queue: "queues", loop: "loops", application: "pipeline", "worker host": "workers", plant: "overview", task: "tasks", help: "help" };
const palette = document.getElementById("palette");
const field = document.getElementById("search");
const list = document.getElementById("search-results");
let chosen = 0, asked = 0, timer = 0, answered = "", goesWhenAnswered = false;

export function start() {
  if (!palette) return;
  field.addEventListener("input", () => {
    goesWhenAnswered = false;
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  });
  field.addEventListener("keydown", key);
  list.addEventListener("click", (event) => go(event.target.closest("li")));
  palette.addEventListener("click", ({ target }) => { if (target === /** @type {EventTarget} */ (palette)) palette.close(); }); // its backdrop
  palette.addEventListener("close", () => { goesWhenAnswered = false; field.setAttribute("aria-expanded", "false"); });
  document.addEventListener("keydown", openByKey);
  document.addEventListener("click", ({ target }) => { if (target.closest("[data-palette]")) openPalette(); });
}

/** Open the palette on Ctrl-K or Cmd-K, even while another field has the focus.
 * @param {KeyboardEvent} event */
function openByKey(event) {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  if (document.querySelector("dialog[open]")) return;
  event.preventDefault();
  openPalette();
}

export function openPalette() {
  palette.showModal();
  field.focus();
  field.select();
  ask();
}

const typed = () => field.value.trim().slice(0, 100);

async function ask() {
  const question = ++asked, text = typed();
  clearTimeout(timer);
  try {
    const answer = await fetch(`/api/v1/palette?${new URLSearchParams({ text })}`);
    if (!answer.ok) throw new Error(String(answer.status));
    const { results, total } = await answer.json();
    if (question !== asked || !palette.open) return;
    answered = text;
    show(results, total);
    if (goesWhenAnswered) go(options()[0]);
  } catch {
    if (question === asked && palette.open) show([], 0, "The console is not responding. Try again.");
  }
}

/** @param {PaletteResult[]} results @param {number} total */
function show(results, total, error = "") {
  chosen = 0;
  const rows = results.flatMap((result, index) => {
    const heads = result.group !== results[index - 1]?.group;
    return heads ? [heading(result.group), item(result, index)] : [item(result, index)];
  });
  if (!rows.length) rows.push(saying(error || "No results"));
  else if (total > results.length) rows.push(saying(`${total - results.length} more results. Refine the search.`));
  list.replaceChildren(...rows);
  field.setAttribute("aria-expanded", "true");
  choose();
  document.getElementById("announcer").textContent = error || `${total} result${total === 1 ? "" : "s"}`;
}

/** @param {PaletteResult} options @param {number} index */
function item({ kind, label, about, url, icon, narrow }, index) {
  const row = document.createElement("li");
  Object.assign(row, { id: `found-${index}`, role: "option" });
  Object.assign(row.dataset, { url, narrow });
  const name = document.createElement("span"), what = document.createElement("span");
  name.textContent = label;
  what.textContent = about || (kind === "action" || kind === "page" ? "" : kind);
  what.className = "kind";
  row.append(sign(icon || ICONS[kind] || "forward"), name, " ", what);
  return row;
}

/** @param {string} name */
function sign(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `${document.querySelector(".icon use")?.getAttribute("href")?.split("#")[0]}#${name}`);
  svg.append(use);
  return svg;
}

/** @param {string} text */
function heading(text) {
  return Object.assign(document.createElement("li"), { role: "presentation", textContent: text });
}

/** @param {string} text */
function saying(text) {
  const row = document.createElement("li");
  Object.assign(row, { role: "option", ariaDisabled: "true", className: "saying", textContent: text });
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
  if (event.key === "Enter") enter();
  else if (count && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    chosen = (chosen + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
    choose();
  }
}

/** Open the selected result. If it belongs to an earlier text, wait for the answer to the current one. */
function enter() {
  if (answered === typed()) return go(options()[chosen]);
  goesWhenAnswered = true;
  ask();
}

/** Open a result, or list what a job can be done to.
 * @param {HTMLElement | null | undefined} row */
function go(row) {
  if (!row?.dataset.url) return;
  goesWhenAnswered = false;
  if (!row.dataset.narrow) return location.assign(kept(row.dataset.url));
  field.value = `${row.dataset.narrow} `;
  field.focus();
  ask();
}
