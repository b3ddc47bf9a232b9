// A text in lines: their numbers beside it, and the line of what is wrong marked. Without scripts it is a plain field.

export function start() {
  document.querySelectorAll("[data-editor]").forEach(prepare);
}

function prepare(editor) {
  const field = editor.querySelector("textarea"), gutter = editor.querySelector(".gutter");
  const follow = () => { gutter.scrollTop = field.scrollTop; };
  field.addEventListener("input", () => number(field, gutter));
  field.addEventListener("scroll", follow);
  editor.addEventListener("weir:line", ({ detail }) => mark(editor, detail));
  number(field, gutter);
  mark(editor, Number(editor.dataset.wrongLine) || null);
  if (editor.dataset.wrongLine) show(field, Number(editor.dataset.wrongLine));
}

function number(field, gutter) {
  const count = field.value.split("\n").length;
  if (gutter.children.length === count) return;
  gutter.replaceChildren(...Array.from({ length: count }, (_, at) => Object.assign(document.createElement("span"), { textContent: String(at + 1) })));
}

/** Marks the line, or none. The mark lies behind the text and scrolls with it. */
export function mark(editor, line) {
  editor.toggleAttribute("data-wrong", line !== null);
  editor.style.setProperty("--wrong-line", String(line ?? 0));
  for (const [at, each] of [...editor.querySelectorAll(".gutter > span")].entries()) each.classList.toggle("wrong", at + 1 === line);
}

/** The line in the middle of what is seen. */
function show(field, line) {
  const height = parseFloat(getComputedStyle(field).lineHeight);
  field.scrollTop = Math.max(0, (line - 1) * height - field.clientHeight / 2);
}
