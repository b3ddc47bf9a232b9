"""The pace of a retry plan against simulated destinations."""

import pytest

from workers.retries import pacing
from workers.retries.items import PaceLimits
from workers.retries.pacing import Health, RetryOutcome

LIMITS = PaceLimits(0.5, 1_000.0)


class Destination:
    """A destination whose tasks take longer the closer the load is to its capacity, in tasks per second."""

    def __init__(self, capacity, base_seconds=0.05, knee=True, failing=0.0):
        self.capacity, self.base_seconds, self.knee, self.failing = capacity, base_seconds, knee, failing
        self.waiting = self.failed = 0.0

    def run_second(self, rate):
        """Return the outcomes of one second in which `rate` tasks arrive."""
        self.waiting += rate
        done = min(self.waiting, self.capacity)
        self.waiting -= done
        load = min(0.99, done / self.capacity)
        duration = self.base_seconds / (1.0 - load) if self.knee else self.base_seconds
        outcomes = []
        for _ in range(int(done)):
            self.failed += self.failing
            error = "ConnectionError" if self.failed >= 1.0 else ""
            self.failed -= 1.0 if error else 0.0
            outcomes.append(RetryOutcome(error, duration))
        return outcomes


def follow(destination, seconds, limits=LIMITS, alerts=lambda at: ()):
    """Return the rates, one each second, the last pace, and why it stopped."""
    pace, rates, credit, outcomes = pacing.start(limits, 0.0), [], 0.0, []
    for at in range(seconds):
        health = Health(at=1000.0 + at, outcomes=outcomes, waiting=int(destination.waiting), alerts=alerts(at))
        pace = pacing.adjust(pace, health, limits)
        if why := pacing.explain_stop(pace, health):
            return rates, pace, why
        rates.append(pace.rate)
        credit += pace.rate
        outcomes = destination.run_second(int(credit))
        credit -= int(credit)
    return rates, pace, ""


@pytest.mark.parametrize("capacity", [20, 200, 2_000])
def test_the_pace_stays_below_the_rate_at_which_a_destination_degrades(capacity):
    rates, _, stopped = follow(Destination(capacity), 600, PaceLimits(0.5, 10_000.0))
    assert not stopped
    assert max(rates) < capacity
    assert sum(rates[-300:]) / 300 > 0.1 * capacity


def test_the_pace_of_a_destination_that_only_queues_returns_below_its_capacity_within_seconds():
    destination = Destination(200, knee=False)
    rates, _, stopped = follow(destination, 600)
    assert not stopped
    above = [at for at, rate in enumerate(rates) if rate > 200]
    assert len(above) < 40 and sum(rates[-300:]) / 300 > 120
    assert destination.waiting < 400


def test_the_pace_stays_within_the_limits_of_a_person():
    rates, _, _ = follow(Destination(5_000), 200, PaceLimits(1.0, 40.0))
    assert max(rates) == 40.0 and min(rates) >= 1.0


def test_a_plan_stops_if_many_of_its_tasks_fail_again():
    rates, _, why = follow(Destination(500, failing=0.38), 600)
    assert "tasks failed again. The most frequent error is ConnectionError" in why
    assert sum(rates) < 500


def test_a_few_failures_only_slow_a_plan_down():
    destination = Destination(5_000, failing=0.2)
    rates, pace, why = follow(destination, 120, PaceLimits(0.5, 100.0))
    assert not why and rates[-1] < 5.0
    assert "failed again" in pace.because


def test_an_alert_stops_a_plan():
    _, _, why = follow(Destination(100), 60, alerts=lambda at: ["error budget burns fast"] if at == 30 else ())
    assert why == "an alert fired: error budget burns fast"


def test_a_plan_whose_destination_is_too_slow_at_the_lowest_rate_stops():
    class Stuck(Destination):
        def run_second(self, rate):
            self.waiting += rate + 20
            return []

    _, _, why = follow(Stuck(1), 600)
    assert "too slow at the lowest rate" in why


def test_a_plan_whose_outcomes_are_not_heard_stops():
    health = Health(at=0.0, outcomes=[], waiting=0, unheard=pacing.MAX_UNHEARD, heard=0)
    assert "send task events" in pacing.explain_stop(pacing.start(LIMITS, 0.0), health)


def test_unfinished_tasks_are_limited_by_the_rate_and_the_duration_of_a_task():
    fast = pacing.RetryPace(started_at=0.0, rate=100.0, base_seconds=0.01)
    assert pacing.count_allowed(fast) == 500
    assert pacing.count_allowed(pacing.RetryPace(started_at=0.0, rate=2.0, base_seconds=30.0)) == 300
    assert pacing.count_allowed(pacing.RetryPace(started_at=0.0, rate=0.5)) == pacing.MIN_UNFINISHED
