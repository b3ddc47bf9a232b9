"""The beat on a host whose clock is set."""

from datetime import timedelta

import pytest
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from console.celery import app
from workers.coordination.beat import BeatSchedule

pytestmark = pytest.mark.django_db


class Noted(BeatSchedule):
    """Notes what it would send, and has no broker."""

    producer = None

    def __init__(self, *arguments, **named):
        self.sent = []
        super().__init__(*arguments, **named)

    def sync(self):
        """At the end of the process, too: the database of the tests is gone then."""

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
