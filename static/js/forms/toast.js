// Short messages at the edge of the page, with an optional button such as Undo.
const TOAST_SECONDS = 12;

/** @param {string} text @param {Act | null} act */
export function toast(text, act = null, label = "Undo") {
  const note = Object.assign(document.createElement("div"), { className: "toast" });
  note.append(Object.assign(document.createElement("span"), { textContent: text }));
  if (act) {
    const button = Object.assign(document.createElement("button"), { textContent: label, type: "button" });
    button.addEventListener("click", () => { note.remove(); act(); });
    note.append(button);
  }
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), TOAST_SECONDS * 1000);
}
