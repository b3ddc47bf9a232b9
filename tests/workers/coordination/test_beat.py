"""The beat on a host whose clock is set."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask, PeriodicTasks
from django_celery_beat.schedulers import ModelEntry

from console import beat
from console.celery import app
from tests.console.served import ROOT
from workers.control.loops import ensure_schedule
from workers.coordination.beat import BeatSchedule
from workers.coordination.tick import TICK, TICK_AT_SECONDS

pytestmark = pytest.mark.django_db


class Noted(BeatSchedule):
    """Notes what it would send, and has no broker."""

    producer = None

    def __init__(self, *arguments, **named):
        self.sent = []
        super().__init__(*arguments, **named)

    def sync(self):
        """At the end of the process, too: the database of the tests is gone then."""

    def install_default_entries(self, data):
        """Celery's own goes by a clock of its own."""

    def apply_async(self, entry, *arguments, **named):
        self.sent.append(entry.name)


def scheduled(**last_runs):
    """Tasks that are due at every tick, by when they were last run."""
    always, _ = IntervalSchedule.objects.get_or_create(every=1, period=IntervalSchedule.MICROSECONDS)
    PeriodicTask.objects.all().delete()
    for name, last_run_at in last_runs.items():
        PeriodicTask.objects.create(name=name, task="none", interval=always, last_run_at=last_run_at)
    return Noted(app=app)


def assert_goes_on(beat):
    """Something is sent at once, and nothing waits for a time that lies ahead."""
    for _ in range(3):
        beat.tick()
    assert beat.sent
    assert all(entry.last_run_at <= timezone.now() for entry in beat.schedule.values())


def test_a_beat_that_starts_after_its_clock_was_set_back_sends_what_is_due():
    ahead = timezone.now() + timedelta(minutes=10)
    assert_goes_on(scheduled(one=ahead, two=ahead))


def test_a_clock_that_is_set_back_while_it_beats_keeps_nothing_from_its_turn(monkeypatch):
    beat = scheduled(one=timezone.now(), two=timezone.now())
    with monkeypatch.context() as clock:
        now = timezone.now
        clock.setattr("workers.coordination.beat.time.time", lambda: now().timestamp() + 600)
        beat.tick()
        for entry in beat.schedule.values():
            entry.last_run_at = now() + timedelta(minutes=10)
    beat.sent.clear()
    assert_goes_on(beat)


class Hand:
    """Where the clock of a beat stands, and with `move` later."""

    def __init__(self, monkeypatch):
        self.now = datetime(2026, 11, 28, 12, tzinfo=UTC)
        monkeypatch.setattr("django_celery_beat.models.now", lambda: self.now)
        monkeypatch.setattr(ModelEntry, "_default_now", lambda entry: self.now)
        monkeypatch.setattr("workers.coordination.beat.time", self)

    def time(self):
        return self.now.timestamp()

    def monotonic(self):
        return self.now.timestamp()

    def move(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def hand(monkeypatch):
    return Hand(monkeypatch)


def ticks(hand, every, period, seconds):
    """When the loops are to tick, in seconds since 1970."""
    interval, _ = IntervalSchedule.objects.get_or_create(every=every, period=period)
    PeriodicTask.objects.all().delete()
    began = hand.now - timedelta(minutes=1)
    PeriodicTask.objects.create(name="tick", task=TICK, interval=interval, last_run_at=began)
    beat, found, until = Noted(app=app), [], hand.time() + seconds
    while hand.time() < until:
        wait = beat.tick()
        found += [hand.time()] * len(beat.sent)
        beat.sent.clear()
        hand.move(max(wait, 0.002))  # what a tick takes
    return found


@pytest.mark.parametrize("off_seconds", [0.0, 0.15, 0.39, 0.41, 0.8])
def test_loops_tick_when_a_snapshot_has_just_been_made(hand, off_seconds):
    hand.move(off_seconds)
    first, *found = ticks(hand, 1, IntervalSchedule.SECONDS, 20)
    assert [at % 1.0 for at in found] == pytest.approx([TICK_AT_SECONDS] * len(found), abs=0.02)
    assert 18 <= len(found) <= 20 and first < found[0]
    assert [after - at for at, after in pairwise(found)] == pytest.approx([1.0] * (len(found) - 1), abs=0.02)


def test_ticks_that_somebody_has_set_to_come_more_often_come_as_they_are_set(hand):
    assert 19 <= len(ticks(hand, 500_000, IntervalSchedule.MICROSECONDS, 10)) <= 21


def test_the_beat_sleeps_until_a_task_is_due(hand):
    PeriodicTask.objects.all().delete()
    ensure_schedule()
    beat, calls, until = Noted(app=app), 0, hand.time() + 60
    while hand.time() < until:
        calls += 1
        hand.move(max(beat.tick(), 0.001))
    # It is called again after each task that it sent, and once before the next task.
    assert len(beat.sent) > 120 and calls < 2 * len(beat.sent) + 60


def test_the_beat_sends_tasks_by_name_and_imports_none_of_them():
    program = "\n".join(
        [
            "import sys",
            "from console.beat import app",
            "app.loader.import_default_modules()",
            "app.finalize()",
            "print([name for name in ('workers.tasks', 'console.urls', 'numpy') if name in sys.modules])",
        ]
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_what_the_beat_sends_goes_where_a_worker_would_send_it():
    for task in ("workers.tasks.consume", "workers.tasks.tick"):
        routes = [each.amqp.router.route({}, task)["queue"].name for each in (app, beat.app)]
        assert routes[0] == routes[1]
    assert beat.app.conf.task_ignore_result and beat.app.conf.broker_url == app.conf.broker_url


CONNECTIONS = """
import os
from console.celery import app
app.loader.init_worker()
from celery.signals import task_postrun, task_prerun, worker_init
from django.db import connection
worker_init.send(sender=None)
seen = []
for _ in range(3):
    task_prerun.send(sender=app.Task)
    connection.ensure_connection()
    seen.append(connection.connection)
    task_postrun.send(sender=app.Task)
print(len(set(map(id, seen))), connection.connection is not None)
connection.errors_occurred, connection.is_usable = True, lambda: False
task_prerun.send(sender=app.Task)
print(connection.connection)
"""


def test_a_worker_keeps_its_connection_to_the_database_as_long_as_it_answers(tmp_path):
    environment = {**os.environ, "WEIR_DATA": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", CONNECTIONS], cwd=ROOT, capture_output=True, text=True, check=True, env=environment
    )
    assert said.stdout == "1 True\nNone\n"


@pytest.mark.django_db(transaction=True)
def test_a_schedule_that_is_changed_is_followed_within_two_seconds(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("workers.coordination.beat.time.monotonic", lambda: clock[0])
    beat = scheduled(one=timezone.now())
    beat.tick()
    PeriodicTask.objects.create(
        name="two", task="none", interval=IntervalSchedule.objects.get(), last_run_at=timezone.now()
    )
    PeriodicTasks.update_changed()
    for _ in range(4):
        clock[0] += 0.5
        beat.tick()
    assert "two" in beat.schedule


def test_the_database_is_asked_once_a_second_and_not_at_each_tick(monkeypatch, django_assert_max_num_queries):
    monkeypatch.setattr("workers.coordination.beat.time.monotonic", lambda: 100.0)
    beat = scheduled(one=timezone.now())
    beat.tick()
    with django_assert_max_num_queries(0):
        for _ in range(5):
            beat.tick()
