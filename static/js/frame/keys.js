// Keyboard shortcuts: / opens the palette, j and k select a row, Enter opens it, a acknowledges an alert, ? opens the
// help, and Esc closes a menu or the drawer.

import { kept } from "./past.js";
import { openPalette } from "./search.js";

export function start() {
  unfold();
  addEventListener("hashchange", unfold);
  const help = document.getElementById("keys");
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    const folded = event.target.closest("[data-fold]")?.closest("details");
    if (folded) fold(folded);
    const unfolded = document.getElementById(event.target.closest("[data-unfold]")?.dataset.unfold ?? "");
    if (unfolded instanceof HTMLDetailsElement) {
      event.preventDefault();
      unfolded.open = true;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, [contenteditable]") || document.querySelector("dialog[open]")) return;
    const act = /** @type {Record<string, () => void>} */ ({ "/": openPalette, j: () => step(1), k: () => step(-1), "?": () => help.showModal(), Escape: close, a: acknowledge })[event.key];
    if (event.key === "Enter" && event.target.matches("tr[data-href]")) location.assign(event.target.dataset.href ?? "");
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** Open the form that the address names, such as an action of an incident. */
function unfold() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(named instanceof HTMLDetailsElement)) return;
  named.open = true;
  named.scrollIntoView({ block: "nearest" });
}

function acknowledge() {
  document.querySelector("[data-acknowledge]:not(:disabled)")?.click();
}

function close() {
  const menu = document.querySelector("details.menu[open], details.quick-action[open]");
  if (menu) return fold(menu);
  const link = document.querySelector("a[data-close]");
  if (link) location.assign(kept(link.href));
}

/** @param {HTMLDetailsElement} details */
function fold(details) {
  details.open = false;
  details.querySelector("summary").focus();
}

/** Focus the next or previous row that can be opened, so that screen readers announce it.
 * @param {number} direction */
function step(direction) {
  const rows = [...document.querySelectorAll("tr[data-href]")].filter((row) => row.offsetParent);
  if (!rows.length) return;
  const at = document.activeElement?.closest("tr[data-href]") ?? document.querySelector("tr.at"), now = rows.findIndex((row) => row === at);
  const next = rows[now < 0 ? (direction > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, now + direction))];
  document.querySelector("tr.at")?.classList.remove("at");
  next.classList.add("at");
  next.tabIndex = -1;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}
