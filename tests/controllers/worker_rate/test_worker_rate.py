"""The manager that looks ahead: full workers, no event waiting without end, and nothing started in vain."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.worker_rate.arrival_rate import ArrivalRate
from controllers.worker_rate.law import WorkerRate

LAW = WorkerRate()


def parameters(**given_values):
    return catalog.read_parameters(LAW, {"events_per_worker": 50, "upper_limit": 250, **given_values})


def observe(length, **given_values):
    return catalog.read_observation(LAW, {"queue_length": length, **given_values})


def run(values, *observations, state=None):
    state = state or start_state(LAW, values)
    decisions = []
    for each in observations:
        state, decision = decide_next(LAW, values, state, observe(**each))
        decisions.append(decision)
    return state, decisions


def started(decisions):
    return [decision.action["start"] if decision.action else 0 for decision in decisions]


def one(values, length, state=None, **observed):
    return run(values, {"length": length, **observed}, state=state)[1][0]


def test_nothing_waiting_starts_nothing_and_says_so():
    decision = one(parameters(), 0)
    assert decision.action is None
    assert decision.reason == "No action: queue is empty."


def test_a_backlog_gets_all_its_workers_at_once_and_none_too_many():
    decision = one(parameters(events_per_worker=5_000), 52_700)
    assert decision.action == {"start": 11}
    assert decision.reason.startswith("Start 11 workers: ") and "queue: 52,700 events" in decision.reason.lower()


def test_what_workers_under_way_will_take_gets_no_second_worker():
    values = parameters(events_per_worker=5_000, maximum_waiting_to_run=50)
    burst = {"length": 52_700, "running": 0}
    half = {"length": 42_000, "removed": 10_700, "started": 5, "waiting_to_run": 6, "running": 3}
    _, decisions = run(values, burst, half)
    assert started(decisions) == [11, 0]
    assert decisions[1].reason.startswith("No action: active workers will process the 42,000 events.")


def test_a_few_events_get_a_worker_before_they_wait_too_long():
    values = parameters(max_wait_seconds=30)
    _, decisions = run(values, *[{"length": 3}] * 6)
    assert started(decisions) == [0, 0, 0, 0, 1, 0]
    assert "3 events would exceed the 30 s wait limit before the next check" in decisions[4].reason


def test_the_age_of_the_oldest_event_counts_where_it_is_known():
    values = parameters(max_wait_seconds=30)
    assert one(values, 3, oldest_seconds=24).action is None
    assert one(values, 3, oldest_seconds=24.1).action == {"start": 1}


def test_by_default_no_event_waits_longer_than_one_interval_for_a_full_worker():
    assert started(run(parameters(), *[{"length": 1}] * 5)[1]) == [1] * 5


def test_more_than_the_upper_limit_waits_shorter_in_proportion():
    """60 s * 100 / 400 = 15 s: at age 9 it can wait for the next check, at age 10 it can't."""
    values = parameters(events_per_worker=1_000, upper_limit=100, max_wait_seconds=3_600)
    assert one(values, 400, oldest_seconds=9).action is None
    assert one(values, 400, oldest_seconds=10).action == {"start": 1}
    assert one(values, 100, oldest_seconds=50).action is None


def test_what_the_limit_allows_waits_for_a_full_worker_and_a_fifth_more_does_not():
    values = parameters(events_per_worker=1_000, upper_limit=100, max_wait_seconds=3_600)
    assert one(values, 120, oldest_seconds=3_500).action is None
    assert one(values, 121, oldest_seconds=60).action == {"start": 1}


def test_a_worker_that_fills_slowly_starts_when_it_is_nearly_full():
    """At 1 event an interval it waits for 91 of 100; at 20 it starts with 82 that it will find."""
    for coming, least in ((1.0, 91), (20.0, 82)):
        known = {"rate": 1, "carry": 0, "history": []}
        known["arrivals"] = {"level": coming, "trend": 0.0, "bias": 0.0, "deviation": 0.0}
        values = parameters(
            events_per_worker=100, upper_limit=100, max_wait_seconds=600, interval_seconds=1, lead_seconds=1
        )
        starts = [
            length
            for length in range(50, 100)
            if one(values, length, state=catalog.read_state(LAW, values, known)).action
        ]
        assert starts[0] == least - coming, coming


def test_what_is_coming_is_fed_forward_only_above_what_may_wait():
    """40 wait and 40 come by the time a worker runs: it would be full, and is sure to be needed at 50."""
    known = {"rate": 1, "carry": 0, "history": [40]}
    known["arrivals"] = {"level": 40.0, "trend": 0.0, "bias": 0.0, "deviation": 0.0}
    for limit, count in ((50, 1), (1_000, 0)):
        values = parameters(upper_limit=limit, lead_seconds=5, max_wait_seconds=60)
        decision = one(values, 40, state=catalog.read_state(LAW, values, known), removed=40)
        assert decision.terms["found"] == pytest.approx(80)
        assert started([decision]) == [count], limit


@pytest.mark.parametrize(("waiting", "count"), [(120, 18), (0, 0)])
def test_workers_start_for_what_is_coming_unless_the_queue_is_empty(waiting, count):
    """1,000 come until a worker runs, and half the limit of 500 may wait: (waiting + 1,000 - 250) / 50."""
    known = {"rate": 1, "carry": 0, "history": [waiting]}
    known["arrivals"] = {"level": 1_000.0, "trend": 0.0, "bias": 0.0, "deviation": 0.0}
    steady = catalog.read_state(LAW, parameters(), known)
    decision = one(parameters(upper_limit=500, lead_seconds=5), waiting, state=steady, removed=1_000)
    assert started([decision]) == [count]


def test_a_rate_at_its_maximum_says_what_keeps_it_there():
    decision = one(parameters(maximum_rate=3), 400)
    assert (decision.action, decision.limited_by) == ({"start": 3}, "maximum_rate")


def test_too_many_workers_waiting_to_run_stop_submissions():
    decision = one(parameters(maximum_waiting_to_run=5), 5_000, waiting_to_run=6, started=6)
    assert (decision.action, decision.limited_by) == (None, "maximum_waiting_to_run")
    assert "worker hosts are full; 6 workers wait to run, and the limit is 5" in decision.reason


def test_a_pool_that_runs_far_fewer_than_are_submitted_stops_submissions():
    values = parameters()
    decision = one(values, 5_000, waiting_to_run=9, started=4)
    assert (decision.action, decision.limited_by) == (None, "executed workers")
    assert "only 4 start per interval" in decision.reason
    assert one(values, 5_000, waiting_to_run=8, started=4).action == {"start": 12}
    assert one(values, 5_000, waiting_to_run=3).action == {"start": 17}


def saturated(intervals, **values):
    """A pool that runs two workers an interval while 200 events arrive, which would need four."""
    chosen = parameters(**values)
    state, length, waiting, most = start_state(LAW, chosen), 1_000.0, 0, 0
    for _ in range(intervals):
        ran = min(2, waiting)
        waiting, removed = waiting - ran, min(length, ran * 50.0)
        length += 200 - removed
        seen = observe(length, removed=removed, started=ran, waiting_to_run=waiting, running=0)
        state, decision = decide_next(LAW, chosen, state, seen)
        waiting += started([decision])[0]
        most = max(most, waiting)
    return most


def test_a_saturated_pool_is_not_flooded_with_submissions():
    assert saturated(200) <= 30


def test_a_toobusy_node_gets_fewer_workers_each_interval_down_to_the_minimum_rate():
    well = {"length": 2_000, "removed": 1_000, "started": 20, "node_state": "NORMAL"}
    busy = {**well, "length": 3_000, "node_state": "TOOBUSY", "started": 20}
    _, decisions = run(parameters(), well, *[busy] * 12)
    starts = started(decisions)
    assert starts[0] == 40
    assert 12 <= starts[1] <= 14 and starts[2] < starts[1]
    assert starts[-1] == 1
    assert decisions[1].limited_by == "node_state"
    assert "the node is TOOBUSY" in decisions[1].reason


def test_a_node_that_has_recovered_gets_its_workers_back_step_by_step():
    busy = {"length": 3_000, "started": 10, "node_state": "TOOBUSY"}
    well = {"length": 3_000, "started": 10, "node_state": "NORMAL"}
    state, decisions = run(parameters(), busy, *[well] * 14, {"length": 30, "node_state": "NORMAL"})
    starts = started(decisions)
    assert starts[0] == 7 and 8 <= starts[1] <= 9 and starts[13] == 60
    assert starts[:14] == sorted(starts[:14])
    assert state["cap"] is None


def test_a_node_that_was_toobusy_for_long_gets_back_soon_what_it_bore_before():
    busy, well = ({"length": 30_000, "started": 40, "node_state": state} for state in ("TOOBUSY", "NORMAL"))
    _, decisions = run(parameters(), *[busy] * 14, *[well] * 7)
    starts = started(decisions)
    assert starts[13] == 1
    assert starts[14:] == [2, 4, 8, 16, 28, 34, 40]


def test_a_node_that_gets_toobusy_while_it_recovers_bears_less_than_was_thought():
    busy, well = ({"length": 30_000, "started": 0, "node_state": state} for state in ("TOOBUSY", "NORMAL"))
    first = {**busy, "started": 40}
    state, decisions = run(parameters(), first, *[busy] * 13, *[well] * 4, busy, *[well] * 3)
    assert started(decisions)[14:18] == [2, 4, 8, 16]
    assert state["borne"] == pytest.approx(0.7 * 16)
    assert started(decisions)[18:] == [11, 14, 16, 19]


def test_workers_that_are_slow_get_help_and_those_lost_before_they_ran_a_successor():
    values = parameters(events_per_worker=5_000)
    first = {"length": 900, "running": 0}
    slow = {"length": 1_400, "removed": 100, "started": 1, "running": 1, "oldest_seconds": 9}
    lost = {"length": 900, "waiting_to_run": 1, "running": 0, "oldest_seconds": 9}
    assert started(run(values, first, slow)[1]) == [1, 1]
    assert started(run(values, first, lost)[1]) == [1, 1]
    assert started(run(values, first, {**slow, "oldest_seconds": 4})[1]) == [1, 0]


def test_workers_started_are_expected_to_remove_what_they_can_take():
    assert one(parameters(), 120).expected.to_json() == {
        "metric": "removed_events",
        "direction": "up",
        "amount": 120.0,
        "within_seconds": 10.0,
    }
    # The pool is trusted with four an interval until it has shown more: 20 of them need five.
    assert one(parameters(), 1_000).expected.within_seconds == 30
    assert one(parameters(), 1_000, started=20).expected.within_seconds == 10


def test_a_person_may_change_the_method_at_any_time():
    values = parameters()
    state, _ = run(values, {"length": 400}, {"length": 700})
    thesis, (by_rate,) = run(parameters(method="thesis"), {"length": 900}, state=state)
    back, (by_forecast,) = run(values, {"length": 900}, state=thesis)
    assert (by_rate.terms["method"], by_forecast.terms["method"]) == ("thesis", "forecast")
    assert back["history"] == [400, 700, 900, 900]


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=60), st.integers(1, 5_000))
def test_what_waits_is_served_at_once_or_within_the_bound_whatever_comes(lengths, size):
    values = parameters(events_per_worker=size, maximum_rate=1e4)
    state, quiet = start_state(LAW, values), 0
    for length in lengths:
        state, decision = decide_next(LAW, values, state, observe(length))
        quiet = quiet + 1 if length and not decision.action else 0
        assert quiet == 0
        assert started([decision])[0] <= min(1e4, math.ceil(decision.terms["found"] / size))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 10), st.floats(0, 5))
def test_a_forecast_is_never_negative_and_more_caution_expects_less(counts, intervals, caution):
    rate = ArrivalRate(counts[0])
    for count in counts[1:]:
        rate = rate.update(count, 0.3)
    assert 0 <= rate.predict_ahead(intervals, caution) <= rate.predict_ahead(intervals)


def test_the_forecast_follows_a_slope_exactly_and_a_step_within_a_few_intervals():
    slope = ArrivalRate(0.0)
    for count in range(1, 60):
        slope = slope.update(10.0 * count, 0.1)
    assert slope.predict_ahead(1) == pytest.approx(600, rel=0.01)
    step = ArrivalRate(50.0)
    for _ in range(4):
        step = step.update(1_000.0, 0.1)
    assert step.predict_ahead(1) == pytest.approx(1_000, rel=0.2)


def test_a_spike_of_one_interval_is_not_expected_to_come_again_and_one_of_two_is():
    rate = ArrivalRate(0.0, recent=(0.0,)).update(0.0, 0.1).update(1_000.0, 0.1)
    assert rate.level > 800 and rate.predict_ahead(1) == 0
    assert rate.update(1_000.0, 0.1).predict_ahead(1) > 800
    assert rate.update(0.0, 0.1).predict_ahead(1) == 0


def test_parameters_that_contradict_each_other_are_refused():
    for given_values in ({"minimum_rate": 5, "maximum_rate": 4}, {"history": 3, "low_count": 4}):
        with pytest.raises(BadInput):
            parameters(**given_values)


def test_a_rest_that_would_wait_too_long_sends_its_worker_ahead_of_other_queues():
    values = parameters(max_wait_seconds=30)
    assert one(values, 3, oldest_seconds=24.1).terms["ahead"] == 1
    assert one(values, 100, oldest_seconds=1).terms["ahead"] == 0


def test_a_backlog_that_nobody_works_at_gets_one_worker_ahead_and_the_others_by_priority():
    values = parameters(events_per_worker=5_000, max_wait_seconds=5)
    unattended = one(values, 52_700, oldest_seconds=6, running=0)
    assert (unattended.action, unattended.terms["ahead"]) == ({"start": 11}, 1)
    assert one(values, 52_700, oldest_seconds=6, running=1).terms["ahead"] == 0


def test_where_no_worker_starts_none_is_ahead():
    values = parameters(max_wait_seconds=5, maximum_waiting_to_run=1)
    full = one(values, 52_700, oldest_seconds=60, running=0, waiting_to_run=2)
    assert (full.action, full.terms["ahead"]) == (None, 0)


@pytest.mark.parametrize("method", ["forecast", "thesis"])
def test_while_the_circuit_is_open_one_worker_at_a_time_makes_test_calls(method):
    values = parameters(method=method)
    probing = {"length": 5_000, "is_circuit_open": True}
    observed = [probing, probing | {"running": 1}, probing | {"waiting_to_run": 1}, probing | {"length": 0}]
    state, decisions = run(values, {"length": 5_000}, *observed)
    assert started(decisions)[1:] == [1, 0, 0, 0]
    assert decisions[1].reason == (
        "Start 1 worker: the circuit of the destination is open; one worker at a time makes test calls."
    )
    assert {decision.limited_by for decision in decisions[1:]} == {"open circuit"}
    assert not any(decision.expected for decision in decisions[1:]), "a test call may fail"
    assert started(run(values, {"length": 5_000, "running": 0}, state=state)[1])[0] > 0


def test_workers_that_have_ended_before_their_events_are_counted_out_get_no_successors():
    values = parameters(events_per_worker=5_000)
    burst = {"length": 66_560, "running": 0}
    ended = {"length": 61_952, "removed": 4_608, "started": 7, "waiting_to_run": 7, "running": 1}
    assert started(run(values, burst, ended)[1]) == [14, 0]
