"""The tasks: a worker, a tick, the upkeep, and the schedule that calls them."""

import threading
from contextlib import contextmanager

import pytest
import redis
from celery import current_app
from django_celery_beat.models import PeriodicTask

from common.stored_document import encode_document
from queues import keys, pausing
from queues.control.connection import NotReplicated
from queues.nodes.agent import Agent
from queues.segments.segment import Segment
from tests.waiting import until
from tests.workers.samples import fill
from workers import tasks
from workers.consumer.work_report import WorkReporter
from workers.control.loops import ensure_schedule
from workers.models import LedgerEntry, Loop
from workers.placement import execution
from workers.plants.foreign import adapters
from workers.plants.foreign.interventions import Intervention, list_active
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable
from workers.snapshot.local import LocalPlant
from workers.snapshot.observer import Observer

pytestmark = pytest.mark.django_db


def sent(control: redis.Redis) -> int:
    return sum(control.llen(key) for key in control.keys("weir:celery:jobs*") if control.type(key) == b"list")


@pytest.mark.usefixtures("broker")
def test_a_tick_starts_workers_where_events_wait_and_records_why(control, nodes, plant_topology):
    fill(Segment(nodes["n1"].client(), "alert"), 40, 500)
    observer = Observer(control, LocalPlant(control))
    agents = [Agent(name, control) for name in nodes]
    tasks.upkeep()
    assert Loop.objects.filter(name="worker_rate/alert/n1").exists()
    for _ in range(2):  # an age is known from the second beat on
        for agent in agents:
            agent.beat()
        observer.step()
    tasks.tick(law="flow")  # as the beat of an older Weir asks
    entry = LedgerEntry.objects.get(loop__name="worker_rate/alert/n1")
    assert entry.applied and entry.action["start"] >= 1, entry.reason
    assert sent(control) == entry.action["start"]
    assert control.zcard("weir:submitted:alert:n1") == entry.action["start"]
    assert LedgerEntry.objects.get(loop__name="worker_rate/alert/n2").action is None


@pytest.mark.usefixtures("broker", "plant_topology")
def test_a_snapshot_that_can_not_be_read_ends_no_task_and_is_said_once(control, caplog):
    observer = Observer(control, LocalPlant(control))
    tasks.upkeep()
    observer.step()
    stored = control.get(keys.SNAPSHOT) or b""
    control.set(keys.SNAPSHOT, '{"seq": "of another version"}')
    for _ in range(3):
        for task in (tasks.tick, tasks.advance, tasks.upkeep, tasks.repeat_orders):
            task()
    assert Loop.objects.exists() and not LedgerEntry.objects.exists()
    (line,) = said_of_snapshots(caplog)
    assert "can't be read (snapshot.seq: expected `int`" in line and "with the same version" in line
    control.set(keys.SNAPSHOT, stored)
    for task in (tasks.tick, tasks.advance, tasks.tick):
        task()
    assert said_of_snapshots(caplog) == [line, "The snapshot can be read again."]
    assert LedgerEntry.objects.exists()


def said_of_snapshots(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("The snapshot can")]


def test_a_worker_of_a_node_that_is_away_says_so_and_loses_nothing(control, nodes, plant_topology):
    fill(Segment(nodes["n2"].client(), "alert"), 3)
    nodes["n2"].kill()
    tasks.consume("alert", "n2", "w1")
    assert b"is not responding" in control.hget("weir:work:alert:n2", "trouble")
    nodes["n2"].start()
    tasks.consume("alert", "n2", "w2")
    work = control.hgetall("weir:work:alert:n2")
    assert (work[b"events"], work[b"trouble"]) == (b"24", b"")


def test_a_worker_goes_on_while_the_control_server_does_not_answer(control, nodes, plant_topology, monkeypatch):
    fill(Segment(nodes["n1"].client(), "alert"), 3)

    def away(*_):
        raise redis.ConnectionError("the control server is away")

    monkeypatch.setattr(pausing, "load_pauses", away)
    tasks.consume("alert", "n1", "w1")
    work = control.hgetall("weir:work:alert:n1")
    assert (work[b"events"], work[b"trouble"]) == (b"24", b"")


@pytest.mark.parametrize("reply_is_lost", [False, True])
def test_a_worker_that_ends_in_a_fail_over_reports_its_work_once(
    control, nodes, plant_topology, monkeypatch, reply_is_lost
):
    fill(Segment(nodes["n1"].client(), "alert"), 3)
    failures = iter([True, True, False])
    end = WorkReporter.end

    def fails_over(*arguments):
        fails = next(failures)
        if reply_is_lost or not fails:
            end(*arguments)
        if fails:
            raise NotReplicated("no replica has it yet")

    monkeypatch.setattr(WorkReporter, "end", fails_over)
    monkeypatch.setattr(tasks, "END_PAUSES_SECONDS", (0.0, 0.0))
    tasks.consume("alert", "n1", "w1")
    work = control.hgetall("weir:work:alert:n1")
    assert (work[b"finished"], work[b"events"], work[b"effects"]) == (b"1", b"24", b"24")
    assert sum(map(int, control.hvals("weir:latency:alert"))) == 24


def test_a_worker_whose_report_nobody_takes_ends_all_the_same(control, nodes, plant_topology, monkeypatch):
    def away(*_):
        raise redis.ConnectionError("the control server is away")

    monkeypatch.setattr(WorkReporter, "end", away)
    monkeypatch.setattr(tasks, "END_PAUSES_SECONDS", (0.0, 0.0))
    tasks.consume("alert", "n1", "w1")


def test_ended_workers_are_forgotten_by_the_segments(nodes, plant_topology, monkeypatch):
    tasks.consume("alert", "n1", "w1")
    sweep = Segment.sweep
    monkeypatch.setattr(Segment, "sweep", lambda segment: sweep(segment, idle_seconds=0.0))
    nodes["n3"].kill()
    assert tasks.sweep(plant_topology) == 1


def test_the_schedule_is_made_once_and_an_operators_change_stays():
    assert ensure_schedule() == PeriodicTask.objects.filter(name__startswith="weir: ").count() > 0
    PeriodicTask.objects.filter(name="weir: tick loops").update(enabled=False)
    assert ensure_schedule() == 0
    assert PeriodicTask.objects.get(name="weir: tick loops").enabled is False
    named = set(PeriodicTask.objects.filter(name__startswith="weir: ").values_list("task", flat=True))
    assert named <= set(current_app.tasks)


def test_the_ticks_of_each_law_which_an_older_weir_had_go():
    ensure_schedule()
    ours = PeriodicTask.objects.get(name="weir: tick loops")
    PeriodicTask.objects.create(name="weir: tick flow", task=ours.task, interval=ours.interval)
    assert ensure_schedule() == 0
    assert list(PeriodicTask.objects.filter(task="workers.tasks.tick")) == [ours]


def test_a_node_that_hangs_is_waited_for_once_however_many_queues_it_holds(nodes, plant_topology, monkeypatch):
    asked: list[str] = []
    segment_on = execution.get_segment

    def asks(topology, queue, node):
        asked.append(node)
        return segment_on(topology, queue, node)

    monkeypatch.setattr(execution, "get_segment", asks)
    monkeypatch.setattr(execution, "TIMEOUT_SECONDS", 1.0)
    nodes["n3"].freeze()
    tasks.sweep(plant_topology)
    nodes["n3"].thaw()
    assert asked.count("n3") == 1 < asked.count("n1")


def test_plants_that_hang_at_the_end_of_what_people_did_there_keep_no_thread_from_the_loops(control, monkeypatch):
    """Two threads tick all loops, and each 10 s it is tried again, for an hour."""
    answers, asked = threading.Event(), list[str]()

    @contextmanager
    def hanging(row):
        answers.wait()
        asked.append(row.name)
        raise PlantUnavailable(f"{row.name} did not answer.")
        yield

    monkeypatch.setattr(adapters, "open_bounded", hanging)
    for name in ("shop", "store"):
        RegisteredPlant.objects.create(name=name, kind="celery", url="redis://broker.example")
        paused = Intervention(kind="pause", subject="celery", value="", before="{}", by="eve", until=1.0)
        control.hset(keys.PLANT_INTERVENTIONS.build(name), paused.field, encode_document(paused))
    try:
        for _ in range(2):
            tasks.undo_interventions()
        assert asked == []
    finally:
        answers.set()
    until(lambda: sorted(asked) == ["shop", "store"])  # neither is asked twice at a time
    until(lambda: all(list_active(control, name)[0].error for name in ("shop", "store")))
