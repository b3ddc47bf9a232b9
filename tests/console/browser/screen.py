"""What tests of pages share: screens, the observer as a page hears it, and what may be on no page."""

import time
from copy import deepcopy
from typing import Any

import orjson
import pytest
from axe_playwright_python.sync_playwright import Axe

from bench.console.browser import EXECUTABLE, MISSING
from queues import keys
from tests.console.conftest import sample_snapshot
from tests.waiting import until
from tests.workers.snapshots import judged_document
from workers.coordination.merge_patch import compute_patch

BROWSER = [pytest.mark.browser, pytest.mark.skipif(EXECUTABLE is None, reason=MISSING)]
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
Snapshot = dict[str, Any]
OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SETTLED_SECONDS = 60.0
WIDTHS = (390, 768, 1024, 1280, 1440, 1920)
# Texts that their box cuts off, and pairs of texts on each other. Texts for screen readers alone, those that a list
# scrolls to, and those that end with "…" and are whole in a tooltip are left out; a bar that stays in place is compared
# with itself only.
UNREADABLE = """() => {
  const texts = [], found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const common = (one, other) => ({
    left: Math.max(one.left, other.left), right: Math.min(one.right, other.right),
    top: Math.max(one.top, other.top), bottom: Math.min(one.bottom, other.bottom),
  });
  while (walk.nextNode()) {
    const node = walk.currentNode, holder = node.parentElement, range = document.createRange();
    const shown = holder.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    const text = node.textContent.trim();
    if (!text || !shown) continue;
    if (holder.closest("script, style, noscript, option, select, textarea")) continue;
    range.selectNodeContents(node);
    const whole = range.getBoundingClientRect();
    let seen = whole, layer = null, hidden = false, isCut = false;
    for (let box = holder; box && box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box), frame = box.getBoundingClientRect();
      if (style.clipPath !== "none" && frame.width <= 1.5) hidden = true;
      if (!layer && ["fixed", "sticky"].includes(style.position)) layer = box;
      if (style.overflowX === "visible" || box.ownerSVGElement || box.tagName === "svg") continue;
      const cut = ["hidden", "clip"].includes(style.overflowX) && box.scrollWidth > box.clientWidth + 1;
      if (cut && (whole.right > frame.right + 1 || whole.left < frame.left - 1)) isCut = true;
      seen = common(seen, frame);
    }
    if (hidden) continue;
    const isWhole = getComputedStyle(holder).textOverflow === "ellipsis" && holder.closest("[title]");
    if (isCut && !isWhole) found.push(`cut: ${text}`);
    for (const line of range.getClientRects()) {
      const part = common(seen, line);
      if (part.right - part.left > 1 && part.bottom - part.top > 1) texts.push([text, part, layer, holder]);
    }
  }
  texts.forEach(([text, one, layer, holder], at) => texts.slice(at + 1).forEach(([other, two, second, beside]) => {
    if (layer !== second || holder.contains(beside) || beside.contains(holder)) return;
    const both = common(one, two), height = Math.min(one.bottom - one.top, two.bottom - two.top);
    if (both.right - both.left > 2 && both.bottom - both.top > 0.4 * height) found.push(`${text} | ${other}`);
  }));
  return [...new Set(found)];
}"""


class Observer:
    """Publishes snapshots as the real one does: states evaluated, stored, and sent with what changed since
    the last.
    """

    def __init__(self, control, snapshot):
        self.control, self.snapshot = control, judged_document({**snapshot, "at": time.time()})
        self.control.set(keys.SNAPSHOT, orjson.dumps(self.snapshot))

    def publish(self, change=lambda snapshot: None, skip=0, evaluated=lambda snapshot: None):
        """change: before the evaluation; evaluated: after it."""
        after = deepcopy(self.snapshot)
        change(after)
        after |= {"seq": self.snapshot["seq"] + 1 + skip, "at": time.time()}
        after = judged_document(after)
        evaluated(after)
        delta = compute_patch(self.snapshot, after)
        message = {"seq": after["seq"], "at": after["at"], "topic": "plant", "snapshot": after, "delta": delta}
        self.control.set(keys.SNAPSHOT, orjson.dumps(after))
        self.control.publish(keys.LIVE, orjson.dumps(message))
        self.snapshot = after


def whole_snapshot():
    """Three nodes in different states, and the loop that the seeded database holds."""
    snapshot = sample_snapshot()
    calm = snapshot["nodes"]["n1"]
    snapshot["nodes"] |= {
        "n2": {**calm, "state": "BUSY", "utilisation": 0.78},
        "n3": {**calm, "state": "OFFLINE", "stale": True, "in_per_second": None, "age_seconds": 14.0},
    }
    snapshot["loops"] = {
        "worker_rate/alert/n1": {
            "id": 1, "law": "worker_rate", "target": {"queue": "alert", "node": "n1"}, "mode": "auto",
            "measured": 12, "setpoint": 1000, "actuator": 1, "at": snapshot["at"], "reason": "12 events wait.",
            "verdict": "effective", "entry": None, "overrides": 0,
        },
    }  # fmt: skip
    return snapshot


def figure(page, path):
    return page.locator(f'[data-bind="{path}"]:visible').first


def live(page, observer, how="live"):
    """Publish until the page follows: its scripts have run, its socket is joined, the observer is heard."""

    def follows():
        observer.publish()
        return page.locator("#connection").get_attribute("data-connection") == how

    until(follows, every_seconds=0.25)


def comes(observer, part):
    """Publish until the part is there."""

    def follows():
        observer.publish()
        return part.is_visible()

    until(follows, every_seconds=0.5)


def violations(page):
    """What axe-core finds wrong on the page as it stands: rule and elements."""
    found = Axe().run(page).response["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


def unreadable(page):
    """Texts that are cut or lie on each other, once the layout has settled."""
    deadline = time.monotonic() + 5.0
    while (found := page.evaluate(UNREADABLE)) and time.monotonic() < deadline:
        page.wait_for_timeout(250)
    return found


def overhang(page):
    """How many pixels the page stays wider than the screen: a chart follows a new width a little later."""
    deadline = time.monotonic() + SETTLED_SECONDS
    while (found := page.evaluate(OVERHANG)) > 0 and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    return found
