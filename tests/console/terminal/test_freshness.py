"""How old what a terminal shows is: never shown as live when it is not, whatever the clocks say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.terminal.freshness import Exchanges, describe_connection
from console.terminal.plain_text import build_cell, format_plain_text
from workers.documents.snapshot import Snapshot


def snapshot(seq: int, at: float) -> Snapshot:
    return Snapshot(seq=seq, at=at)


def test_before_the_first_answer_nothing_is_live_and_the_error_is_said():
    assert describe_connection(Exchanges(0.0), 2.0).sentence == "no response for 2.0 s"
    assert describe_connection(Exchanges(0.0).add_error("The console does not answer."), 2.0).sentence.startswith(
        "The console"
    )
    assert not describe_connection(Exchanges(0.0), 0.0).is_live


def test_what_is_new_is_live_and_says_how_old_it_is_at_most():
    first = Exchanges(0.0).add_snapshot(snapshot(1, 1000.0), 1000.0, 5.0)
    assert describe_connection(first, 5.0).sentence == "1.0 s old"  # the console's clock names whole seconds
    second = first.add_snapshot(snapshot(2, 1001.0), 1002.0, 5.5)
    assert second.compute_age(5.5) == 0.5  # the older one was the newest half a second before
    assert describe_connection(second, 5.7).is_live


def test_one_that_the_observer_made_long_ago_is_not_live_though_the_console_answers():
    seen = Exchanges(0.0).add_snapshot(snapshot(1, 1000.0), 1060.0, 5.0)
    again = seen.add_snapshot(snapshot(1, 1000.0), 1061.0, 6.0)
    assert describe_connection(again, 6.0).word == "Observer not responding"
    assert "1 min old" in describe_connection(again, 6.0).sentence


@pytest.mark.parametrize("behind_seconds", [60.0, 86_400.0])
def test_a_console_whose_clock_is_behind_makes_no_silent_observer_live(behind_seconds):
    seen = Exchanges(0.0)
    for now in range(5, 12):  # the console answers each second, and has nothing newer
        seen = seen.add_snapshot(snapshot(1, 1000.0), 1000.0 + now - behind_seconds, float(now))
    assert describe_connection(seen, 11.0).word == "Observer not responding"
    newer = seen.add_snapshot(snapshot(2, 1007.0), 1012.0 - behind_seconds, 12.0)
    assert describe_connection(newer, 12.0).is_live


def test_a_call_that_fails_and_one_that_nobody_answers_are_a_disconnection_with_its_age():
    seen = Exchanges(0.0).add_snapshot(snapshot(1, 1000.0), 1000.0, 5.0)
    failed = describe_connection(seen.add_error("The console does not answer (ConnectError)."), 16.0)
    assert (failed.word, failed.is_live) == ("Disconnected", False)
    assert failed.sentence == "all data shown is 12 s old. The console does not answer (ConnectError)."
    assert describe_connection(seen, 8.1).sentence.endswith("No response for 3.1 s.")


@given(
    true_age=st.floats(0, 1e5),
    fraction=st.floats(0, 0.999),
    passed=st.lists(st.tuples(st.floats(0.1, 10), st.booleans()), max_size=8),
)
def test_the_age_is_never_less_than_the_true_one(true_age, fraction, passed):
    """Snapshots are made at known instants; the console's clock is cut to whole seconds."""
    now, made, seq = 1_000_000.0 + fraction, 1_000_000.0 + fraction - true_age, 1
    seen = Exchanges(now).add_snapshot(snapshot(seq, made), float(int(now)), now)
    for seconds, is_new in passed:
        before, now = now, now + seconds
        if is_new:  # made somewhere since the last answer
            seq, made = seq + 1, (before + now) / 2
        seen = seen.add_snapshot(snapshot(seq, made), float(int(now)), now)
        assert seen.compute_age(now) >= now - made - 1e-6


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("[bold red]boo[/]", "[bold red]boo[/]"),
        ("a\x1b]0;owned\x07b\x9b31m", "a?]0;owned?b?31m"),
        ("two\nlines\tand\rmore", "two lines and more"),
        ("abc\u202egnp.exe\u2066", "abc?gnp.exe?"),
        (None, "None"),
    ],
)
def test_text_from_outside_is_plain_characters(given_text, shown):
    assert format_plain_text(given_text) == shown
    assert build_cell(given_text).plain == shown and build_cell(given_text).spans == []
