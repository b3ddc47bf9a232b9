// A page about the past stands still. Its links lead to the same instant on other pages, and so do those of a page that
// can't show it and says so: who looks at the past never comes to the present unnoticed.

const NO_PAGE = /^\/(?:api|static|control|help|logout)\b/;

export const isPast = () => "past" in document.body.dataset;

export function start() {
  if (!instant()) return;
  // Before the link is followed, by hand or by a key: rows and the map are drawn later than this starts.
  document.addEventListener("click", ({ target }) => keep(target.closest("a[href], tr[data-href]")), true);
  document.addEventListener("focusin", ({ target }) => keep(target.closest("a[href], tr[data-href]")), true);
}

/** The instant that this page is about, or was asked for; null: the present. */
const instant = () => (isPast() || "unreached" in document.body.dataset ? new URLSearchParams(location.search).get("at") : null);

/** An address of this console, at the instant of this page. */
export function kept(address) {
  const at = instant(), url = new URL(address, location.href);
  if (!at || url.origin !== location.origin || NO_PAGE.test(url.pathname) || url.searchParams.has("from") || url.searchParams.has("at")) return address;
  url.searchParams.set("at", at);
  return url.pathname + url.search + url.hash;
}

function keep(link) {
  if (!link || "now" in link.dataset) return;
  const name = link.hasAttribute("href") ? "href" : "data-href";
  link.setAttribute(name, kept(link.getAttribute(name)));
}
