// Runs before the first paint, so that the theme and the density don't flash. A module would run too late. The server
// writes the user's preferences into the page. This browser keeps a copy for pages without a user, such as the login.
// Drawings learn of a new theme of the system, and of paper, which is always light.
(() => {
  for (const media of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(media).addEventListener("change", () => document.dispatchEvent(new CustomEvent("weir:theme")));
  }
  const { dataset } = document.documentElement;
  try {
    for (const name of ["theme", "density"]) {
      const key = `weir-${name}`, value = "preferences" in dataset ? dataset[name] : localStorage.getItem(key);
      if (value) dataset[name] = value;
      if (value) localStorage.setItem(key, value);
      else localStorage.removeItem(key);
    }
  } catch { /* storage is blocked: the system's theme and the normal density apply */ }
})();
