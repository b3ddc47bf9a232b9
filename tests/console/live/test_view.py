"""What a page gets of the snapshot: all that it shows; and a patch leads where narrowing the whole would."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.live.view import VIEWS, view_named
from queues.errors import BadInput
from tests.console.conftest import sample_snapshot
from workers.coordination.merge_patch import applied, difference

NAMES = (*VIEWS, "queue:alert", "node:n1")
PATH = re.compile(r'data-(?:bind|spark)="([^"]+)"')
LOOP = "worker_rate/alert/n1"

numbers = st.none() | st.integers(0, 9)
containers = st.dictionaries(
    st.sampled_from(("n1", "n2")),
    st.fixed_dictionaries({"points": st.integers(0, 9), "in_per_second": numbers, "waiting_events": numbers}),
)
snapshots = st.fixed_dictionaries(
    {
        "seq": st.integers(1, 9),
        "totals": st.fixed_dictionaries({"in_per_second": numbers}),
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
    }
)


def known(document: Any) -> Any:
    """A document as its receiver reads it: null and absent are the same, unknown."""
    if not isinstance(document, dict):
        return document
    return {name: known(value) for name, value in document.items() if value is not None}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(before=snapshots, after=snapshots)
def test_narrowed_patches_lead_to_the_narrowed_snapshot(name, before, after):
    view = view_named(name)
    followed = applied(view.narrowed(before), view.narrowed(difference(before, after)))
    assert known(followed) == known(view.narrowed(after))


def shown(value: Any) -> Any:
    """Of a row bound as a whole, a page shows its state and whether it is stale."""
    return (value.get("state"), value.get("stale")) if isinstance(value, dict) else value


@pytest.mark.parametrize("name", ["", "everything", "queue:", "loop:1"])
def test_a_view_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(BadInput, match="whole"):
        view_named(name)


def value_at(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


LISTS = ("/", "/nodes/", "/queues/", "/workers/", "/pipeline/", "/loops/", "/plans/", "/ledger/")
PAGES = (*LISTS, "/nodes/n1/", "/queues/alert/", "/audit/", "/settings/")


def test_a_page_gets_all_that_it_shows(browsers, poisoned, stored_snapshot):
    missed = {path: missing(browsers["administrator"].get(path).content.decode()) for path in PAGES}
    assert {path: names for path, names in missed.items() if names} == {}


def missing(page: str) -> list[str]:
    """The paths bound on a page that its view has not as the whole snapshot has them."""
    (view,) = re.findall(r'data-view="([^"]+)"', page)
    whole, narrow = sample_snapshot(), view_named(view).narrowed(sample_snapshot())
    return [
        path for path in PATH.findall(page) if shown(value_at(narrow, path)) != shown(value_at(whole, path))
    ]
