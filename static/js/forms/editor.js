// A text editor with line numbers, which marks the line of an error. Without scripts it is a plain text field.

import { suggest } from "./completion.js";

export function start() {
  document.querySelectorAll("[data-editor]").forEach(prepare);
}

/** @param {HTMLElement} editor */
function prepare(editor) {
  const field = editor.querySelector("textarea"), gutter = editor.querySelector(".gutter");
  const follow = () => { gutter.scrollTop = field.scrollTop; };
  field.addEventListener("input", () => number(field, gutter));
  field.addEventListener("scroll", follow);
  editor.addEventListener("weir:line", ({ detail }) => mark(editor, detail));
  suggest(editor, field);
  number(field, gutter);
  mark(editor, Number(editor.dataset.wrongLine) || null);
  if (editor.dataset.wrongLine) show(field, Number(editor.dataset.wrongLine));
}

/** @param {HTMLTextAreaElement} field @param {HTMLElement} gutter */
function number(field, gutter) {
  const count = field.value.split("\n").length;
  if (gutter.children.length === count) return;
  gutter.replaceChildren(...Array.from({ length: count }, (_, at) => Object.assign(document.createElement("span"), { textContent: String(at + 1) })));
}

/** Mark a line, or none if null. The mark is behind the text and scrolls with it.
 * @param {HTMLElement} editor @param {number | null} line */
export function mark(editor, line) {
  editor.toggleAttribute("data-wrong", line !== null);
  editor.style.setProperty("--wrong-line", String(line ?? 0));
  for (const [at, each] of [...editor.querySelectorAll(".gutter > span")].entries()) each.classList.toggle("wrong", at + 1 === line);
}

/** Scroll a line to the middle of the field.
 * @param {HTMLTextAreaElement} field @param {number} line */
function show(field, line) {
  const height = parseFloat(getComputedStyle(field).lineHeight);
  field.scrollTop = Math.max(0, (line - 1) * height - field.clientHeight / 2);
}
