"""What goes on touches its file each time around; what hangs does not, and its health check sees it."""

import os
import threading
from pathlib import Path

import pytest
from django.utils.module_loading import import_string
from django_celery_beat.schedulers import DatabaseScheduler

from common import own_process
from console import beat
from console.celery import app as console_app
from queues.nodes import agent, agent_threads
from queues.publishing import telemetry
from tests.waiting import until
from workers.alerts import alerter
from workers.alerts.alerter import Alerter
from workers.coordination.beat import BeatSchedule
from workers.snapshot.observer import Observer

URL = "redis://127.0.0.1:1/0"


class Rounds:
    """An event that is set after so many waits, which take no time."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def wait(self, _seconds: float) -> bool:
        self.left -= 1
        return self.left < 0

    def is_set(self) -> bool:
        return self.left < 0


class Idle:
    """Does nothing, whatever is asked of it."""

    def __getattr__(self, _name: str):
        return lambda *_: []

    def compute_throttled_seconds(self, _queue: str) -> float:
        return 0.0


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEIR_HEARTBEAT_FILE", str(tmp_path / "heartbeat"))
    return tmp_path / "heartbeat"


def test_a_file_that_is_there_is_touched_anew(file):
    file.touch()
    os.utime(file, (1, 1))
    own_process.touch()
    assert file.stat().st_mtime > 1


def test_without_a_name_there_is_no_file_and_where_none_can_be_nobody_ends(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_HEARTBEAT_FILE", raising=False)
    own_process.touch()
    monkeypatch.setenv("WEIR_HEARTBEAT_FILE", str(tmp_path / "nowhere" / "heartbeat"))
    own_process.touch()
    assert not list(tmp_path.iterdir())


def test_a_telemetry_that_goes_on_touches_it(file):
    telemetry.run(Idle(), Idle(), Rounds(1))
    assert file.exists()


def test_an_agent_that_goes_on_touches_it(file, monkeypatch):
    monkeypatch.setenv("REDIS_URL", URL)
    monkeypatch.setattr(agent, "Agent", lambda *_: Idle())
    monkeypatch.setattr(agent.threading, "Event", lambda: Rounds(1))
    monkeypatch.setattr(own_process, "watch", lambda: None)
    monkeypatch.setattr(agent.signal, "signal", lambda *_: None)
    assert agent.main(["n1"]) == 0 and file.exists()


def test_an_agent_in_a_thread_of_the_observer_does_not_touch_its_file(file, monkeypatch):
    """The observer could hang meanwhile."""
    beats = []
    monkeypatch.setattr(agent_threads.Agent, "beat", lambda agent: beats.append(agent.name))
    agents = agent_threads.AgentThreads(["n1"], URL)
    agents.start()
    until(lambda: beats)
    agents.close()
    assert not file.exists()


def test_only_a_beat_in_its_own_process_touches_it(file, monkeypatch):
    monkeypatch.setattr(DatabaseScheduler, "tick", lambda *_, **__: 1.0)
    monkeypatch.setattr(DatabaseScheduler, "__init__", lambda *_, **__: None)
    monkeypatch.setattr(BeatSchedule, "_follow_the_clock", lambda _: None)
    for app, touches in ((console_app, False), (beat.app, True)):
        import_string(app.conf.beat_scheduler.replace(":", "."))().tick()
        assert file.exists() is touches


def test_an_observer_touches_it_also_while_it_can_observe_nothing(file, monkeypatch):
    monkeypatch.setattr(Observer, "__init__", lambda self: self.__dict__.update(_clock=lambda: 0.0))
    monkeypatch.setattr(Observer, "step", lambda self: 1 / 0)
    monkeypatch.setattr(Observer, "_complain", lambda self, error: None)
    monkeypatch.setattr(Observer, "close", lambda self: None)
    Observer().run(Rounds(1))
    assert file.exists()


def test_an_alerter_that_begins_a_check_touches_it(file, monkeypatch):
    monkeypatch.setattr(Alerter, "__init__", lambda self: None)
    monkeypatch.setattr(Alerter, "deliver", lambda self, stop: None)
    monkeypatch.setattr(Alerter, "close", lambda self: None)
    stop = threading.Event()
    monkeypatch.setattr(Alerter, "step", lambda self, *_: stop.set())
    monkeypatch.setattr(alerter, "CHECK_SECONDS", 0.0)
    Alerter().run(stop)
    assert file.exists()
