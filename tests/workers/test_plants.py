"""One contract for every plant."""

import json
from itertools import count

import pytest

from queues.errors import BadInput
from workers.plants.memory import MemoryPlant

QUEUE, NODE = "alert", "n1"


class MemoryRig:
    """The twin in memory, and the hands that a real plant's workers have."""

    def __init__(self):
        seconds = count(1_790_000_000)
        self.plant = MemoryPlant(lambda: float(next(seconds)), [(QUEUE, NODE), (QUEUE, "n2")])

    def publish(self, events):
        self.plant.put(QUEUE, NODE, events)

    def run_workers(self):
        return self.plant.run(QUEUE, NODE, 5_000)


@pytest.fixture(params=[MemoryRig], ids=["memory"])
def rig(request):
    return request.param()


def container(rig, node=NODE):
    return rig.plant.observe()["queues"][QUEUE]["containers"][node]


def test_a_snapshot_is_plain_json_and_the_callers_own(rig):
    snapshot = rig.plant.observe()
    assert json.loads(json.dumps(snapshot, allow_nan=False)) == snapshot
    snapshot["queues"].clear()
    assert rig.plant.observe()["queues"]


def test_snapshots_are_numbered_and_timed_in_order(rig):
    first, second = rig.plant.observe(), rig.plant.observe()
    assert second["seq"] > first["seq"]
    assert second["at"] >= first["at"]


def test_a_snapshot_holds_what_the_loops_read(rig):
    rig.publish(7)
    row = container(rig)
    assert row["waiting_events"] == 7
    assert {"inserted_events", "removed_events", "waiting_to_run", "workers_started"} <= set(row)
    assert {"state", "stale", "age_seconds"} <= set(rig.plant.observe()["nodes"][NODE])


def test_submitted_workers_wait_to_run_then_run_and_remove_events(rig):
    rig.publish(7_000)
    assert rig.plant.start_workers(QUEUE, NODE, 2, ["e1-0", "e1-1"]) == ["e1-0", "e1-1"]
    assert container(rig)["waiting_to_run"] == 2
    assert rig.run_workers() == 2
    row = container(rig)
    assert (row["waiting_to_run"], row["workers_started"], row["removed_events"]) == (0, 2, 7_000)


def test_the_same_ids_submitted_again_run_only_once(rig):
    for _ in range(2):
        rig.plant.start_workers(QUEUE, NODE, 2, ["e1-0", "e1-1"])
    assert rig.run_workers() == 2
    rig.plant.start_workers(QUEUE, NODE, 2, ["e1-0", "e1-1"])
    assert rig.run_workers() == 0


def test_workers_of_one_container_do_not_count_at_another(rig):
    rig.plant.start_workers(QUEUE, NODE, 1, ["e1-0"])
    assert container(rig, "n2")["waiting_to_run"] == 0


def test_an_order_that_does_not_fit_is_refused_and_changes_nothing(rig):
    with pytest.raises(BadInput):
        rig.plant.start_workers(QUEUE, NODE, 2, ["e1-0"])
    with pytest.raises(BadInput):
        rig.plant.start_workers(QUEUE, "n9", 1, ["e1-0"])
    assert container(rig)["waiting_to_run"] == 0
