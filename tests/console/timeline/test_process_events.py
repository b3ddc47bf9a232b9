"""A process that the supervisor restarted at once, or that is suspended, is known to the observer."""

import os
from datetime import UTC, datetime

import pytest

from console.connections.supervisor import is_gone
from console.timeline import process_events
from console.timeline.process_events import ProcessWatch
from tests.console.timeline.test_timeline import LOG

AT = datetime(2026, 11, 20, 2, 10, 1, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def running(monkeypatch):
    """All processes of the log run, unless a test says otherwise."""
    monkeypatch.setattr(process_events, "is_gone", lambda pid: False)


def write_log(folder, more=""):
    (folder / "logs").mkdir()
    (folder / "logs" / "supervisor.log").write_text(LOG + more)


def test_a_killed_process_is_an_event_for_a_minute_and_one_that_was_told_to_end_is_none(tmp_path):
    told = "2026-11-20 02:10:02,000 INFO exited: web (exit status 0; expected)\n"
    write_log(tmp_path, f"{told}2026-11-20 02:10:02,500 INFO spawned: 'web' with pid 14\n")
    watch = ProcessWatch(tmp_path)
    (event,) = watch.list_events(AT + 5)
    assert (event.name, event.kind, event.how, event.down_seconds) == ("pipeline", "restarted", "SIGKILL", 1.0)
    assert watch.list_events(AT - 5) == watch.list_events(AT + 61) == []


def test_a_suspended_process_is_an_event_since_it_was_first_seen(tmp_path, monkeypatch):
    pid = os.getpid()
    write_log(tmp_path, f"2026-11-20 02:20:00,000 INFO spawned: 'agent-n1' with pid {pid}\n")
    suspended = {pid}
    monkeypatch.setattr(process_events, "is_suspended", lambda pid: pid in suspended)
    watch = ProcessWatch(tmp_path)
    for now in (AT + 900, AT + 905):
        assert [(event.name, event.kind, event.at) for event in watch.list_events(now)] == [
            ("agent-n1", "suspended", AT + 900)
        ]
    suspended.clear()
    assert watch.list_events(AT + 910) == []


def test_a_process_that_does_not_run_again_is_down_since_it_was_first_seen(tmp_path, monkeypatch):
    write_log(tmp_path, "2026-11-20 02:20:00,000 INFO spawned: 'n2' with pid 4001\n")
    gone = {4001}
    monkeypatch.setattr(process_events, "is_gone", lambda pid: pid in gone)
    watch = ProcessWatch(tmp_path)
    for now in (AT + 900, AT + 905):
        assert [(event.name, event.kind, event.at) for event in watch.list_events(now)] == [("n2", "down", AT + 900)]
    gone.clear()
    assert watch.list_events(AT + 910) == []


def test_a_process_without_an_id_in_the_system_is_gone():
    assert not is_gone(os.getpid()) and is_gone(2**22 + 1)
