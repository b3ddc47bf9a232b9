// Runs before the first paint, so that a chosen theme never flashes; everything else is a module.
(() => {
  try {
    const theme = localStorage.getItem("weir-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* storage refused: the system's theme holds */ }
})();
