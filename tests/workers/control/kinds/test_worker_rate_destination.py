"""Loops start no workers that a failing destination would only keep waiting."""

import pytest

from tests.workers.snapshots import snapshot_of
from workers.control.kinds.worker_rate import measure_target

TARGET = {"queue": "mail", "node": "n1"}


def measure(circuit="open", held=None, destination="smtp.example:25"):
    hold = {"circuit": held, "override": 1, "by": "ada"} if held else None
    queue = {
        "kind": "jobs",
        "destination": destination,
        "circuit_hold": hold,
        "containers": {"n1": {"waiting_events": 5_000}},
    }
    document = {
        "at": 100.0,
        "queues": {"mail": queue},
        "nodes": {"n1": {"state": "NORMAL", "age_seconds": 0.5}},
        "destinations": {"smtp.example:25": {"circuit": circuit, "queues": ["mail"]}},
        "hosts": {"jobs@one": {"role": "jobs", "slots": 4}},
    }
    return measure_target(TARGET, snapshot_of(document), None, 100.0)


@pytest.mark.parametrize(
    ("changed", "is_open"),
    [
        ({}, True),
        ({"circuit": "limited"}, False),
        ({"held": "closed"}, False),
        ({"destination": "other.example"}, False),
        ({"destination": None}, False),
    ],
)
def test_the_observation_says_whether_the_circuit_of_the_queue_is_open(changed, is_open):
    sensed = measure(**changed)
    assert (sensed.observation["is_circuit_open"], sensed.measured.idle) == (is_open, None)


def test_a_loop_has_nothing_to_decide_while_a_person_holds_the_circuit_open():
    assert measure("closed", held="open").measured.idle == "ada holds the circuit of mail open"
