// Copying to the clipboard. Pages over plain HTTP have no clipboard API, so they copy a selection instead.

/** Copy a text. Returns true on success.
 * @param {string} text */
export async function copied(text) {
  if (!navigator.clipboard) return copiedBySelection(text);
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not permitted
  }
}

/** @param {string} text */
function copiedBySelection(text) {
  const focus = document.activeElement, field = Object.assign(document.createElement("textarea"), { value: text, className: "seen-by-readers" });
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (focus instanceof HTMLElement) focus.focus({ preventScroll: true });
  return done;
}
