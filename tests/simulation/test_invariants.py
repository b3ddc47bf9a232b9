"""The invariants report what breaks a promise, and accept what does not."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from bench.simulation.invariants import Invariants
from bench.simulation.plant import Observations
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, tzinfo=UTC)


class ObservedLoop:
    """A loop with an interval of 60 s, whose decisions are checked every 2 s."""

    def __init__(self):
        self.scheduler, self.seen = SimpleNamespace(now=NOW.timestamp(), errors=[]), Observations()
        self.loop = Loop.objects.create(name="node_scaling", law="node_scaling", interval_seconds=60.0)
        self.invariants = Invariants(SimpleNamespace(scheduler=self.scheduler, seen=self.seen))

    def decide(self, seconds, number, mode="auto"):
        """Let the loop decide at a time, in seconds since NOW, under a granted number, and check."""
        self.invariants.leases.granted.setdefault(f"loop:{self.loop.pk}", {})[number] = "control-a"
        at = NOW + timedelta(seconds=seconds)
        LedgerEntry.objects.create(loop=self.loop, at=at, fence=number, mode=mode, parameters={}, reason="On hold, .")
        self.check(seconds + 1)

    def check(self, seconds):
        self.scheduler.now = NOW.timestamp() + seconds
        self.invariants.check()


@pytest.fixture
def observed():
    return ObservedLoop()


def test_a_loop_that_decides_once_per_interval_is_accepted(observed):
    observed.decide(0, 1)
    observed.decide(60, 2)
    assert observed.invariants.violations == []


def test_a_second_decision_within_the_interval_is_reported(observed):
    observed.decide(0, 1)
    observed.decide(11, 2)
    [violation] = observed.invariants.violations
    assert violation.startswith("node_scaling decided twice within 60.0 s")


def test_a_decision_that_the_remedy_ladder_requested_is_accepted_once(observed):
    observed.decide(0, 1)
    observed.seen.requested["node_scaling"] = NOW.timestamp() + 5
    observed.decide(6, 2)
    assert observed.invariants.violations == []
    observed.decide(13, 3)
    assert len(observed.invariants.violations) == 1


def test_a_decision_under_a_number_that_is_not_greater_is_reported(observed):
    observed.decide(0, 7)
    observed.decide(60, 5)
    assert observed.invariants.violations == ["node_scaling was ticked under the number 5 after 7."]
