"""The thesis' manager: its rules one by one, and its own tables."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.worker_rate.law import WorkerRate
from tests.controllers.worker_rate.thesis_tables import ROWS

LAW = WorkerRate()


def parameters(**given_values):
    chosen = {"method": "thesis", "events_per_worker": 50, "upper_limit": 250, **given_values}
    return catalog.read_parameters(LAW, chosen)


def state_of(rate):
    return catalog.read_state(LAW, parameters(), {"rate": rate, "carry": 0.0, "history": []})


def observe(length, **given_values):
    return catalog.read_observation(LAW, {"queue_length": length, **given_values})


def run(values, *lengths, state=None, **observed):
    state = state or start_state(LAW, values)
    decisions = []
    for length in lengths:
        state, decision = decide_next(LAW, values, state, observe(length, **observed))
        decisions.append(decision)
    return state, decisions


def started(decisions):
    return [decision.action["start"] if decision.action else 0 for decision in decisions]


def test_events_that_wait_are_never_served_slower_than_by_one_worker_per_interval():
    values = parameters(minimum_rate=0.01)
    state, decisions = run(values, *[1] * 60)
    assert state["rate"] < 0.02
    assert started(decisions) == [1] * 60
    assert "at least one worker" in decisions[-1].reason


def test_a_breach_of_the_upper_limit_raises_the_rate_by_one_step_of_a_fifth():
    state, (decision,) = run(parameters(), 251)
    assert state["rate"] == pytest.approx(1.2)
    assert "the queue of 251 events is over the limit of 250" in decision.reason
    assert run(parameters(), 250)[0]["rate"] == 1.0


def test_more_than_four_low_lengths_in_the_last_minute_lower_the_rate_by_a_tenth():
    low = state_of(10.0)
    assert run(parameters(), *[124] * 4, state=low)[0]["rate"] == 10.0
    assert run(parameters(), *[124] * 5, state=low)[0]["rate"] == pytest.approx(9.0)
    assert run(parameters(), *[125] * 5, state=low)[0]["rate"] == 10.0


def test_a_low_minute_comes_before_a_breach_as_the_thesis_lists_them():
    state, _ = run(parameters(), 0, 0, 0, 0, 0, 1000, state=state_of(10.0))
    assert state["rate"] == pytest.approx(8.1)


def test_a_backlog_of_twice_the_limit_gets_one_worker_more():
    assert started(run(parameters(), 500)[1]) == [1]
    assert started(run(parameters(), 501)[1]) == [2]


def test_too_many_workers_waiting_to_run_stop_submissions_and_the_rate():
    state, (decision,) = run(parameters(maximum_waiting_to_run=5), 5000, waiting_to_run=6)
    assert (decision.action, decision.limited_by) == (None, "maximum_waiting_to_run")
    assert state["rate"] == 1.0
    assert "6 workers wait to run, and the limit is 5" in decision.reason
    assert started(run(parameters(maximum_waiting_to_run=5), 5000, waiting_to_run=5)[1]) == [2]


def test_no_more_workers_start_than_what_waits_can_fill():
    state = state_of(40.0)
    _, (decision,) = run(parameters(), 170, state=state)
    assert (decision.action, decision.limited_by) == ({"start": 4}, "waiting events")


@given(st.floats(0.01, 50.0), st.integers(1, 300))
def test_fractions_of_workers_add_up_exactly(rate, intervals):
    values = parameters(minimum_rate=rate, initial_rate=rate, maximum_rate=rate, start_when="always")
    _, decisions = run(values, *[130] * intervals)
    assert abs(sum(started(decisions)) - rate * intervals) < 1 + 1e-6 * intervals


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=60))
def test_the_rate_stays_within_its_limits_whatever_waits(lengths):
    values = parameters(minimum_rate=0.5, maximum_rate=4)
    state = start_state(LAW, values)
    for length in lengths:
        state, decision = decide_next(LAW, values, state, observe(length))
        assert 0.5 <= state["rate"] <= 4
        assert 0 <= state["carry"] < 1
        assert (decision.action is None) == (length == 0)


def arrivals(maximum_rate):
    """Events per 5 s over the model's 12,000 s (E41): a sine from nothing to the maximum and back."""
    turn = 2 * math.pi / 12_000
    per_second = [maximum_rate * (1 - math.cos(turn * second)) / 2 for second in range(12_000)]
    return [sum(per_second[start : start + 5]) for start in range(0, 12_000, 5)]


def simulate(values, inflow):
    """(waiting, summed every 5 s after workers ran; worker runs): E42.

    At each evaluation the manager sees what the workers of the interval before left.
    """
    state, queue, waiting, runs, submitted = start_state(LAW, values), 0.0, 0.0, 0, 0
    for events in inflow:
        queue = max(0.0, queue + events - submitted * values["events_per_worker"])
        waiting += queue
        state, decision = decide_next(LAW, values, state, observe(queue))
        submitted = decision.action["start"] if decision.action else 0
        runs += submitted
    return waiting, runs


@pytest.mark.thorough
def test_the_tables_of_the_thesis_come_out_within_a_fifth_on_average():
    """E42: a mean |log error| of 0.17 over all 42 figures; and none is off by more than 2.5 times."""
    errors = []
    for maximum_rate, events_per_worker, upper_limit, waiting, runs in ROWS:
        values = catalog.read_parameters(
            LAW,
            {
                "method": "thesis",
                "events_per_worker": events_per_worker,
                "upper_limit": upper_limit,
                "start_when": "always",
                "minimum_rate": 0.01,
            },
        )
        simulated = simulate(values, arrivals(maximum_rate))
        errors += [abs(math.log(mine / printed)) for mine, printed in zip(simulated, (waiting, runs), strict=True)]
    assert sum(errors) / len(errors) <= 0.18
    assert max(errors) <= math.log(2.5)


@pytest.mark.thorough
def test_started_by_what_waits_it_beats_every_row_of_the_tables_in_waiting_and_in_runs():
    for maximum_rate, events_per_worker, upper_limit, waiting, runs in ROWS:
        values = parameters(events_per_worker=events_per_worker, upper_limit=upper_limit)
        mine = simulate(values, arrivals(maximum_rate))
        assert mine[0] < waiting and mine[1] < runs, (maximum_rate, upper_limit, mine)
