"""What advice would have been worth: as it was where it was followed, never more waiting with more tasks."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.parallelism.advice_value import AdvisedOperator, AdvisedTick, compute_advice_value

MAX_WAIT_SECONDS = 15.0


def operator(tasks, advised, rate, service, waiting=0.0):
    return AdvisedOperator(
        tasks=tasks, advised=advised, rate_per_second=rate, service_seconds=service, waiting_events=waiting
    )


def course(rows, step=5.0):
    return [AdvisedTick(at=step * at, operators={"work": each}) for at, each in enumerate(rows)]


operators = st.builds(
    AdvisedOperator,
    tasks=st.integers(1, 20),
    advised=st.integers(1, 20),
    rate_per_second=st.floats(0, 200),
    service_seconds=st.floats(0, 2),
    waiting_events=st.floats(0, 5_000),
    variability=st.floats(0, 3),
)
courses = st.lists(operators, min_size=2, max_size=12).map(course)


def told(ticks, change):
    return [replace(tick, operators={name: change(each) for name, each in tick.operators.items()}) for tick in ticks]


@settings(deadline=None)
@given(courses)
def test_advice_that_is_what_there_was_would_have_changed_nothing(ticks):
    value = compute_advice_value(told(ticks, lambda each: replace(each, advised=each.tasks)), MAX_WAIT_SECONDS)
    assert value.advised_task_hours == value.task_hours
    assert value.advised_waiting_event_seconds == pytest.approx(value.waiting_event_seconds, abs=1e-6)


@settings(deadline=None)
@given(courses, st.integers(0, 10))
def test_with_more_tasks_nothing_waits_longer_and_with_fewer_nothing_shorter(ticks, more):
    was = compute_advice_value(ticks, MAX_WAIT_SECONDS)
    rich = compute_advice_value(told(ticks, lambda each: replace(each, advised=each.advised + more)), MAX_WAIT_SECONDS)
    assert rich.advised_task_hours >= was.advised_task_hours
    assert rich.advised_waiting_event_seconds <= was.advised_waiting_event_seconds + 1e-6
    assert rich.waiting_event_seconds == was.waiting_event_seconds


def test_a_pool_that_is_too_small_and_advice_to_double_it():
    """10/s come for an hour, 1 s each: 8 processes fall behind by 2/s, 16 keep up."""
    rows = [operator(8, 16, 10.0, 1.0, 2.0 * 5 * at) for at in range(721)]
    value = compute_advice_value(course(rows), MAX_WAIT_SECONDS)
    assert value.measured_seconds == 3_600
    assert (value.task_hours, value.advised_task_hours) == pytest.approx((8.0, 16.0))
    assert value.waiting_event_seconds == pytest.approx(3_600 * 3_600, rel=0.01)  # ∫ 2 t dt
    assert value.advised_waiting_event_seconds < 0.01 * value.waiting_event_seconds
    assert (value.events, value.changes) == (36_000, 1)


def test_what_was_not_measured_is_not_reported():
    nothing = compute_advice_value([AdvisedTick(at=5.0 * at, operators={}) for at in range(100)], MAX_WAIT_SECONDS)
    assert (nothing.measured_seconds, nothing.task_hours, nothing.waiting_event_seconds) == (0, 0, None)
    rows = [replace(operator(8, 4, 2.0, 1.0), waiting_events=None) for _ in range(10)]
    value = compute_advice_value(course(rows), MAX_WAIT_SECONDS)
    assert value.waiting_event_seconds is None and value.task_hours > 0
