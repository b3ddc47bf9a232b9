// The theme switch of the settings page. An empty value selects the system's theme.

export function start() {
  const group = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", tell);
  if (!group) return;
  press(group, document.documentElement.dataset.theme ?? "");
  group.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(group, button.value);
  });
}

/** @param {HTMLElement} group @param {string} theme */
function choose(group, theme) {
  if (theme) {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("weir-theme", theme);
  } else {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("weir-theme");
  }
  press(group, theme);
  tell();
}

/** @param {HTMLElement} group @param {string} theme */
function press(group, theme) {
  for (const button of group.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.value === theme));
  }
}

function tell() {
  document.dispatchEvent(new CustomEvent("weir:theme"));
}
