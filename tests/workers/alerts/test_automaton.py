"""The life of an alert: it is never lost, never stuck, and no clock can change that."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.automaton import Episode, Terms, Thresholds, advance, find_due_steps, reopen

TERMS = Terms(for_seconds=10.0, keep_seconds=20.0, acknowledge_seconds=600.0)
LOOK = 2.0
SIGNALS = ("on", "between", "off", "unknown")


class Course:
    """An alert looked at every 2 s, unless said otherwise."""

    def __init__(self, terms: Terms = TERMS, now: float = 1_000_000.0) -> None:
        self.terms, self.now, self.episode = terms, now, None

    def look(self, signal: str, elapsed: float = LOOK) -> Episode | None:
        self.now += elapsed
        self.episode = advance(self.episode, signal, self.terms, self.now, elapsed)
        return self.episode

    def looks(self, signal: str, seconds: float) -> Episode | None:
        for _ in range(round(seconds / LOOK)):
            self.look(signal)
        return self.episode

    def fire(self) -> Episode:
        self.looks("on", self.terms.for_seconds + 2 * LOOK)
        assert self.episode.state == automaton.FIRING
        return self.episode


def test_it_fires_once_it_has_held_for_long_enough():
    course = Course()
    assert course.looks("on", 10).state == automaton.PENDING
    assert course.look("on").state == automaton.FIRING
    assert course.episode.round == 1


@pytest.mark.parametrize("signal", ["off", "between"])
def test_what_stops_before_it_has_held_for_long_enough_never_was(signal):
    course = Course()
    course.looks("on", 8)
    assert course.look(signal) is None


@pytest.mark.parametrize("signal", ["on", "between"])
def test_a_single_signal_begins_the_clear_time_anew(signal):
    course = Course()
    course.fire()
    course.looks("off", 18)
    course.look(signal)
    assert course.looks("off", 20).state == automaton.FIRING
    assert course.look("off").state == automaton.RESOLVED


def test_what_is_unknown_neither_ends_nor_begins_anything():
    course = Course()
    course.looks("on", 8)
    assert course.looks("unknown", 3_600).state == automaton.PENDING
    course.looks("on", 4)
    assert course.episode.state == automaton.FIRING
    course.looks("off", 10)
    assert course.looks("unknown", 3_600).state == automaton.FIRING


def test_what_nobody_watched_counts_towards_no_duration():
    course = Course()
    course.look("on")
    assert course.look("on", elapsed=3_600).state == automaton.PENDING
    course.fire()
    course.look("off")
    assert course.look("off", elapsed=3_600).state == automaton.FIRING


def test_where_every_check_comes_late_it_fires_and_ends_all_the_same():
    course, late = Course(), automaton.MAX_CHECK_SECONDS + 2
    for _ in range(5):
        assert course.look("on", elapsed=late).state == automaton.PENDING
    assert course.look("on", elapsed=late).state == automaton.FIRING
    for _ in range(10):
        assert course.look("off", elapsed=late).state == automaton.FIRING
    assert course.look("off", elapsed=late).state == automaton.RESOLVED


def test_an_acknowledgement_runs_out_and_it_fires_again_in_a_new_round():
    course = Course()
    course.fire()
    course.episode, _ = find_due_steps(course.episode, False, [0.0], course.now)
    course.episode = automaton.acknowledge(course.episode, TERMS, course.now)
    assert course.looks("on", 598).state == automaton.ACKNOWLEDGED
    assert course.looks("on", 4).state == automaton.FIRING
    after, due = find_due_steps(course.episode, False, [0.0, 60.0], course.now)
    assert (after.round, due) == (2, [0])


def test_what_is_about_to_end_notifies_nobody_when_its_acknowledgement_runs_out():
    course = Course(replace(TERMS, keep_seconds=60.0))
    course.fire()
    course.episode = automaton.acknowledge(course.episode, TERMS, course.now)
    course.looks("on", 590)
    assert course.looks("off", 20).state == automaton.ACKNOWLEDGED
    assert course.look("on").state == automaton.FIRING


def test_snoozing_stops_the_steps_and_ends_by_itself():
    course = Course()
    course.fire()
    course.episode, due = find_due_steps(course.episode, False, [0.0], course.now)
    assert due == [0]
    course.episode = automaton.snooze(course.episode, course.now + 60)
    for _ in range(20):
        course.look("on")
        course.episode, due = find_due_steps(course.episode, True, [0.0], course.now)
        assert due == []
    course.looks("on", 60)
    assert course.episode.snoozed_until is None
    course.episode, due = find_due_steps(course.episode, False, [0.0], course.now)
    assert (course.episode.round, due) == (2, [0])


def test_the_steps_come_in_their_order_after_their_delays():
    course = Course()
    course.fire()
    notified = []
    for _ in range(500):
        course.look("on")
        course.episode, due = find_due_steps(course.episode, False, [0.0, 300.0, 900.0], course.now)
        notified += [(at, course.now - course.episode.told_from) for at in due]
    assert [at for at, _ in notified] == [0, 1, 2]
    assert [round(seconds) for _, seconds in notified] == [0, 300, 900]


def test_after_a_long_gap_all_steps_that_are_due_come_at_once():
    course = Course()
    course.fire()
    course.episode, _ = find_due_steps(course.episode, False, [0.0, 300.0], course.now)
    assert find_due_steps(course.episode, False, [0.0, 300.0], course.now + 5_000)[1] == [1]


def test_what_comes_back_soon_is_the_same_and_nobody_has_it_any_more():
    course = Course()
    course.fire()
    course.episode = automaton.acknowledge(course.episode, TERMS, course.now)
    course.looks("off", 24)
    assert course.episode.state == automaton.RESOLVED
    assert automaton.is_same(course.episode, course.now + 100)
    assert not automaton.is_same(course.episode, course.now + 601)
    again = reopen(course.episode, course.now + 100)
    assert (again.state, again.came_back, again.resolved_at) == (automaton.FIRING, 1, None)
    assert find_due_steps(again, False, [0.0], course.now + 100)[1] == [0]


def test_what_flaps_notifies_somebody_only_after_a_calm_time():
    episode = Episode(automaton.RESOLVED, 0.0, 0.0, resolved_at=10.0, came_back=2, round=1, next_step=1)
    again = reopen(episode, 20.0)
    assert find_due_steps(again, False, [0.0], 21.0)[1] == []
    assert find_due_steps(again, False, [0.0], 20.0 + automaton.CALM_SECONDS)[1] == [0]


@pytest.mark.parametrize(
    ("value", "signal"), [(None, "unknown"), (10.0, "on"), (9.0, "between"), (5.0, "between"), (4.9, "off")]
)
def test_between_the_thresholds_nothing_changes(value, signal):
    assert Thresholds(10.0, 5.0).compute_signal(value) == signal
    assert Thresholds(-10.0, -5.0, above=False).compute_signal(None if value is None else -value) == signal


steps = st.lists(
    st.tuples(
        st.sampled_from((*SIGNALS, "acknowledge", "snooze")),
        st.one_of(st.just(LOOK), st.floats(-90_000.0, 90_000.0)),
        st.booleans(),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_happens_and_however_the_clock_jumps_it_notifies_and_then_it_ends(course):
    """After any history: an alert that holds fires and is told within a bounded time, and one that is clear
    ends within one.
    """
    now, episode, terms = 1_000_000.0, None, TERMS
    for what, jump, quiet in course:
        now += jump
        if what in SIGNALS:
            if episode is not None and episode.state == automaton.RESOLVED:
                episode = None
            episode = advance(episode, what, terms, now, jump)
        elif episode is not None and episode.state in (automaton.FIRING, automaton.ACKNOWLEDGED):
            acknowledge = what == "acknowledge"
            episode = (
                automaton.acknowledge(episode, terms, now) if acknowledge else automaton.snooze(episode, now + 300)
            )
        if episode is not None and episode.state != automaton.PENDING:
            episode, _ = find_due_steps(episode, quiet, [0.0], now)
    if episode is not None and episode.state == automaton.RESOLVED:
        episode = None
    notified, rounds = False, episode.round if episode else 0
    limit = terms.for_seconds + max(terms.acknowledge_seconds, automaton.MAX_SNOOZE_SECONDS) + 60
    for _ in range(round(limit / 600) + 1):
        now += 600
        episode = advance(episode, "on", terms, now, LOOK)
        if episode.state == automaton.FIRING:
            before = episode.next_step
            episode, due = find_due_steps(episode, episode.snoozed_until is not None, [0.0], now)
            notified = notified or bool(due) or (episode.snoozed_until is None and before == 1)
    assert notified and episode.round >= rounds
    for _ in range(round(terms.keep_seconds / LOOK) + 2):
        now += LOOK
        if episode.state != automaton.RESOLVED:
            episode = advance(episode, "off", terms, now, LOOK)
    assert episode.state == automaton.RESOLVED


@given(st.lists(st.tuples(st.sampled_from(SIGNALS), st.booleans()), max_size=80))
def test_a_step_is_due_once_a_round(course):
    now, episode, seen = 0.0, None, set()
    for signal, quiet in course:
        now += LOOK
        if episode is not None and episode.state == automaton.RESOLVED:
            break
        episode = advance(episode, signal, Terms(0.0, 4.0), now, LOOK)
        if episode is None or episode.state == automaton.PENDING:
            continue
        episode, due = find_due_steps(episode, quiet, [0.0, 4.0], now)
        for at in due:
            assert (episode.round, at) not in seen
            seen.add((episode.round, at))


def test_what_is_explained_for_a_moment_starts_no_new_round_and_for_long_it_does():
    course = Course()
    course.fire()
    course.episode, due = find_due_steps(course.episode, False, [0.0, 300.0], course.now)
    assert due == [0]
    for seconds in (5.0, 100.0):
        course.episode, due = find_due_steps(course.episode, False, [0.0, 300.0], course.now + seconds, explained=True)
        assert due == []
    after, due = find_due_steps(course.episode, False, [0.0, 300.0], course.now + 120.0)
    assert (due, after.round) == ([], course.episode.round)
    course.episode, _ = find_due_steps(course.episode, False, [0.0, 300.0], course.now + 700.0, explained=True)
    after, due = find_due_steps(course.episode, False, [0.0, 300.0], course.now + 702.0)
    assert (due, after.round) == ([0], course.episode.round + 1)
