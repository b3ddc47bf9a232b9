// Pause buttons of lists that follow live data. A button names the part that it pauses.

export function start() {
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button[data-pause]");
    if (!button) return;
    const part = document.getElementById(button.dataset.pause), paused = part?.toggleAttribute("data-paused") ?? false;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume live" : "Pause";
  });
}
