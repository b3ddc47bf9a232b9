"""How busy a pool is does not depend on the instant at which somebody sees it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.pool.departures import BusyTime


def test_one_that_works_on_counts_each_second_once():
    busy = BusyTime(0.0)
    busy.begin(7, 0.5)
    assert [busy.compute_mean(at, {7}) for at in (1.0, 2.0, 3.0)] == [0.5, 1.0, 1.0]
    busy.end(7, 2.5)  # which is known late
    assert busy.compute_mean(4.0, {7}) == -0.5


def test_a_process_that_was_killed_is_at_work_no_more():
    busy = BusyTime(0.0)
    busy.begin(7, 0.0)
    assert busy.compute_mean(1.0, {8}) == 0.0 and busy.compute_mean(2.0, {7, 8}) == 0.0


@given(
    works=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 20), st.floats(0.01, 5)), max_size=30),
    every=st.floats(0.3, 3),
)
def test_over_time_the_means_are_what_was_worked(works, every):
    """However often it is asked, and also where a begin is known late."""
    busy, free_at, events = BusyTime(0.0), dict.fromkeys(range(4), 0.0), []
    for slot, pause, length in works:
        begin = free_at[slot] + pause
        free_at[slot] = begin + length
        events += [(begin, True, slot), (begin + length, False, slot)]
    worked = sum(length for _, _, length in works)
    asked, at = 0.0, 0.0
    for when, begins, slot in [*sorted(events), (max(free_at.values()) + 1.0, True, None)]:
        while at + every < when:
            at += every
            asked += busy.compute_mean(at, range(4)) * every
        if slot is not None:
            (busy.begin if begins else busy.end)(slot, when)
    end = max(free_at.values()) + 10.0
    asked += busy.compute_mean(end, range(4)) * (end - at)
    assert asked == pytest.approx(worked, abs=1e-6)
