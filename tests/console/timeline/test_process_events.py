"""A process that the supervisor restarted at once, or that is suspended, is known to the observer."""

import os
from datetime import UTC, datetime

from console.timeline import process_events
from console.timeline.process_events import ProcessWatch
from tests.console.timeline.test_timeline import LOG

AT = datetime(2026, 11, 20, 2, 10, 1, tzinfo=UTC).timestamp()


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
