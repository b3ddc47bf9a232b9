// Runs before the first paint, so that the selected theme doesn't flash. A module would run too late.
(() => {
  try {
    const theme = localStorage.getItem("weir-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* storage is blocked: the system's theme applies */ }
})();
