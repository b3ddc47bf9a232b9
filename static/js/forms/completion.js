// Suggests names while you write a condition in the editor of a declaration.
// Each preview returns the names. Tab inserts the first suggestion, and Escape closes the list.

const MAX_SHOWN = 8;
const WORD = /(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)?$/;

/** @typedef {{ symbols: string[], columns: string[], functions: string[] }} Names */

/** @param {HTMLElement} editor @param {HTMLTextAreaElement} field */
export function suggest(editor, field) {
  /** @type {Names} */
  let names = { symbols: [], columns: [], functions: [] };
  const list = Object.assign(document.createElement("div"), { className: "suggestions", hidden: true });
  list.setAttribute("aria-label", "Suggested names");
  list.setAttribute("role", "group");
  editor.after(list);
  const close = () => { list.hidden = true; };
  /** @param {string} text */
  const choose = (text) => { insert(field, text); close(); };
  const update = () => {
    const found = candidates(names, before(field));
    list.replaceChildren(...found.map((text) => button(text, () => choose(text))));
    list.hidden = !found.length;
  };
  editor.addEventListener("weir:names", ({ detail }) => { names = detail; });
  field.addEventListener("input", update);
  field.addEventListener("blur", ({ relatedTarget }) => { if (!list.contains(/** @type {Node | null} */ (relatedTarget))) close(); });
  field.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "Escape") close();
    if (event.key !== "Tab" || event.shiftKey) return;
    event.preventDefault();
    choose(list.firstElementChild?.textContent ?? "");
  });
}

/** The names that continue the word before the cursor: attributes after `A.`, any name otherwise.
 * @param {Names} names @param {string} text @returns {string[]} */
export function candidates({ symbols, columns, functions }, text) {
  const [, symbol, start = ""] = WORD.exec(text) ?? [];
  if (symbol !== undefined && !symbols.includes(symbol)) return [];
  if (symbol === undefined && !start) return [];
  const all = symbol === undefined ? [...columns, ...symbols, ...functions.map((name) => `${name}(`)] : columns;
  return all.filter((name) => name.startsWith(start) && name !== start).slice(0, MAX_SHOWN);
}

/** @param {HTMLTextAreaElement} field */
const before = (field) => field.value.slice(0, field.selectionStart).split("\n").at(-1) ?? "";

/** Replace the start of the word before the cursor.
 * @param {HTMLTextAreaElement} field @param {string} text */
function insert(field, text) {
  const start = WORD.exec(before(field))?.[2] ?? "";
  field.setRangeText(text, field.selectionStart - start.length, field.selectionStart, "end");
  field.focus();
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

/** @param {string} text @param {() => void} choose */
function button(text, choose) {
  const made = Object.assign(document.createElement("button"), { type: "button", className: "button", textContent: text });
  made.addEventListener("click", choose);
  return made;
}
