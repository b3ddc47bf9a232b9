"""Tests of the checklists: each sentence is ticked, in order, when the plant shows it, and stays ticked."""

from datetime import UTC, datetime

import pytest

from console.drills.checks import CHECKS, DrillEvidence, update_checks
from console.drills.scenarios import SCENARIOS
from console.models import Drill
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus, SlotHolder
from workers.documents.snapshot import PlantTotals, Snapshot
from workers.models import LedgerEntry, Loop

BEGIN = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)


def plant(rate=32.0, waiting=0, oldest=0.0, state="NORMAL", points=1332, crowd=None):
    return Snapshot(
        at=BEGIN.timestamp() + 8.0,
        totals=PlantTotals(in_per_second=rate, worker_slots=2, workers_at_work=2.0),
        queues={"slow": QueueStatus(waiting_events=waiting, oldest_seconds=oldest)},
        nodes={"n1": NodeStatus(points=1000), "n2": NodeStatus(state=state, points=points)},
        crowd=crowd,
    )


def observe(scenario, now, known=None, most_waiting=0, has_ended=False, **fields):
    drill = Drill(scenario=scenario, subjects={"queue": "slow", "node": "n2"}, started_at=BEGIN, **fields)
    return update_checks(known or {}, DrillEvidence(drill, plant(), now, most_waiting, has_ended))


@pytest.mark.parametrize("name", CHECKS)
def test_each_guided_drill_names_what_to_watch(name):
    assert name in SCENARIOS and len(CHECKS[name]) == 3


@pytest.mark.django_db
def test_a_burst_is_ticked_when_the_rate_rises_and_when_workers_start():
    assert observe("burst", plant()) == {}
    assert observe("burst", plant(rate=619.0)) == {"0": "Incoming events rise from 32 to 619 events/s"}
    loop = Loop.objects.create(name="worker_rate/slow/n1", law="worker_rate", target={"queue": "slow", "node": "n1"})
    LedgerEntry.objects.create(loop=loop, at=BEGIN, mode="auto", parameters={}, reason="", action={"start": 2})
    observed = observe("burst", plant(), {"0": "seen"})
    assert observed == {"0": "seen", "1": "The worker rate loops start workers: 2 of 2 slots busy"}


def test_a_queue_is_empty_again_only_after_the_burst():
    known = {"0": "seen", "1": "seen"}
    assert observe("burst", plant(waiting=0), known, most_waiting=900) == known
    assert observe("burst", plant(waiting=500), known, most_waiting=900, has_ended=True) == known
    assert "nearly empty" in observe("burst", plant(waiting=40), known, most_waiting=900, has_ended=True)["2"]


def test_a_slow_handler_is_seen_by_who_holds_the_slots_and_waits_for_the_person():
    crowd = SlotHolder(queue="slow", crowded={"alert": "slow", "process": "slow"})
    observed = observe("slow-handler", plant(waiting=90, oldest=25.0, crowd=crowd))
    assert observed["0"] == "Queue slow uses all worker slots; alert, process wait"
    assert "waited 25 s" in observed["1"] and "2" not in observed
    assert "2" in observe("slow-handler", plant(), {"0": "a", "1": "b"}, action_seconds=4.0)


def test_a_lost_node_is_offline_then_its_points_move_then_it_is_back():
    lost = plant(state="OFFLINE")
    assert observe("node-lost", lost) == {"0": "n2 is offline after 8 s"}
    moved = observe("node-lost", plant(state="OFFLINE", points=0))
    assert moved["1"] == "1,332 of its 1,332 points moved to n1"
    assert set(observe("node-lost", plant(points=0), moved, has_ended=True)) == {"0", "1", "2"}


def test_what_was_seen_stays():
    assert observe("node-lost", plant(), {"0": "n2 is offline after 8 s"}) == {"0": "n2 is offline after 8 s"}
