"""The sentence people read first: true, worst first, and calm when all is well."""

from typing import Any

import pytest

from queues.waiting import UNHEALTHY_SECONDS
from tests.workers.snapshots import snapshot_of
from workers.documents.snapshot import PlantHealth, Snapshot
from workers.snapshot.compose import longest, wait_seconds
from workers.snapshot.health import health


def node(**changed: Any) -> dict[str, Any]:
    calm = {"state": "NORMAL", "age_seconds": 0.4, "points": 334, "utilisation": 0.2}
    return {**calm, **changed}


def queue(**changed: Any) -> dict[str, Any]:
    calm = {"kind": "jobs", "wait_seconds": 1.0, "waiting_events": 10, "trouble": None, "dead_letters": 0}
    return {**calm, **changed}


def plant(**changed: Any) -> Snapshot:
    calm: dict[str, Any] = {
        "nodes": {"n1": node(), "n2": node(), "n3": node()},
        "queues": {"alert": queue(), "telemetry": queue(kind="pipeline")},
        "pipeline": {"state": "running", "age_seconds": 0.5, "error": None},
        "totals": {"worker_slots": 2},
    }
    return snapshot_of({**calm, **changed})


def test_a_calm_plant_says_so():
    assert health(plant()) == PlantHealth("NORMAL", "All 3 nodes normal; every queue keeps up; nothing shed.")


def test_a_queue_that_waits_longer_than_three_intervals_falls_behind():
    behind = {"alert": queue(waiting_events=63_517, wait_seconds=UNHEALTHY_SECONDS + 25)}
    found = health(plant(queues=behind))
    assert found.state == "TOOBUSY"
    assert "Queue alert falls behind: 63,517 events wait 40 s." in found.sentence


def test_a_queue_that_nothing_leaves_has_waited_as_long_as_its_oldest_event():
    assert wait_seconds(63_517, 0.0, 48.0) == 48.0
    assert wait_seconds(63_517, None, 48.0) == 48.0
    assert wait_seconds(100, 50.0, 48.0) == 2.0
    assert wait_seconds(0, 0.0, None) == 0.0
    assert wait_seconds(None, 5.0, None) is None


def test_the_backlog_is_that_of_the_queue_that_waits_longest():
    assert longest([0.2, None, 48.0]) == 48.0
    assert longest([None]) is None


@pytest.mark.parametrize(
    ("changed", "state", "words"),
    [
        ({"nodes": {}}, "OFFLINE", "No node is configured"),
        ({"nodes": {"n1": node(), "n2": node(state="OFFLINE", age_seconds=14.2)}}, "OFFLINE", "14 s"),
        ({"nodes": {"n1": node(), "n2": node(state=None)}}, "OFFLINE", "start its agent"),
        ({"nodes": {"n1": node(state="BUSY", utilisation=0.78)}}, "BUSY", "busy: 78 %"),
        ({"pipeline": {"state": "starting", "age_seconds": 1.0, "error": None}}, "BUSY", "starting;"),
        ({"pipeline": {"state": "starting", "age_seconds": 1.0, "error": "x"}}, "BUSY", "after it failed: x"),
        ({"pipeline": {"state": "stalled", "age_seconds": 1.0, "hindrance": "n1"}}, "TOOBUSY", "stalled: n1"),
        ({"pipeline": {"state": "offline", "age_seconds": 12.0, "error": None}}, "TOOBUSY", "12 s"),
        ({"pipeline": {"state": "failed", "age_seconds": 1.0, "error": "boom"}}, "TOOBUSY", "boom"),
        ({"totals": {"worker_slots": 0}}, "TOOBUSY", "No worker host"),
        (
            {"totals": {"worker_slots": 2, "shed_share": 0.123}},
            "TOOBUSY",
            "12.3 % of the events that patterns could use",
        ),
        ({"queues": {"alert": queue(dead_letters=3)}}, "BUSY", "3 dead letters"),
    ],
)
def test_what_is_wrong_is_named(changed, state, words):
    found = health(plant(**changed))
    assert found.state == state
    assert words in found.sentence


def test_an_offline_node_comes_before_a_busy_one_and_says_who_serves_its_points():
    nodes = {"n1": node(state="BUSY"), "n2": node(state="OFFLINE", age_seconds=5.0), "n3": node()}
    sentence = health(plant(nodes=nodes)).sentence
    assert sentence.startswith("Node n2 has not reported for 5 s; its 334 points are served by n1 and n3.")
