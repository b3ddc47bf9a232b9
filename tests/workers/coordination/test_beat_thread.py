"""The beat as a thread of the control worker."""

import pytest

from common import environment as variables
from console.celery import app
from tests.waiting import until
from workers.coordination import beat_thread
from workers.coordination.beat_thread import BeatThread, build_beat


class Schedule:
    """A fake schedule that counts its steps, and fails on request."""

    max_interval, fails, is_stored, steps = 1.0, False, False, 0

    def tick(self):
        if self.fails:
            raise RuntimeError
        self.steps += 1
        return 0.01

    def should_sync(self):
        return False

    def close(self):
        self.is_stored = True


@pytest.fixture
def beat():
    made = BeatThread(app)
    made._service.__dict__["scheduler"] = Schedule()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("value", "host", "has_beat"),
    [("1", "control@a", True), ("1", "jobs@a", False), ("1", "spark@a", False), ("0", "control@a", False)],
)
def test_only_a_control_worker_runs_the_beat_and_only_on_request(value, host, has_beat, monkeypatch):
    monkeypatch.setitem(variables.PROCESS, variables.CONTROL_BEAT.name, value)
    assert (build_beat(app, host) is not None) is has_beat


def test_the_beat_sends_until_the_worker_ends_and_stores_its_schedule(beat):
    schedule = beat._service.scheduler
    beat.start()
    until(lambda: schedule.steps > 2)
    assert beat.detect_fault() is None
    beat.close()
    assert schedule.is_stored and beat.detect_fault() is None


def test_a_beat_that_fails_is_a_fault_of_the_worker(beat):
    beat._service.scheduler.fails = True
    beat.start()
    assert until(beat.detect_fault) == "no longer runs the beat"


def test_a_worker_starts_and_stops_its_beat(monkeypatch):
    class Controller:
        pass

    class Ready:
        hostname, controller = "control@a", Controller()

    calls = []
    monkeypatch.setitem(variables.PROCESS, variables.CONTROL_BEAT.name, "1")
    monkeypatch.setattr(beat_thread, "watch", lambda finding: calls.append("watch"))
    monkeypatch.setattr(BeatThread, "start", lambda _: calls.append("start"))
    monkeypatch.setattr(BeatThread, "close", lambda _: calls.append("close"))
    Ready.app = app
    beat_thread.start_beat(Ready)
    beat_thread.start_beat(Ready)  # after a reconnection
    beat_thread.stop_beat(Ready.controller)
    beat_thread.stop_beat(Controller())
    assert calls == ["start", "watch", "close"]
