"""What goes on touches its file each time around; what hangs does not, and its health check sees it."""

import os
import threading
from pathlib import Path

import pytest

from common import own_process
from queues.nodes import agent
from queues.publishing import telemetry
from workers.alerts import alerter
from workers.alerts.alerter import Alerter
from workers.snapshot.observer import Observer


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


def test_an_agent_and_a_telemetry_that_go_on_touch_it(file):
    for run in (lambda: agent.run(Idle(), Rounds(1)), lambda: telemetry.run(Idle(), Idle(), Rounds(1))):
        run()
        assert file.exists()
        file.unlink()


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
