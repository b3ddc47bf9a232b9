"""Pools at rest and on trial: other sizes, work that waits, and hosts that explore together."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.framework.law import resume_state, start_state
from tests.controllers.concurrency.pools import LAW, at_rest, look, read


def waiting_pool(parameters, rate_of, looks, threads=8, mixes=None):
    """Sizes and decisions of a pool that was at rest, while work waits."""
    state, _ = at_rest(parameters, capacity=threads)
    size = state["machine"]["threads"]
    for number in range(looks):
        more = {"waiting": True, "seconds": 5.0, "mix": mixes(number) if mixes else {}}
        state, decision = look(parameters, state, size, [1 / rate_of(size)] * 20, **more)
        if decision.action:
            size = int(decision.action["threads"])
        yield size, decision


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=40), st.sampled_from(["tcc", "explorer"]))
def test_a_pool_is_not_reduced_while_work_waits_unless_more_threads_reduced_the_throughput(rates, method):
    parameters = read(method=method, initial_samples=5, steady_seconds=20.0, trial_seconds=10.0, maximum=64)
    state, threads = at_rest(parameters)
    usual, size, more_was_worse = threads, threads, False
    for rate in rates:
        state, decision = look(parameters, state, size, [1 / rate] * 6, waiting=True, seconds=5.0)
        if state["machine"]["phase"] == "steady" and not state["trial"]["threads"]:
            usual = state["machine"]["threads"]
        more_was_worse = more_was_worse or state["overloaded"]
        size = int(decision.action["threads"]) if decision.action else size
        assert more_was_worse or size >= threads
    assert usual >= threads or more_was_worse


def test_a_pool_past_its_peak_is_reduced_even_if_work_waits():
    parameters = read(method="explorer", initial_samples=5, steady_seconds=20.0, maximum=64)
    past = [size for size, _ in waiting_pool(parameters, lambda size: min(size, 200 / size**2), 40, threads=16)]
    assert past[-1] <= 8


def test_a_smaller_size_on_trial_is_left_as_soon_as_work_waits():
    parameters = read(method="explorer", steady_seconds=20.0)
    state, threads = at_rest(parameters)
    while state["machine"]["threads"] >= threads:
        state, decision = look(parameters, state, state["machine"]["threads"], [1 / threads] * 60, seconds=10.0)
    assert decision.action["threads"] < threads
    _, decision = look(parameters, state, state["machine"]["threads"], [], seconds=0.0, waiting=True)
    assert decision.action["threads"] == threads and "work waits" in decision.reason


def test_a_probe_with_too_few_samples_is_undone_after_its_time_and_says_so_before():
    parameters = read(method="explorer", steady_seconds=20.0, probe_seconds=60.0)
    state, threads = at_rest(parameters)
    while state["machine"]["threads"] == threads:
        state, _ = look(parameters, state, state["machine"]["threads"], [1 / threads] * 60, seconds=10.0)
    probed = state["machine"]["threads"]
    state, decision = look(parameters, state, probed, [1.0, 1.1], elapsed_seconds=50.0)
    assert f"testing {probed} threads instead of {threads}" in decision.reason and "undone in 10 s" in decision.reason
    assert (decision.terms["samples"], decision.terms["undone_after_seconds"]) == (2, 10.0)
    state, decision = look(parameters, state, probed, [1.0], elapsed_seconds=10.0)
    assert decision.action["threads"] == threads and state["machine"]["phase"] == "steady"
    assert "only 3 samples after 60 s" in decision.reason


def collapse_last_size(parameters, sizes, **more):
    """Return the state of a search whose last size completes almost nothing, and the decision on it."""
    state = start_state(LAW, parameters)
    for threads in sizes[:-1]:
        state, _ = look(parameters, state, threads, [1 / (10 * threads)] * 60, seconds=5.0)
    assert state["machine"]["threads"] == sizes[-1]
    return look(parameters, state, sizes[-1], [], open_seconds=2.0, open_events=sizes[-1] + 5.0, **more)


def test_a_probe_that_completes_almost_nothing_ends_at_once_and_half_the_way_to_it_is_tested_next():
    parameters = read(method="explorer", start=16)
    state, decision = collapse_last_size(parameters, (16, 32, 64))
    assert decision.action["threads"] == 48 and state["ceiling"]["bad"] == 64
    # Events that the collapse left in progress delay the first completions, which therefore don't count.
    draining = state["ceiling"]["drain_seconds"]
    assert draining == pytest.approx(64 * 2 / 69)
    state, decision = look(parameters, state, 48, [1.0] * 60, seconds=draining - 0.1)
    assert decision.action is None
    state, decision = look(parameters, state, 48, [1 / 480] * 60, seconds=1.0)
    assert (state["ceiling"]["good"], decision.action["threads"]) == (48, 56)


def test_a_short_pause_does_not_end_a_probe():
    parameters = read(method="explorer", start=16)
    state = start_state(LAW, parameters)
    for threads in (16, 32):
        state, _ = look(parameters, state, threads, [1 / (10 * threads)] * 60, seconds=5.0)
    state, decision = look(parameters, state, 64, [], open_seconds=0.9, open_events=69.0)
    assert decision.action is None and state["ceiling"] is None


def test_no_size_past_the_ceiling_is_tested_until_it_expires():
    parameters = read(method="explorer", start=16, steady_seconds=300.0, trial_seconds=60.0, initial_samples=5)
    state, _ = collapse_last_size(parameters, (16, 32, 64))
    tested, seconds = [], 0.0
    while seconds < 3_700:
        threads = state["machine"]["threads"] if state["trial"]["threads"] == 0 else state["trial"]["threads"]
        tested.append((seconds, threads))
        rate = 10.0 * threads if threads <= 48 else 10.0
        state, _ = look(parameters, state, threads, [1 / rate] * 20, seconds=20.0)
        seconds += 20.0
    sizes = [threads for at, threads in tested if at < 3_500]
    assert max(sizes) == 56 and sum(size > 48 for size in sizes) <= 3
    assert max(threads for at, threads in tested if at > 3_600) > 56


def test_another_mix_of_work_starts_a_search_upward_if_work_waits_and_none_if_nothing_waits():
    parameters = read(method="explorer", initial_samples=5, steady_seconds=1e6, maximum=64)

    def mix(number):
        return {"cpu": 1.0} if number < 5 else {"cpu": 0.2, "web": 0.8}

    sizes = [size for size, _ in waiting_pool(parameters, lambda size: min(size, 40), 30, mixes=mix)]
    assert set(sizes[:5]) == {min(sizes)} and sizes[-1] >= 32
    state, threads = at_rest(parameters)
    for number in range(20):
        state, decision = look(parameters, state, threads, [1 / threads] * 20, seconds=5.0, mix=mix(number))
        assert decision.action is None


@pytest.mark.parametrize("method", ["tcc", "explorer"])
def test_who_is_steady_joins_an_exploration_with_a_greater_number_and_only_once(method):
    parameters = read(method=method, steady_seconds=1e6)
    state, threads = at_rest(parameters)
    idle, decision = look(parameters, state, threads, [], epoch=state["epoch"])
    assert decision.action is None and idle["machine"]["phase"] == "steady"
    joined, decision = look(parameters, state, threads, [], epoch=state["epoch"] + 3)
    assert decision.action is not None and "another host" in decision.reason
    assert joined["epoch"] == state["epoch"] + 3
    rested, _ = at_rest(parameters, joined, epoch=joined["epoch"])
    _, decision = look(parameters, rested, rested["machine"]["threads"], [1.0] * 2, epoch=joined["epoch"])
    assert decision.action is None


def test_pools_that_explore_together_begin_alike_but_none_far_from_what_it_has():
    parameters = read(steady_seconds=1e6, maximum=40, w=0.39)
    state, threads = at_rest(parameters)
    begun = {}
    for mean in (None, float(threads), 2.0 * threads, 100.0 * threads, 0.0):
        more = {} if mean is None else {"mean_threads": mean}
        after, _ = look(parameters, state, threads, [], epoch=state["epoch"] + 1, **more)
        begun[mean] = after["machine"]["threads"]
    assert begun[None] == begun[float(threads)] < begun[2.0 * threads] < begun[100.0 * threads] <= 40
    assert begun[0.0] < begun[None]
    assert begun[100.0 * threads] <= 3 * threads and begun[0.0] >= 1


def test_a_pool_far_behind_the_others_tries_steps_until_one_brings_too_little_and_calls_nobody():
    parameters = read(steady_seconds=1e6, trial_seconds=60.0, q=0.14)
    state, threads = at_rest(parameters, epoch=0)
    shared, sizes = {"epoch": state["epoch"], "mean_threads": 4.0 * threads, "seconds": 1.0}, []
    size = threads
    for _ in range(30):
        # From twice its threads on it gets no more.
        state, decision = look(parameters, state, size, [1 / min(size, 2 * threads)] * 60, **shared)
        if decision.action:
            size = int(decision.action["threads"])
            sizes.append(size)
    assert state["machine"]["phase"] == "steady" and state["epoch"] == shared["epoch"]
    assert 1.5 * threads < state["machine"]["threads"] <= 1.25 * 2 * threads < max(sizes)
    assert sizes == sorted(sizes[:-1]) + sizes[-1:]  # the last step is taken back


@pytest.mark.parametrize("mean", [None, 0.0, 1.0, 1.4])
def test_a_pool_that_is_not_far_behind_tries_nothing_beside_others(mean):
    parameters = read(steady_seconds=1e6, trial_seconds=60.0)
    state, threads = at_rest(parameters, epoch=0)
    more = {} if mean is None else {"mean_threads": mean * threads}
    for _ in range(20):
        state, decision = look(
            parameters, state, threads, [1 / threads] * 60, epoch=state["epoch"], seconds=30.0, **more
        )
        assert decision.action is None


def test_who_explores_already_counts_for_the_newest_exploration():
    parameters = read(steady_seconds=1e6)
    state, _ = look(parameters, start_state(LAW, parameters), 1, [1.0] * 60, epoch=5)
    assert state["machine"]["phase"] == "add" and state["epoch"] == 5


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 9)), max_size=40))
def test_the_number_of_an_exploration_never_falls_and_no_pool_that_nobody_steers_begins_one(looks):
    parameters = read(minimum=1, maximum=20, initial_samples=2, steady_seconds=5.0)
    state = start_state(LAW, parameters)
    for steered, apart, epoch in looks:
        threads = max(1, min(20, state["machine"]["threads"] + (0 if steered else apart)))
        more = {"steered": steered, "epoch": epoch, "seconds": 3.0}
        after, decision = look(parameters, state, threads, [1 / threads] * 4, **more)
        assert after["epoch"] >= state["epoch"]
        assert decision.action is None or 1 <= decision.action["threads"] <= 20
        if not steered:
            assert (after["machine"]["phase"], after["machine"]["threads"]) == ("steady", threads)
        state = after


def test_a_pool_that_nobody_steers_is_measured_where_it_is_and_exploring_is_advice():
    parameters = read(steady_seconds=10.0)
    state = start_state(LAW, parameters)
    for second in range(4):
        state, decision = look(parameters, state, 6, [0.1] * 60, seconds=4.0, steered=False)
        assert state["machine"]["phase"] == "steady" and state["machine"]["threads"] == 6
        assert (decision.action is not None) == (second == 2)
    _, decision = look(parameters, state, 6, [0.1] * 60, seconds=1.0)
    assert decision.action["phase"] == "base" and "controls the pool from now on" in decision.reason


def test_what_was_measured_before_a_hold_is_no_part_of_what_is_measured_after_it():
    parameters = read()
    state, _ = look(parameters, start_state(LAW, parameters), 1, [0.9, 1.1] * 20)
    assert state["sample"]["count"] == 40
    after = resume_state(LAW, state)
    assert after["sample"]["count"] == 0 and after["machine"] == state["machine"]


def test_the_limit_of_a_pool_is_forgotten_with_the_next_exploration():
    parameters = read(patience=2, steady_seconds=1e6)
    state = start_state(LAW, parameters)
    for _ in range(60):
        threads = min(state["machine"]["threads"], 4)
        state, _ = look(parameters, state, threads, [1 / threads] * 60, trouble="no memory")
    assert state["limit"] == 4
    state, _ = look(parameters, state, 4, [], epoch=9)
    assert state["limit"] is None
    _, threads = at_rest(parameters, state)
    assert threads > 4


def steps(parameters, state, capacity, seconds=5.0):
    """Each decision with the threads it was made at, for as long as somebody takes them."""
    while True:
        threads = state["trial"]["threads"] or state["machine"]["threads"]
        per_second = min(threads, capacity)
        state, decision = look(parameters, state, threads, [1 / per_second] * 60, seconds=seconds)
        yield threads, decision, state


@pytest.mark.parametrize("method", ["tcc", "explorer"])
def test_a_capacity_that_rises_is_found_by_trying_a_step_more_though_throughput_stayed(method):
    parameters = read(method=method, steady_seconds=1e6, trial_seconds=20.0)
    state, rested = at_rest(parameters)
    assert rested <= 9
    seen = itertools.islice(steps(parameters, state, 24), 60)
    found = ((decision, after) for _, decision, after in seen if after["machine"]["phase"] == "steady")
    decision, grown = next(each for each in found if each[1]["machine"]["threads"] > rested)
    assert 20 <= grown["machine"]["threads"] <= 30
    assert decision.expected.metric == "throughput_per_second" and decision.expected.direction == "up"
    assert decision.expected.before == pytest.approx(min(rested, 24))


def test_a_trial_that_brings_nothing_is_taken_back_and_the_next_waits_twice_as_long():
    parameters = read(steady_seconds=1e6, trial_seconds=20.0)
    state, rested = at_rest(parameters)
    tried = []
    for look_number, (threads, decision, _) in enumerate(itertools.islice(steps(parameters, state, 8), 100)):
        assert threads in (rested, math.ceil(rested * 1.25))
        if decision.action and decision.action["phase"] == "trial":
            tried.append(look_number)
    waits = [later - sooner for sooner, later in itertools.pairwise(tried)]
    assert len(tried) >= 4 and all(later >= 1.8 * sooner for sooner, later in itertools.pairwise(waits))


@pytest.mark.parametrize("method", ["tcc", "explorer"])
def test_where_only_idle_threads_end_a_search_begins_with_what_the_pool_has(method):
    parameters = read(method=method, start=8, initial_samples=10)
    for ends_idle in (False, True):
        state, gaps = start_state(LAW, parameters), [0.1] * 40
        for _ in range(3):
            state, _ = look(parameters, state, 8, gaps, steered=False, ends_idle=ends_idle)
        state, decision = look(parameters, state, 8, gaps, ends_idle=ends_idle)
        assert (decision.action["threads"] == 8) is ends_idle
        assert decision.action["phase"] in ("probe", "base")


def test_nothing_is_tried_where_the_range_ends_nor_while_nobody_steers_the_pool():
    parameters = read(steady_seconds=1e6, trial_seconds=20.0, maximum=8)
    state, rested = at_rest(parameters, capacity=20)
    assert rested == 8
    assert all(threads == 8 for threads, _, _ in itertools.islice(steps(parameters, state, 20), 40))
    parameters = read(steady_seconds=1e6, trial_seconds=20.0)
    state, rested = at_rest(parameters)
    for _ in range(40):
        state, decision = look(parameters, state, rested, [1 / rested] * 60, seconds=5.0, steered=False)
        assert decision.action is None


def test_a_pool_that_refuses_a_trial_is_at_its_limit_and_tries_no_more():
    parameters = read(steady_seconds=1e6, trial_seconds=20.0, patience=2)
    state, rested = at_rest(parameters)
    for _ in range(60):
        state, decision = look(parameters, state, rested, [1 / rested] * 60, seconds=5.0, trouble="no memory")
    assert state["limit"] == rested and state["trial"]["threads"] == 0 and decision.action is None
