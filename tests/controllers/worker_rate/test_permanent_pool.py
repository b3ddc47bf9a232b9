"""Workers that stay: as many as Little's law says, for what comes and what waits, by either method."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.worker_rate import arrival_rate
from controllers.worker_rate.arrival_rate import ArrivalRate

LAW = catalog.get_law("worker_rate")
SECONDS, MOST = 5.0, 200
POOL = {
    "workers": "permanent",
    "interval_seconds": SECONDS,
    "life_seconds": 5.0,
    "upper_limit": 1,
    "fill_share": 0.1,
    "caution": 0.0,
    "trend_gain": 0.0,
    "max_wait_seconds": 1.0,
}


def read(**more):
    return catalog.read_parameters(LAW, {**POOL, **more})


def decided(parameters, state, **observation):
    seen = catalog.read_observation(LAW, {"removed": 0, **observation})
    return decide_next(LAW, parameters, catalog.read_state(LAW, parameters, state), seen)


class PermanentPool:
    """A pool that has at once what is ordered, and a queue before it."""

    def __init__(self, run_seconds, workers=1, seed=1, **more):
        self.parameters, self.run_seconds, self.workers = read(**more), run_seconds, workers
        self.state, self.waiting, self.random = None, 0.0, random.Random(seed)
        self.waited, self.worker_seconds, self.actions, self.reasons = 0.0, 0.0, 0, []

    def run(self, seconds, per_second, noise=0.0):
        sizes = []
        for _ in range(round(seconds / SECONDS)):
            came = per_second * SECONDS * (1 + noise * self.random.uniform(-1, 1))
            done = min(self.waiting + came, self.workers * SECONDS / self.run_seconds)
            self.waiting = max(0.0, self.waiting + came - done)
            self.waited += self.waiting * SECONDS
            self.worker_seconds += self.workers * SECONDS
            observation = {"queue_length": self.waiting, "removed": done, "running": self.workers}
            self.state, decision = decided(self.parameters, self.state, service_seconds=self.run_seconds, **observation)
            self.reasons.append(decision.reason)
            if decision.action:
                self.actions += 1
                self.workers = min(MOST, decision.action["start"])
            sizes.append(self.workers)
        return sizes


@pytest.mark.parametrize(("per_second", "run_seconds"), [(9.0, 0.8), (3.0, 0.8), (40.0, 0.05), (0.3, 12.0)])
def test_as_many_stand_as_carry_the_load_at_the_target_and_they_stay(per_second, run_seconds):
    pool = PermanentPool(run_seconds)
    pool.run(120, per_second)
    sizes = pool.run(120, per_second)
    assert len(set(sizes)) == 1
    assert sizes[0] in (math.floor(per_second * run_seconds / 0.85), math.ceil(per_second * run_seconds / 0.85))
    assert sizes[0] >= per_second * run_seconds and pool.waiting == 0


@given(
    per_second=st.floats(0.0, 50.0),
    run_seconds=st.floats(0.001, 30.0),
    seed=st.integers(0, 20),
    noise=st.floats(0.0, 0.3),
)
def test_whatever_comes_there_is_never_none_and_what_waits_is_worked_off(per_second, run_seconds, seed, noise):
    pool = PermanentPool(run_seconds, seed=seed)
    sizes = pool.run(400, per_second, noise)
    assert min(sizes) >= 1
    offered = per_second * run_seconds
    if offered < 0.7 * MOST:
        # Of tasks that take longer than a life a worker is counted over one of them.
        bound = max(1.0, 2 * (SECONDS + run_seconds) * per_second)
        assert pool.waiting <= bound + 2 / run_seconds
        assert max(sizes[-10:]) <= max(2, 3 * offered + 3)


def test_a_jump_is_followed_at_the_next_tick_and_its_backlog_within_a_life_or_two():
    pool = PermanentPool(0.8)
    pool.run(60, 1.5)
    sizes = pool.run(20, 9.0)
    assert sizes[0] >= 8 and max(sizes) >= 10 and pool.waiting == 0
    assert pool.run(40, 1.5)[-1] <= 3


def test_as_many_as_there_are_is_no_action_and_says_why_they_are_enough():
    pool = PermanentPool(0.8)
    pool.run(60, 9.0)
    before = pool.actions
    pool.run(60, 9.0)
    assert pool.actions - before <= 1
    assert pool.reasons[-1].startswith("No action: ") and "an event takes 0.8 s" in pool.reasons[-1].lower()


def test_a_decision_says_how_many_more_or_fewer_and_what_it_expects():
    parameters = read()
    state, _ = decided(parameters, None, queue_length=0, removed=45, running=8, service_seconds=0.8)
    _, more = decided(parameters, state, queue_length=40, removed=40, running=8, service_seconds=0.8)
    assert more.reason.startswith(f"Set {more.action['start']} workers (+")
    assert (more.expected.metric, more.expected.direction, more.expected.amount) == ("queue_length", "down", 40.0)
    state, _ = decided(parameters, None, queue_length=0, removed=5, running=8, service_seconds=0.8)
    _, fewer = decided(parameters, state, queue_length=0, removed=5, running=8, service_seconds=0.8)
    assert fewer.reason.startswith("Set 1 worker (-7)")
    assert (fewer.expected.metric, fewer.expected.amount) == ("tasks", 7.0)


def test_without_knowing_what_an_event_takes_nothing_is_decided_unless_nothing_comes():
    parameters = read()
    state, decision = decided(parameters, None, queue_length=3, running=2)
    assert (decision.action, decision.limited_by) == (None, "unmeasured")
    assert state == start_state(LAW, parameters)
    for seconds in ({}, {"service_seconds": 0.0}):
        state, decision = decided(parameters, None, queue_length=0, running=2, **seconds)
        assert (decision.action, decision.limited_by) == (None, "unmeasured"), "one check knows no rate"
        _, decision = decided(parameters, state, queue_length=0, running=2, **seconds)
        assert decision.action == {"start": 1}


def test_of_a_pool_without_work_no_figure_is_said_that_was_not_measured():
    parameters, state = read(), None
    for _ in range(3):
        state, decision = decided(parameters, state, queue_length=0, running=2)
    assert decision.action == {"start": 1}
    assert decision.reason == "Set 1 worker (-1): 0 events wait and 0 arrive in 5 s. (Total: 1 worker.)"


def test_the_thesis_rate_becomes_a_number_by_little_s_law_and_grows_step_by_step():
    pool = PermanentPool(0.8, method="thesis")
    sizes = pool.run(400, 9.0)
    assert max(sizes) >= 8
    assert all(after - before <= 3 for before, after in pairwise(sizes))


@pytest.mark.parametrize(("level", "trend"), [(5.0, 0.0), (5.0, 0.01), (50.0, -0.002), (0.0, -1.0), (1e6, -50.0)])
def test_what_comes_in_very_many_intervals_is_summed_as_what_comes_in_few(level, trend):
    """A life of 1e9 s in intervals of a second is answered at once."""
    rate, many = ArrivalRate(level, trend), arrival_rate.ONE_BY_ONE + 7_000
    each = sum(max(0.0, level + number * trend) for number in range(1, many + 1))
    assert rate.predict_ahead(many) == pytest.approx(each, rel=1e-9, abs=1e-6)
    assert math.isfinite(rate.predict_ahead(1e10))


def test_a_service_time_that_is_nearly_zero_gives_finite_terms():
    parameters, state = read(), None
    for _ in range(2):
        state, decision = decided(parameters, state, queue_length=10.0, removed=10.0, service_seconds=2e-313)
    assert math.isfinite(decision.terms["events_per_worker"])
