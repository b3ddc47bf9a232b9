"""Loops that tick together: as if each had ticked alone, for a fraction of the cost."""

import itertools
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from tests.waiting import until
from tests.workers.loops import JOBS, ensured, jobs_topology
from workers.control import engine
from workers.control import tick as ticks
from workers.control.engine import AttachedTicks
from workers.control.kinds import worker_rate
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop
from workers.plants.memory import MemoryPlant

pytestmark = pytest.mark.django_db
START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
WAITING = (0, 300, 1_200, 90_000)


def queues(count):
    return [f"queue{number}" for number in range(count)]


def made(control, count=4):
    """(a plant of so many queues, each on one node; the loops of their workers)."""
    plant = MemoryPlant(lambda: START.timestamp(), [(queue, "n1") for queue in queues(count)])
    for queue, events in zip(queues(count), itertools.cycle(WAITING), strict=False):
        plant.put(queue, "n1", events)
    return plant, ensured(control, JOBS, jobs_topology(**{queue: {"n1": 1_000} for queue in queues(count)}))


def tick_all(plant, control, now=START, **others):
    return engine.tick_due(plant, now, control, **others)


def recorded(entries):
    return {entry.loop.name: (entry.reason, entry.action, entry.state_before, entry.terms) for entry in entries}


def test_each_decides_remembers_and_does_what_it_would_alone(control):
    plant, loops = made(control)
    alone = recorded(engine.tick(loop, plant, START, control) for loop in loops)
    states, started = dict(Loop.objects.values_list("name", "state")), plant.observe().queues
    LedgerEntry.objects.all().delete()
    Loop.objects.all().delete()
    plant, loops = made(control)
    assert recorded(tick_all(plant, control)) == alone
    assert dict(Loop.objects.values_list("name", "state")) == states
    assert {name: row.containers["n1"].waiting_to_run for name, row in plant.observe().queues.items()} == {
        name: row.containers["n1"].waiting_to_run for name, row in started.items()
    }
    acted = LedgerEntry.objects.filter(action__isnull=False)
    assert acted.count() == 3 and all(entry.applied for entry in acted)


def test_forty_ask_the_database_as_often_as_four(control):
    asked = []
    for count in (4, 40):
        Loop.objects.all().delete()
        plant, _ = made(control, count)
        with CaptureQueriesContext(connection) as queries:
            assert len(tick_all(plant, control)) == count
        asked.append(len(queries))
    assert asked[1] <= asked[0] + 2, asked  # an insert takes so many rows at a time


def test_a_process_that_observed_slowly_repeats_no_decision_of_another_one(control):
    plant, loops = made(control)
    observe, passed = plant.observe, []

    def observe_slowly():
        seen = observe()
        if not passed:
            passed.append(2.0)
            assert len(tick_all(plant, control, START + timedelta(seconds=2))) == len(loops)
        return seen

    plant.observe = observe_slowly
    assert tick_all(plant, control, START, clock=lambda: sum(passed)) == []
    assert LedgerEntry.objects.count() == len(loops)


def test_a_process_that_was_slow_decides_nothing_on_the_observation_of_the_last_decision(control):
    plant, loops = made(control)
    assert len(tick_all(plant, control)) == len(loops)
    seconds = itertools.chain([0.0], itertools.repeat(1.0))
    assert tick_all(plant, control, START, clock=lambda: next(seconds)) == []


def test_one_whose_record_can_not_be_written_stops_no_other(control, monkeypatch, caplog):
    plant, loops = made(control)
    sensor = worker_rate.KIND.sensor

    def sensed(target, *others):
        found = sensor(target, *others)
        return replace(found, counters={"of": object()}) if target["queue"] == "queue1" else found

    monkeypatch.setattr(ticks, "get_kind", lambda law: replace(worker_rate.KIND, sensor=sensed))
    ticked = [entry.loop.name for entry in tick_all(plant, control)]
    assert ticked == [loop.name for loop in loops if loop.target["queue"] != "queue1"]
    assert "The tick of worker_rate/queue1/n1 failed" in caplog.text
    assert Loop.objects.get(target__queue="queue1").ticked_at is None


def test_a_database_that_answers_nobody_is_not_asked_for_each_of_them(control, monkeypatch, caplog):
    plant, loops = made(control)
    asked = []

    def away(found, now):
        asked.append(len(found))
        raise OperationalError("the database is locked")

    monkeypatch.setattr(ledger, "record", away)
    assert tick_all(plant, control) == []
    assert asked == [4]
    assert all(f"The tick of {loop.name} failed" in caplog.text for loop in loops)


def test_who_froze_among_its_actions_does_no_more_of_them_once_a_later_tick_was_there(control, monkeypatch):
    plant, _ = made(control)
    start, seconds = plant.start_workers, [0.0]

    def freezes_after_the_first(queue, *others):
        start(queue, *others)
        if queue == "queue1":
            seconds[0] += 60.0  # it runs on as if nothing had been
            Loop.objects.exclude(target__queue="queue1").update(fence=2**62)

    monkeypatch.setattr(plant, "start_workers", freezes_after_the_first)
    tick_all(plant, control, clock=lambda: seconds[0])
    waiting = {name: row.containers["n1"].waiting_to_run for name, row in plant.observe().queues.items()}
    assert waiting["queue1"] == 1 and not any(waiting[queue] for queue in ("queue2", "queue3"))
    confirmed = LedgerEntry.objects.filter(action__isnull=False, applied=True)
    assert [entry.loop.target["queue"] for entry in confirmed] == ["queue1"]


def test_what_died_among_its_actions_is_done_by_the_next_tick_and_started_once(control, monkeypatch):
    plant, loops = made(control)
    start = plant.start_workers

    def dies_after_the_second(queue, *others):
        start(queue, *others)
        if queue == "queue2":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(plant, "start_workers", dies_after_the_second)
        patch.setattr(ledger, "confirm", lambda *entries: None)  # it is gone
        tick_all(plant, control)
    control.delete(*(f"weir:lease:loop:{loop.pk}" for loop in loops))
    first = {entry.loop_id: entry for entry in LedgerEntry.objects.filter(action__isnull=False)}
    assert len(first) == 3 and not any(entry.applied for entry in first.values())
    for number in range(4):
        plant.run(f"queue{number}", "n1", 10**6)
    tick_all(plant, control, START + timedelta(seconds=5))
    assert LedgerEntry.objects.filter(pk__in=[entry.pk for entry in first.values()], applied=True).count() == 3
    started = [name for name in plant.ran if name.startswith(f"e{first[loops[1].pk].pk}-")]
    assert len(started) == len(set(started)) == 1


def test_a_worker_that_can_not_be_sent_is_one_loops_fault(control, monkeypatch):
    plant, _ = made(control)
    start = plant.start_workers

    def refuses_one(queue, *others):
        if queue == "queue1":
            raise ConnectionError("the broker is away")
        start(queue, *others)

    monkeypatch.setattr(plant, "start_workers", refuses_one)
    entries = {entry.loop.target["queue"]: entry for entry in tick_all(plant, control)}
    assert entries["queue1"].error == "ConnectionError: the broker is away"
    assert entries["queue2"].applied and entries["queue3"].applied


def test_loops_of_several_laws_are_due_at_their_own_intervals(control):
    plant, _ = made(control, 1)
    plant.put("queue0", "n1", 10)
    slow = Loop.objects.create(name="slow", law="worker_rate", target=Loop.objects.get().target)
    Loop.objects.exclude(pk=slow.pk).update(interval_seconds=2.0)
    Loop.objects.filter(pk=slow.pk).update(interval_seconds=5.0)
    ticked = {0: 2, 1: 0, 2: 1, 3: 0, 4: 1, 5: 1, 6: 1, 7: 0, 8: 1, 9: 0, 10: 2}
    for second, count in ticked.items():
        assert len(tick_all(plant, control, START + timedelta(seconds=second))) == count, second


def test_an_attached_plant_that_hangs_keeps_no_other_loop_waiting(control):
    plant, loops = made(control)
    there = Loop.objects.create(name="there", law="worker_rate", target={**loops[0].target, "plant": "shop"})
    given = {}
    assert len(tick_all(plant, control, elsewhere=given.__setitem__)) == 4
    assert list(given) == ["shop"]  # it is asked in a thread of its own
    (entry,) = given["shop"]()
    assert entry.loop == there
    assert given["shop"]() == []  # nothing is due twice


def test_a_plants_loops_are_not_begun_again_while_they_are_ticked():
    ticks, hangs, ticked = AttachedTicks(), threading.Event(), []
    ticks.begin("shop", hangs.wait)
    ticks.begin("shop", lambda: ticked.append("shop"))
    ticks.begin("other", lambda: ticked.append("other"))
    until(lambda: ticked == ["other"])
    hangs.set()
    until(lambda: ticks.begin("shop", lambda: ticked.append("shop")) or "shop" in ticked)


def test_a_plant_that_fails_says_so_and_is_ticked_again(caplog):
    ticks, ticked = AttachedTicks(), []

    def fails():
        ticked.append(1)
        raise ConnectionError("the shop is away")

    until(lambda: ticks.begin("shop", fails) or len(ticked) > 1)
    assert "The loops of shop did not tick" in caplog.text
