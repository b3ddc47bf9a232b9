// A page about the past stands still. Its links lead to the same instant on other pages, and so do those of a page that
// can't show it and says so: who looks at the past never comes to the present unnoticed.

const NO_PAGE = /^\/(?:api|static|control|help|logout)\b/;

export const isPast = () => "past" in document.body.dataset;

export function start() {
  const at = new URLSearchParams(location.search).get("at");
  if (!at || !(isPast() || "unreached" in document.body.dataset)) return;
  // Before the link is followed, by hand or by a key: rows and the map are drawn later than this starts.
  document.addEventListener("click", ({ target }) => keep(target.closest("a[href], tr[data-href]"), at), true);
  document.addEventListener("focusin", ({ target }) => keep(target.closest("a[href], tr[data-href]"), at), true);
}

function keep(link, at) {
  if (!link || "now" in link.dataset) return;
  const name = link.hasAttribute("href") ? "href" : "data-href", url = new URL(link.getAttribute(name), location.href);
  if (url.origin !== location.origin || NO_PAGE.test(url.pathname) || url.searchParams.has("from") || url.searchParams.has("at")) return;
  url.searchParams.set("at", at);
  link.setAttribute(name, url.pathname + url.search + url.hash);
}
