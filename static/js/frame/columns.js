// Columns of tables: on a phone, a row is a card whose cells have the titles of their columns; the columns of a list can
// be hidden, and the choice is in the address (hide).
import { writeUrl } from "./table.js";

const MIN_COLUMNS = 4; // a narrower table fits on a phone
// Tables with a layout of their own on phones.
const WHOLE = ".stacked, .heat, .dumbbells, .parameters, .points, .fitted, [data-plain]";

export function start() {
  prepare(document);
  document.addEventListener("weir:part", ({ detail }) => prepare(detail.closest("table")?.parentElement ?? detail));
  addEventListener("popstate", () => prepare(document));
}

/** @param {ParentNode} root */
function prepare(root) {
  for (const table of root.querySelectorAll("table:has(thead)")) {
    const heads = [...table.querySelectorAll("thead th")];
    // All columns of such a table can be sorted, by their titles.
    if (table.dataset.table === "all") for (const head of heads) head.dataset.key ??= titleOf(head).split(",")[0].toLowerCase().replaceAll(" ", "-");
    if (heads.length >= MIN_COLUMNS && !table.matches(WHOLE)) label(table, heads);
    if ("table" in table.dataset && !("fixed" in table.dataset)) choose(table, heads);
  }
}

/** @param {Element} head */
const titleOf = (head) => head.textContent.trim();

/** Give each cell the title of its column.
 * @param {HTMLTableElement} table @param {HTMLElement[]} heads */
function label(table, heads) {
  table.classList.add("cards");
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, column) => { if (heads[column] && cell.matches("td:not([colspan])")) cell.dataset.label = titleOf(heads[column]); });
  }
}

const hiddenKeys = () => new Set((new URLSearchParams(location.search).get("hide") ?? "").split(",").filter(Boolean));

/** Hide the columns that the address names, and offer the choice.
 * @param {HTMLTableElement} table @param {HTMLElement[]} heads */
function choose(table, heads) {
  apply(table, heads);
  const place = table.closest(".card")?.querySelector("header .side");
  if (!place || place.querySelector(".column-choice")) return;
  const menu = document.createElement("details"), panel = document.createElement("div");
  menu.className = "menu column-choice";
  panel.className = "panel";
  const choices = heads.slice(1).filter((head) => head.dataset.key).map((head) => {
    const choice = document.createElement("label"), box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !hiddenKeys().has(head.dataset.key ?? "") });
    box.addEventListener("change", () => {
      toggle(head.dataset.key ?? "", !box.checked);
      const shown = document.getElementById(table.id);
      if (shown) apply(shown, [...shown.querySelectorAll("thead th")]);
    });
    choice.append(box, titleOf(head));
    return choice;
  });
  panel.append(sorter(table.id, heads), ...choices);
  menu.append(Object.assign(document.createElement("summary"), { className: "button small", textContent: "Columns" }), panel);
  place.append(menu);
}

/** Return the choice of the order on a phone, where no titles of columns are.
 * @param {string} id @param {HTMLElement[]} heads */
function sorter(id, heads) {
  const choice = document.createElement("select"), chosen = heads.filter((head) => head.dataset.key);
  choice.className = "phone-only";
  choice.setAttribute("aria-label", "Sort by");
  choice.append(...chosen.map((head) => new Option(`Sort by ${titleOf(head)}`, head.dataset.key)));
  choice.addEventListener("change", () => document.getElementById(id)?.querySelector(`th[data-key="${CSS.escape(choice.value)}"] button`)?.click());
  return choice;
}

/** @param {string} key @param {boolean} isHidden */
function toggle(key, isHidden) {
  const keys = hiddenKeys();
  if (isHidden) keys.add(key);
  else keys.delete(key);
  writeUrl({ hide: [...keys].join(",") });
}

/** @param {HTMLElement} table @param {HTMLElement[]} heads */
function apply(table, heads) {
  const keys = hiddenKeys(), hidden = heads.map((head) => keys.has(head.dataset.key ?? ""));
  for (const row of table.querySelectorAll("tr")) [...row.cells].forEach((cell, column) => { cell.toggleAttribute("hidden", hidden[column] ?? false); });
}
