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


class Observer:
    """Publishes snapshots as the real one does: states evaluated, stored, and sent with what changed since
    the last.
    """

    def __init__(self, control, snapshot):
        self.control, self.snapshot = control, judged_document({**snapshot, "at": time.time()})
        self.control.set(keys.SNAPSHOT, orjson.dumps(self.snapshot))

    def publish(self, change=lambda snapshot: None, skip=0):
        after = deepcopy(self.snapshot)
        change(after)
        after |= {"seq": self.snapshot["seq"] + 1 + skip, "at": time.time()}
        after = judged_document(after)
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


def overhang(page):
    """How many pixels the page stays wider than the screen: a chart follows a new width a little later."""
    deadline = time.monotonic() + SETTLED_SECONDS
    while (found := page.evaluate(OVERHANG)) > 0 and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    return found
