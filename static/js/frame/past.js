// A page about the past: it stands still, and its links lead to the same moment on other pages that can show it.

const SHOW_THE_PAST = /^\/(?:$|(?:nodes|queues|workers|pipeline)\/)/;

export const isPast = () => "past" in document.body.dataset;

export function start() {
  const at = new URLSearchParams(location.search).get("at");
  if (!isPast() || !at) return;
  // Before the link is followed, by hand or by a key: rows and the map are drawn later than this starts.
  document.addEventListener("click", ({ target }) => keep(target.closest("a[href], tr[data-href]"), at), true);
  document.addEventListener("focusin", ({ target }) => keep(target.closest("a[href], tr[data-href]"), at), true);
}

function keep(link, at) {
  if (!link || "now" in link.dataset) return;
  const name = link.hasAttribute("href") ? "href" : "data-href", url = new URL(link.getAttribute(name), location.href);
  if (url.origin !== location.origin || !SHOW_THE_PAST.test(url.pathname) || url.searchParams.has("at")) return;
  url.searchParams.set("at", at);
  link.setAttribute(name, url.pathname + url.search + url.hash);
}
