// Whether somebody's hand is on a part of the page: nothing is taken from under it.

const FIELD = "input:not([type=checkbox], [type=radio]), textarea, select";
const hovers = matchMedia("(hover: hover)"); // a finger leaves its pointer where it was last

export const isPointed = (part) => hovers.matches && part.matches(":hover");

/** A field within is being filled in. */
export function isTypedIn(part) {
  const focus = document.activeElement;
  return focus !== part && part.contains(focus) && focus.matches(FIELD);
}

/** Or the keyboard has come to something within, or text is selected. Where a click left the focus nobody works. */
export function isWorkedOn(part) {
  const focus = document.activeElement, selection = getSelection();
  return isTypedIn(part) || (focus !== part && part.contains(focus) && focus.matches(":focus-visible"))
    || (!selection.isCollapsed && selection.containsNode(part, true));
}
