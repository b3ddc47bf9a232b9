// A page about the past doesn't update. Its links keep the instant, also on a page that can't show that instant, so
// that users don't switch to live data unnoticed.

const NO_PAGE = /^\/(?:api|static|control|help|logout)\b/;

export const isPast = () => "past" in document.body.dataset;

export function start() {
  if (!instant()) return;
  // Links are rewritten just before they are followed, because rows and the map are drawn after this runs.
  document.addEventListener("click", ({ target }) => keep(target.closest("a[href], tr[data-href]")), true);
  document.addEventListener("focusin", ({ target }) => keep(target.closest("a[href], tr[data-href]")), true);
}

/** Return the instant that this page shows, or that was requested; null for the present. */
const instant = () => (isPast() || "unreached" in document.body.dataset ? new URLSearchParams(location.search).get("at") : null);

/** Return the address with this page's instant added, if it is a page of this console.
 * @param {string} address */
export function kept(address) {
  const at = instant(), url = new URL(address, location.href);
  if (!at || url.origin !== location.origin || NO_PAGE.test(url.pathname) || url.searchParams.has("from") || url.searchParams.has("at")) return address;
  url.searchParams.set("at", at);
  return url.pathname + url.search + url.hash;
}

/** @param {HTMLElement | null} link */
function keep(link) {
  if (!link || "now" in link.dataset) return;
  const name = link.hasAttribute("href") ? "href" : "data-href";
  link.setAttribute(name, kept(link.getAttribute(name) ?? ""));
}
