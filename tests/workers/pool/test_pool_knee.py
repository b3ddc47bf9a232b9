"""A host's loop on a simulated service of limited capacity: how soon and how well the knee is found.

The real thing is in test_pool_on_plant.
"""

import pytest

from tests.workers.pool.pool_plant import HOST, Plant
from tests.workers.pool.simulated_host import SimulatedHost
from workers.control.kinds.concurrency import INTERVAL_SECONDS
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db


class Run:
    """The published plant with a simulated host, tick by tick."""

    def __init__(self, control, host: SimulatedHost, **parameters) -> None:
        self.plant, self.host = Plant(control), host
        loop = Loop.objects.get()
        Loop.objects.update(mode="auto", parameters={**loop.parameters, **parameters})
        self.seconds, self.sizes, self.entries = 0.0, [], []

    def tick(self) -> None:
        order = self.plant.order()
        if order is not None:
            self.host.resize(order.threads)
        self.host.run(INTERVAL_SECONDS)
        row = self.plant.rows[HOST]
        row |= {"slots": len(self.host.slots), "done": self.host.departures.to_json()}
        (entry,) = self.plant.tick(INTERVAL_SECONDS)
        self.entries.append(entry)
        self.sizes.append(row["slots"])
        self.seconds += INTERVAL_SECONDS

    def until_rest(self, most_seconds: float) -> int:
        """Ticks until it is steady; gives the pool's size then."""
        began = self.seconds
        while self.seconds - began < most_seconds:
            self.tick()
            machine = Loop.objects.get().state["law"]["machine"]
            if machine["phase"] == "steady" and self.sizes[-1] == machine["threads"]:
                return self.sizes[-1]
        reasons = [entry.reason for entry in self.entries]
        raise AssertionError(f"no rest within {most_seconds} s: {self.sizes}, {reasons}")


@pytest.mark.parametrize("capacity", [1, 3, 6, 12])
def test_the_knee_is_found_within_a_step_and_two_minutes(control, capacity):
    run = Run(control, SimulatedHost(2, capacity, 0.1))
    rested = run.until_rest(120.0)
    assert abs(rested - capacity) <= max(1, round(0.25 * capacity))
    assert max(run.sizes) <= 4 * capacity + 2


def test_what_a_pool_size_was_expected_to_bring_is_judged(control):
    run = Run(control, SimulatedHost(2, 8, 0.1))
    run.until_rest(120.0)
    for _ in range(20):
        run.tick()
    (judged,) = LedgerEntry.objects.exclude(expected=None)
    assert judged.expected["metric"] == "throughput_per_second" and judged.verdict == "effective"
    assert judged.outcome["change"] == pytest.approx(judged.expected["amount"], rel=0.25)
