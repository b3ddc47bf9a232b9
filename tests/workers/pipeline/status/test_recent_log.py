"""The newest lines of the process' log, for the console."""

import logging

import pytest

from queues import keys
from workers.pipeline.status.published import MAX_LINES, MAX_TEXT, RecentLog, Statuses, list_newest_lines


@pytest.fixture
def log(control):
    return RecentLog(control)


def note(log: RecentLog, text: str, level: int = logging.ERROR) -> None:
    log.handle(logging.LogRecord("weir.pipeline", level, __file__, 1, text, None, None))


def test_the_newest_lines_are_there_first_and_bounded(log, control):
    for number in range(MAX_LINES + 5):
        note(log, f"line {number}\n  at org.apache.spark" + "x" * 2 * MAX_TEXT)
    log.write()
    found = list_newest_lines(control)
    assert len(found) == MAX_LINES
    assert found[0].text.startswith(f"line {MAX_LINES + 4} at org") and found[0].level == "ERROR"
    assert max(len(line.text) for line in found) == MAX_TEXT


def test_a_process_that_starts_goes_on_with_the_lines_of_the_one_before(log, control):
    note(log, "the last words")
    log.write()
    following = RecentLog(control)
    note(following, "the first ones", logging.INFO)
    following.write()
    assert [line.text for line in list_newest_lines(control)] == ["the first ones", "the last words"]


def test_nothing_is_written_without_news_and_what_cannot_be_read_counts_as_none(log, control):
    log.write()
    assert not control.exists(keys.PIPELINE_LOG)
    control.set(keys.PIPELINE_LOG, b"[")
    assert list_newest_lines(control) == []


@pytest.fixture
def full(control):
    """The control server takes nothing that needs memory, as one that is full does."""
    before = control.config_get("maxmemory")["maxmemory"]
    control.config_set("maxmemory-policy", "noeviction")
    control.config_set("maxmemory", 1)
    yield lambda: control.config_set("maxmemory", before)
    control.config_set("maxmemory", before)


def test_a_control_server_that_is_full_ends_no_thread_and_gets_the_lines_when_there_is_room(log, control, full):
    note(log, "no room")
    log.write()
    Statuses(control).enter_state("failed", "no room")
    full()
    log.write()
    assert [line.text for line in list_newest_lines(control)] == ["no room"]
