// Checks for use of a part of the page. A part in use is not replaced or sorted again.

const FIELD = "input:not([type=checkbox], [type=radio]), textarea, select";
const hovers = matchMedia("(hover: hover)"); // touch screens keep :hover on the last touched element

/** @param {Element} part */
export const isPointed = (part) => hovers.matches && part.matches(":hover");

/** Check if a text or selection field of the part has the focus.
 * @param {Element} part */
export function isTypedIn(part) {
  const focus = document.activeElement;
  return focus !== part && part.contains(focus) && Boolean(focus?.matches(FIELD));
}

/** Check if a field or the keyboard focus is in the part, or if its text is selected. Focus by a click doesn't
 * count.
 * @param {Element} part */
export function isWorkedOn(part) {
  const focus = document.activeElement, selection = getSelection();
  return isTypedIn(part) || (focus !== part && part.contains(focus) && Boolean(focus?.matches(":focus-visible")))
    || (selection !== null && !selection.isCollapsed && selection.containsNode(part, true));
}
