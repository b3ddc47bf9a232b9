// Runs before the first paint, so that the selected theme and density don't flash. A module would run too late. Drawings
// learn of a new theme of the system, too.
(() => {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("weir:theme")));
  try {
    for (const name of ["theme", "density"]) {
      const value = localStorage.getItem(`weir-${name}`);
      if (value) document.documentElement.dataset[name] = value;
    }
  } catch { /* storage is blocked: the system's theme and the normal density apply */ }
})();
