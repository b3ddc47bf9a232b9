// The switches of the settings page for the theme, the density, and the sound. They apply at once and are saved in the
// user's account. The first button of each is the default, which the page doesn't name.
import { send } from "../forms/sending.js";
import { toast } from "../forms/toast.js";

export function start() {
  for (const group of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-appearance]"))) {
    const name = group.dataset.appearance ?? "", [first] = group.querySelectorAll("button");
    press(group, document.documentElement.dataset[name] ?? first.value);
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) choose(group, name, button.value, button === first);
    });
  }
}

/** Apply a choice, and return to the previous one if the server rejects it.
 * @param {HTMLElement} group @param {string} name @param {string} value @param {boolean} isDefault */
async function choose(group, name, value, isDefault) {
  const { dataset } = document.documentElement, before = dataset[name], [first] = group.querySelectorAll("button");
  apply(group, name, isDefault ? undefined : value, value);
  const body = new FormData();
  body.set("name", name);
  body.set("value", value);
  const answer = await send("/settings/preferences", body);
  if (answer.ok) return;
  apply(group, name, before, before ?? first.value);
  toast(Object.values(answer.errors).flat().join(" "));
}

/** @param {HTMLElement} group @param {string} name @param {string | undefined} shown @param {string} pressed */
function apply(group, name, shown, pressed) {
  const { dataset } = document.documentElement;
  if (shown) dataset[name] = shown;
  else delete dataset[name];
  press(group, pressed);
  document.dispatchEvent(new CustomEvent("weir:theme"));
}

/** @param {HTMLElement} group @param {string} value */
function press(group, value) {
  for (const button of group.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.value === value));
}
