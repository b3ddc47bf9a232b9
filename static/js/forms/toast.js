// Short messages at the edge of the page, with an optional button such as Undo.
const TOAST_SECONDS = 12;

/** until: an instant, of which a countdown follows the text.
 * @param {string} text @param {Act | null} act @param {number | null} until */
export function toast(text, act = null, label = "Undo", until = null) {
  const note = Object.assign(document.createElement("div"), { className: "toast" });
  const said = Object.assign(document.createElement("span"), { textContent: text });
  if (until !== null) {
    const countdown = Object.assign(document.createElement("span"), { className: "n" });
    countdown.dataset.until = String(until); // the strip counts it down
    said.append(" ", countdown);
  }
  note.append(said);
  if (act) {
    const button = Object.assign(document.createElement("button"), { textContent: label, type: "button" });
    button.addEventListener("click", () => { note.remove(); act(); });
    note.append(button);
  }
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), TOAST_SECONDS * 1000);
}
