// The switches of the settings page for the theme and the density, which this browser keeps. An empty value is the default:
// the system's theme, and comfortable rows.

export function start() {
  for (const group of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-appearance]"))) {
    const name = group.dataset.appearance ?? "";
    press(group, document.documentElement.dataset[name] ?? "");
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) choose(group, name, button.value);
    });
  }
}

/** @param {HTMLElement} group @param {string} name @param {string} value */
function choose(group, name, value) {
  if (value) {
    document.documentElement.dataset[name] = value;
    localStorage.setItem(`weir-${name}`, value);
  } else {
    delete document.documentElement.dataset[name];
    localStorage.removeItem(`weir-${name}`);
  }
  press(group, value);
  tell();
}

/** @param {HTMLElement} group @param {string} value */
function press(group, value) {
  for (const button of group.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.value === value));
  }
}

function tell() {
  document.dispatchEvent(new CustomEvent("weir:theme"));
}
