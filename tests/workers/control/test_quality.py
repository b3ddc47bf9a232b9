"""How good a tick's observation is: what a start excuses, lateness, one cause for all that suffer from it."""

import pytest

from controllers.framework.guard import ObservationQuality
from tests.workers.snapshots import snapshot_of
from workers.control import tick

NOW = 1_790_000_000.0
PIPELINE, PLANT = {"application": "performance"}, {}
BLIND = ObservationQuality(None, "the pipeline has not reported yet")


def seen(at: float = NOW, stale: tuple[str, ...] = (), **parts: str):
    """Three nodes, of which some are stale; parts in a state, those that start with their grace."""
    return snapshot_of(
        {
            "at": at,
            "nodes": {name: {"state": "NORMAL", "stale": name in stale} for name in ("n1", "n2", "n3")},
            "queues": {"alert": {"kind": "jobs"}},
            "parts": {
                name: {"state": state, "since": NOW, "grace_until": NOW + 60 if state == "starting" else None}
                for name, state in parts.items()
            },
        }
    )


def test_a_loop_whose_part_is_starting_has_nothing_to_decide():
    found = tick.excuse_start(BLIND, PIPELINE, seen(pipeline="starting"), NOW)
    assert (found.invalid, found.idle) == (None, "pipeline is starting")


@pytest.mark.parametrize("state", ["running", "failed", "silent"])
def test_a_loop_whose_part_does_not_start_has_no_valid_measurement(state):
    assert tick.excuse_start(BLIND, PIPELINE, seen(pipeline=state), NOW) == BLIND


@pytest.mark.parametrize(
    ("snapshot", "late"), [(seen(at=NOW - 12), 0.0), (seen(stale=("n1", "n2")), 0.0), (seen(), 30.0)]
)
@pytest.mark.parametrize("target", [PIPELINE, PLANT, {"queue": "alert", "node": "n1"}, {"host": "h"}])
def test_on_a_starved_host_all_loops_name_the_same_cause(snapshot, late, target):
    assert tick.find_cause(ObservationQuality(12.0), 3.0, late, target, snapshot, NOW) == "host"


def test_a_part_that_is_down_is_the_cause_for_those_who_need_it():
    down = seen(pipeline="failed")
    assert tick.find_cause(BLIND, 3.0, 0.0, PIPELINE, down, NOW) == "pipeline"
    assert tick.find_cause(ObservationQuality(0.2, "not measured yet"), 3.0, 0.0, {"queue": "alert"}, down, NOW) is None


def test_a_valid_measurement_has_no_cause_however_late_the_tick():
    assert tick.find_cause(ObservationQuality(0.2), 3.0, 30.0, PIPELINE, seen(), NOW) is None
    assert tick.find_cause(ObservationQuality(0.2, idle="nothing comes"), 3.0, 30.0, PIPELINE, seen(), NOW) is None
