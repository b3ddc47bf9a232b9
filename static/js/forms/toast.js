// Short messages at the edge of the page, with an optional button such as Undo and the seconds that are left for it.
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
  const left = Object.assign(document.createElement("span"), { className: "left n" });
  left.setAttribute("aria-hidden", "true"); // not announced each second
  if (act) {
    const button = Object.assign(document.createElement("button"), { textContent: label, type: "button" });
    button.addEventListener("click", () => { note.remove(); act(); });
    note.append(button, left);
  }
  document.getElementById("toasts").append(note);
  countDown(note, left);
}

/** Remove a message after some seconds, which stop while the user points at it.
 * @param {HTMLElement} note @param {HTMLElement} place */
function countDown(note, place) {
  let seconds = TOAST_SECONDS;
  place.textContent = `${seconds} s`;
  const timer = setInterval(() => {
    if (note.matches(":hover, :focus-within")) return;
    seconds -= 1;
    place.textContent = `${seconds} s`;
    if (seconds > 0 && note.isConnected) return;
    clearInterval(timer);
    note.remove();
  }, 1000);
}
