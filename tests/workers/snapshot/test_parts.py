"""Parts of the plant: a start takes its time, a death gets none, and the grace ends by the clock."""

import pytest

from tests.workers.snapshots import snapshot_of
from workers.documents.parts import find_settling, find_starting, find_starting_parts
from workers.snapshot.parts import SAME_RUN_SECONDS, SETTLING_SECONDS, STARTING_SECONDS, PartsRecord

START = 1_790_000_000.0


def seen(pipeline: str | None = None, node: bool = True, jobs: bool = True):
    """A plant with one node, a jobs queue and a pipeline queue."""
    hosts = {"c": {"role": "control"}} | ({"j": {"role": "jobs"}} if jobs else {})
    return snapshot_of(
        {
            "nodes": {"n1": {"state": "NORMAL", "stale": not node, "age_seconds": 0.5 if node else None}},
            "queues": {"alert": {"kind": "jobs"}, "telemetry": {"kind": "pipeline"}},
            "hosts": hosts,
            "pipeline": {"state": pipeline, "age_seconds": None if pipeline is None else 0.5},
        }
    )


def walked(record: PartsRecord, *steps: tuple[float, str | None]):
    """The pipeline's part after (seconds since the start, state) of each step."""
    return [record.step(seen(state), START + at)["pipeline"] for at, state in steps][-1]


def test_a_fresh_plant_lists_what_is_starting_and_nothing_once_all_runs():
    record = PartsRecord()
    first = record.step(seen(None, node=False, jobs=False), START)
    assert set(find_starting_parts(first)) == {"node n1", "workers.jobs", "pipeline"}
    then = record.step(seen("starting"), START + 20)
    assert set(find_starting_parts(then)) == {"pipeline"}
    assert not find_starting_parts(record.step(seen("running"), START + 35))


def test_a_part_that_never_comes_is_silent_when_its_time_is_over():
    record = PartsRecord()
    assert walked(record, (0, None), (STARTING_SECONDS - 1, None)).state == "starting"
    late = walked(record, (STARTING_SECONDS + 1, None))
    assert (late.state, late.grace_until) == ("silent", None)


def test_what_fails_at_its_first_tries_may_still_come_up():
    record = PartsRecord()
    failed = walked(record, (0, None), (20, "starting"), (40, "failed"))
    assert failed.state == "failed" and find_starting({"pipeline": failed}, ["pipeline"]) == "pipeline"
    assert find_starting({"pipeline": walked(record, (STARTING_SECONDS + 1, "failed"))}, ["pipeline"]) is None


def test_after_a_start_it_settles_for_a_bounded_time_and_is_not_listed_any_more():
    record = PartsRecord()
    parts = {"pipeline": walked(record, (0, None), (30, "running"))}
    assert find_settling(parts, ["pipeline"]) == "pipeline" and not find_starting_parts(parts)
    parts = {"pipeline": walked(record, (31 + SETTLING_SECONDS, "running"))}
    assert find_settling(parts, ["pipeline"]) is None


@pytest.mark.parametrize("state", [None, "failed", "starting"])
def test_what_ran_and_dies_gets_no_grace(state):
    record = PartsRecord()
    dead = walked(record, (0, "running"), (600, "running"), (601, state))
    assert dead.grace_until is None and dead.since == START + 601
    assert find_settling({"pipeline": dead}, ["pipeline"]) is None
    back = walked(record, (700, "running"))
    assert (back.state, back.grace_until) == ("running", None)


def test_a_watcher_that_takes_over_goes_on_and_one_of_another_run_begins_anew():
    left = snapshot_of({"at": START, "parts": {"pipeline": {"state": "failed", "since": START - 50}}})
    soon = PartsRecord(left).step(seen("failed"), START + 5)["pipeline"]
    assert (soon.since, soon.grace_until) == (START - 50, None)
    lost = PartsRecord(left).step(seen("failed", node=False), START + 5)["node n1"]
    assert (lost.state, lost.grace_until) == ("silent", None), "it ran when the other watched"
    later = PartsRecord(left).step(seen("offline"), START + SAME_RUN_SECONDS + 5)["pipeline"]
    assert later.state == "starting" and later.grace_until is not None
