"""What can be read off a page, to be held against the plant: its statements, and what doesn't fit."""

# Of every element that says how a subject is: which, the sign it is drawn with, whether it is marked old.
SAID = """() => [...document.querySelectorAll('[data-subject]')].filter((each) => each.checkVisibility())
  .map((each) => {
  const classes = [...each.classList], { subject, state } = each.dataset;
  if (!each.closest('svg')) return { subject, drawn: state, stale: each.hasAttribute('data-stale') };
  const at = classes.find((name) => name.startsWith('at-'));
  return { subject, drawn: at ? at.slice(3) : 'plain', stale: classes.includes('stale') };
})"""
CUT_OFF = """() => [...document.querySelectorAll('#connection, #connection .word, #connection .age')]
  .filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline')
  .map((each) => each.textContent)"""
# Pairs of labels of a drawing that lie on each other, and boxes that are larger than their drawing.
OVERLAPPING = """() => {
  const seen = (root, what) => [...root.querySelectorAll(what)].filter((each) => each.checkVisibility());
  return seen(document, 'main svg').flatMap((svg) => {
  const frame = svg.getBoundingClientRect(), found = [];
  const labels = seen(svg, 'text').filter((each) => each.textContent.trim())
    .map((each) => [each.textContent.trim(), each.getBoundingClientRect()]);
  labels.forEach(([text, a], at) => labels.slice(at + 1).forEach(([other, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 2 && high > 3) found.push(`${text} | ${other}`);
  }));
  for (const each of svg.querySelectorAll('rect')) {
    const box = each.getBoundingClientRect();
    const larger = box.width > frame.width + 1 || box.height > frame.height + 1;
    if (larger) found.push(`box ${box.width} x ${box.height}`);
  }
  return found;
})}"""


def is_true(said, state):
    """Whether what a page says of a subject is what it was evaluated to be."""
    if state is None:
        return False
    # A map draws no sign at what is well.
    plain = said["drawn"] == "plain" and state["severity"] in ("well", "notice")
    unknown = state["sign"] is None and said["drawn"] in ("", "UNKNOWN", "plain")
    return said["stale"] == state["stale"] and (plain or unknown or said["drawn"] == state["sign"])
