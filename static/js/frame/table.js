// Tables: worst first, with sort order and filter in the URL. A table is not sorted again while a user points at it or
// works in it.
import { isPointed, isWorkedOn } from "../values/hand.js";
import { resolve, store, subscribe } from "../values/store.js";

/** @type {Record<string, number>} */
const STATES = { OFFLINE: 5, TOOBUSY: 4, BUSY: 3, NORMAL: 2, IDLE: 1 };
/** @type {Record<string, number>} */
const UNITS = { s: 1, min: 60, h: 3600, d: 86400 };

export function start() {
  prepare(document);
  document.addEventListener("weir:part", ({ detail }) => prepare(detail));
  document.addEventListener("input", ({ target }) => {
    if (!target.dataset?.filter) return;
    filter(target);
    writeUrl({ filter: wanted(target) });
  });
  document.addEventListener("click", open);
  addEventListener("popstate", () => prepare(document));
  subscribe(() => {
    for (const table of document.querySelectorAll("table[data-table]")) sort(table);
    for (const field of document.querySelectorAll("input[data-filter]")) {
      const table = tableOf(field);
      if (table && !isHeld(table)) filter(field);
    }
  });
}

/** @param {HTMLTableElement} table */
const isHeld = (table) => isPointed(table) || isWorkedOn(table);

/** @param {ParentNode} root */
function prepare(root) {
  for (const table of root.querySelectorAll("table[data-table]")) {
    if (!("fixed" in table.dataset)) table.querySelectorAll("thead th[data-key]:not(:has(button))").forEach((head) => addButton(table, head));
    if (!("fixed" in table.dataset)) readUrl(table);
    table.addEventListener("pointerleave", () => sort(table));
    sort(table);
  }
  for (const field of document.querySelectorAll("input[data-filter]")) {
    // The field with the focus already matches the URL, except for spaces and capitals.
    if (field !== document.activeElement) field.value = new URLSearchParams(location.search).get("filter") ?? field.value;
    filter(field);
  }
}

/** @param {HTMLTableElement} table @param {HTMLElement} head */
function addButton(table, head) {
  const button = Object.assign(document.createElement("button"), { className: "sort", type: "button", textContent: head.textContent });
  button.addEventListener("click", () => {
    const same = table.dataset.sort === head.dataset.key;
    // The first click sorts numbers in descending order and names in ascending order.
    const first = head.classList.contains("number") || head.dataset.key === "badness" ? "descending" : "ascending";
    table.dataset.order = same ? (table.dataset.order === "descending" ? "ascending" : "descending") : first;
    table.dataset.sort = head.dataset.key;
    writeUrl({ sort: head.dataset.key, order: table.dataset.order });
    sort(table, true);
  });
  head.replaceChildren(button);
}

/** @param {HTMLTableElement} table */
function readUrl(table) {
  const query = new URLSearchParams(location.search);
  const key = query.get("sort");
  if (key && table.querySelector(`th[data-key="${CSS.escape(key)}"]`)) {
    table.dataset.sort = key;
    table.dataset.order = query.get("order") === "ascending" ? "ascending" : "descending";
  }
}

/** Change the address, and offer to save it as a filter.
 * @param {Record<string, string | undefined>} changes */
export function writeUrl(changes) {
  const url = new URL(location.href);
  for (const [name, text] of Object.entries(changes)) {
    if (text) url.searchParams.set(name, text);
    else url.searchParams.delete(name);
  }
  history.replaceState(null, "", url);
  const form = /** @type {HTMLFormElement | null} */ (document.querySelector("#saved-filters > form"));
  if (!form) return;
  form.hidden = !url.search;
  /** @type {HTMLInputElement} */ (form.elements.namedItem("query")).value = url.search.slice(1);
}

/** @param {HTMLTableElement} table */
function sort(table, forced = false) {
  const key = table.dataset.sort;
  for (const head of table.querySelectorAll("thead th[data-key]")) {
    if (head.dataset.key === key) head.setAttribute("aria-sort", table.dataset.order ?? "ascending");
    else head.removeAttribute("aria-sort");
  }
  if (!key || (!forced && isHeld(table))) return;
  const body = table.tBodies[0];
  const column = [...table.querySelectorAll("thead th")].findIndex((head) => head.dataset.key === key);
  const sign = table.dataset.order === "descending" ? -1 : 1;
  const rows = [...body.rows].filter((row) => row.dataset.name !== undefined || row.querySelector("th[scope=row]"));
  const sorted = rows.map((row) => [value(row.cells[column], key), row.dataset.name ?? row.cells[0].textContent.trim(), row])
    .sort((one, other) => sign * compare(one[0], other[0]) || one[1].localeCompare(other[1])).map(([, , row]) => row);
  if (sorted.some((row, index) => row !== rows[index])) body.append(...sorted);
}

/** Return the rank of a state plus its load. A stale state ranks higher.
 * @param {HTMLElement} cell */
function badness(cell) {
  const mark = cell.querySelector(".state"), share = cell.parentElement?.querySelector(".bar")?.style.getPropertyValue("--share");
  return (STATES[mark?.dataset.state ?? ""] ?? 4.5) + Number(share || 0) * 0.9 + (mark?.hasAttribute("data-stale") ? 0.5 : 0);
}

/** Return the value of a cell for sorting: the rank of a state, a number, an age in seconds, or text.
 * @param {HTMLElement} cell @param {string} key */
function value(cell, key) {
  if (key === "badness") return badness(cell);
  // The displayed time has no date, so the timestamp is compared.
  const tick = cell.querySelector("[data-format=tick]");
  if (tick && store.snapshot) return resolve(store.snapshot, tick.dataset.bind ?? "") ?? -Infinity;
  const text = cell.textContent.trim();
  const [, number, unit] = /^(-?[\d,.]+)(?: (\S+))?$/.exec(text) ?? [];
  if (number !== undefined) return Number(number.replaceAll(",", "")) * (UNITS[unit] ?? 1);
  if (text === "—" || text === "") return waitsUnknown(cell) ? Infinity : -Infinity;
  return text.toLowerCase();
}

/** Check if an unknown wait belongs to waiting events and so sorts as the longest. Other unknown values sort lowest.
 * @param {HTMLElement} cell */
function waitsUnknown(cell) {
  const path = cell.dataset.unknown;
  return path !== undefined && path !== "" && store.snapshot !== null && resolve(store.snapshot, path) > 0;
}

/** @param {string | number} one @param {string | number} other */
function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one === other ? 0 : one - other;
  return String(one).localeCompare(String(other));
}

/** @param {HTMLInputElement} field */
const wanted = (field) => field.value.trim().toLowerCase();
/** @param {HTMLInputElement} field */
const tableOf = (field) => /** @type {HTMLTableElement | null} */ (document.getElementById(field.dataset.filter));

/** @param {HTMLInputElement} field */
function filter(field) {
  const text = wanted(field);
  for (const row of tableOf(field)?.tBodies[0].rows ?? []) {
    row.hidden = Boolean(text) && !row.textContent.toLowerCase().includes(text);
  }
}

/** Open the clicked row, unless the click is on a link or a field or selects text.
 * @param {PageEvents["click"]} event */
function open(event) {
  const row = event.target.closest("tr[data-href]");
  if (!row || event.target.closest("a, button, input, label") || String(getSelection())) return;
  location.assign(row.dataset.href ?? "");
}
