"""Burn rates and budgets, beside a plain count over rows a minute each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.objectives.error_budget import PAIRS, MinuteCounts, compute_allowed, compute_window_budget, pair_rate

WINDOW = 4_400  # minutes: more than the longest of the pairs
# Stretches of minutes that are alike: how long, how much was counted in each, and the share that was bad.
# Nothing at all is counted in a gap.
stretches = st.lists(
    st.tuples(
        st.integers(1, 1_200),
        st.sampled_from([0.0, 1.0, 60.0, 1_234.5]),
        st.sampled_from([0.0, 0.0, 0.001, 0.02, 0.3, 1.0]),
    ),
    min_size=1,
    max_size=4,
)


def replayed(history):
    """A recorded history as {minute: (bad, total)}, its running minute, and what the counts make of it."""
    rows, minute = {}, 1_000_000
    counts = MinuteCounts(WINDOW, minute)
    for length, total, share in history:
        for _ in range(length):
            if total:
                rows[minute] = (share * total, total)
                counts.add(minute, share * total, total)
            minute += 1
    counts.advance(minute - 1)
    return rows, minute - 1, counts


def plain_rate(rows, now, minutes, target):
    """By hand: every row of the window, one after the other."""
    bad = total = 0.0
    for minute, (wrong, counted) in rows.items():
        if now - minutes < minute <= now:
            bad, total = bad + wrong, total + counted
    return None if total == 0 else (bad / total) / (1 - target)


@given(stretches, st.sampled_from([0.9, 0.99, 0.999]))
def test_burn_rates_on_replayed_histories_equal_a_count_over_every_row(history, target):
    rows, now, counts = replayed(history)
    for pair in PAIRS:
        rates = [plain_rate(rows, now, each, target) for each in (pair.long_minutes, pair.short_minutes)]
        counted = sum(now - pair.long_minutes < minute <= now for minute in rows)
        known = None not in rates and counted >= pair.short_minutes
        found = pair_rate(counts, pair, target)
        assert (found is None) == (not known)
        if known:
            assert found == pytest.approx(min(rates))


@given(stretches, st.sampled_from([0.9, 0.999]))
def test_what_is_left_of_a_budget_equals_a_count_over_every_row(history, target):
    rows, now, counts = replayed(history)
    inside = [each for minute, each in rows.items() if now - WINDOW < minute]
    bad, total = sum(each[0] for each in inside), sum(each[1] for each in inside)
    whole = counts.sum_window()
    assert (whole.bad, whole.total, whole.minutes) == (pytest.approx(bad), pytest.approx(total), len(inside))
    assert compute_allowed(whole, target) - whole.bad == pytest.approx((1 - target) * total - bad, abs=1e-6)


def test_minutes_leave_the_window_and_come_back_with_no_clock():
    counts = MinuteCounts(60, 100)
    counts.add(100, 5.0, 60.0)
    counts.advance(159)
    assert counts.sum_newest(60).bad == 5.0
    counts.advance(160)
    assert counts.sum_newest(60).bad == 0.0
    counts.add(150, 1.0, 60.0)  # a clock that was set back
    assert counts.get(150) == (1.0, 60.0) and counts.sum_newest(60).bad == 1.0
    counts.add(99, 9.0, 60.0)  # long gone
    assert counts.sum_newest(60).bad == 1.0


@given(st.floats(0, 60), st.floats(60, 6_000), st.integers(1, WINDOW))
def test_the_budget_of_a_window_is_that_of_what_was_counted_for_all_its_minutes(bad, total, minutes):
    counts = MinuteCounts(WINDOW, 0)
    for minute in range(minutes):
        counts.add(minute, min(bad, total), total)
    whole = counts.sum_window()
    assert compute_window_budget(whole, 0.99, counts.minutes) == pytest.approx(0.01 * total * WINDOW)
    if minutes == WINDOW:
        assert compute_window_budget(whole, 0.99, counts.minutes) == pytest.approx(compute_allowed(whole, 0.99))
