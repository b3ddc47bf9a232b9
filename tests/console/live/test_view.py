"""What a page gets of the snapshot: all that it shows; and a patch leads where narrowing the whole would."""

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from console.live.view import VIEWS, find_view
from queues import keys
from tests.console.conftest import sample_snapshot
from tests.workers.snapshots import judged_document
from workers.coordination.merge_patch import apply_patch, compute_patch

NAMES = (*VIEWS, "queue:alert", "node:n1")
PATH = re.compile(r'data-(?:bind|spark)="([^"]+)"')
LOOP = "worker_rate/alert/n1"
DRAWN = ("sign", "stale", "finding", "word")  # of a state, by static/js/values/bind.js

numbers = st.none() | st.integers(0, 9)
containers = st.dictionaries(
    st.sampled_from(("n1", "n2")),
    st.fixed_dictionaries({"points": st.integers(0, 9), "in_per_second": numbers, "waiting_events": numbers}),
)
snapshots = st.fixed_dictionaries(
    {
        "seq": st.integers(1, 9), "totals": st.fixed_dictionaries({"in_per_second": numbers}),
        "nodes": st.dictionaries(
            st.sampled_from(("n1", "n2")),
            st.fixed_dictionaries({"state": st.sampled_from(("IDLE", "BUSY")), "raw": numbers}),
        ),
        "loops": st.dictionaries(
            st.sampled_from((LOOP, "worker_rate/process/n2", "rebalancing")),
            st.fixed_dictionaries({"id": st.integers(1, 9), "reason": st.sampled_from("ab")}),
        ),
        "queues": st.dictionaries(
            st.sampled_from(("alert", "process")),
            st.fixed_dictionaries({"waiting_events": numbers, "containers": containers}),
        ),
    },
)  # fmt: skip


def known(document):
    """A document as its receiver reads it: null and absent are the same, unknown."""
    if not isinstance(document, dict):
        return document
    return {name: known(value) for name, value in document.items() if value is not None}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(before=snapshots, after=snapshots)
def test_narrowed_patches_lead_to_the_narrowed_snapshot(name, before, after):
    view = find_view(name)
    followed = apply_patch(view.narrow(before), view.narrow(compute_patch(before, after)))
    assert known(followed) == known(view.narrow(after))


def shown(value):
    """Of a row bound as a whole, a page shows its state and whether it is stale."""
    return (value.get("state"), value.get("stale")) if isinstance(value, dict) else value


@pytest.mark.parametrize("name", ["", "everything", "queue:", "loop:1"])
def test_a_view_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(BadInput, match="whole"):
        find_view(name)


def value_at(document, path):
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


LISTS = ("/", "/nodes/", "/queues/", "/workers/", "/pipeline/", "/loops/", "/plans/", "/ledger/")
OTHERS = ("/service-levels/", "/plants/", "/proposals/")
SUBJECTS = ("/nodes/n1/", "/queues/alert/", "/workers/jobs@here/")
PAGES = (*LISTS, *OTHERS, *SUBJECTS, "/audit/", "/settings/")


def test_a_page_gets_all_that_it_shows(browsers, poisoned, stored_snapshot):
    assert missed(browsers["administrator"], sample_snapshot()) == {}


def test_also_of_a_lost_node_and_a_queue_that_waits(browsers, poisoned, control):
    """What only a lost node, a queue that waits, a host at work and a loop without measurement have."""
    snapshot = {**sample_snapshot(), "at": time.time()}
    lost = {"state": "OFFLINE", "stale": True, "in_per_second": None, "age_seconds": 61.0}
    snapshot["nodes"]["n2"] = {**snapshot["nodes"]["n1"], **lost}
    snapshot["queues"]["alert"] |= {"wait_seconds": 300.0, "waiting_events": 74_412}
    snapshot["hosts"]["jobs@here"] |= {"busy": 1, "at_work": 1.4, "reserved": 3}
    whole = judged_document(snapshot)
    control.set(keys.SNAPSHOT, json.dumps(whole))
    assert missed(browsers["administrator"], whole) == {}


def test_the_overview_shows_a_loop_that_stands_still_as_it_is_judged(browsers, poisoned, control):
    snapshot = {**sample_snapshot(), "at": time.time()}
    decided = {"id": 1, "law": "worker_rate", "at": snapshot["at"] - 600.0, "interval_seconds": 5.0}
    snapshot["nodes"]["n1"] |= {"state": "TOOBUSY", "utilisation": 0.97}  # the headline; the loop is listed below it
    whole = judged_document({**snapshot, "loops": {LOOP: {**decided, "target": {"queue": "alert"}}}})
    control.set(keys.SNAPSHOT, json.dumps(whole))
    page = browsers["administrator"].get("/").content.decode()
    finding = whole["states"][f"loop/{LOOP}"]["finding"]
    assert finding and f'<span class="two">{finding}' in page


def missed(browser, whole):
    """Of each page, what its scripts miss."""
    found = {path: missing(browser.get(path).content.decode(), whole) for path in PAGES}
    return {path: names for path, names in found.items() if names}


def missing(page, whole):
    """The paths bound on a page that its view has not as the whole snapshot has them."""
    (view,) = re.findall(r'data-view="([^"]+)"', page)
    narrow = find_view(view).narrow(whole)
    return [path for path in PATH.findall(page) if shown(value_at(narrow, path)) != shown(value_at(whole, path))]
