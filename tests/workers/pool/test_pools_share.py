"""Three hosts whose handlers call one service, in virtual time: they explore together, share it alike, and
find that it has grown.
"""

import pytest

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from tests.workers.pool.simulated_host import SimulatedHost, SimulatedService, run
from workers.control.kinds.concurrency import KIND

LAW = catalog.get_law("concurrency")
CAPACITY, CALL_SECONDS = 12, 0.3
REST_SECONDS, GROWTH_SECONDS = 600, 400


class Host:
    """A simulated host with the loop that sizes it, as a plant has it."""

    def __init__(self, service: SimulatedService) -> None:
        self.host = SimulatedHost(2, 0, 0.0, calls=2, service=service)
        given = {**(KIND.defaults.parameters or {}), "start": 2, "maximum": 32, "steady_seconds": 120.0}
        self.parameters = catalog.read_parameters(LAW, given)
        self.state = start_state(LAW, self.parameters)
        self.seq, self.rested = 0, 0

    @property
    def size(self) -> int:
        return len(self.host.slots)

    def tick(self, epoch: int, mean_threads: float) -> None:
        departures = self.host.departures
        fresh = min(departures.seq - self.seq, len(departures.recent))
        self.seq = departures.seq
        samples = list(departures.recent)[len(departures.recent) - fresh :]
        seen = {"threads": self.size, "interdeparture_seconds": samples, "seconds": 1.0}
        seen |= {"epoch": epoch, "mean_threads": mean_threads}
        observation = catalog.read_observation(LAW, seen)
        self.state, decision = decide_next(LAW, self.parameters, self.state, observation)
        if decision.action:
            self.host.resize(int(decision.action["threads"]))
        if decision.terms["phase"] == "steady" and decision.terms["threads"] == self.size:
            self.rested = self.size


def seconds_until(hosts: list[Host], condition, most_seconds: int) -> int | None:
    """None where it does not come within so many seconds."""
    for second in range(1, most_seconds + 1):
        run([each.host for each in hosts], 1.0)
        epochs, mean = [each.state["epoch"] for each in hosts], sum(each.size for each in hosts) / len(hosts)
        for number, each in enumerate(hosts):
            each.tick(max(epochs[:number] + epochs[number + 1 :]), mean)
        if condition():
            return second
    return None


def alike(sizes: list[int]) -> bool:
    return 0 < max(sizes) <= 1.5 * min(sizes) + 1


def times(seed: int) -> tuple[int | None, int | None]:
    """(seconds until all have rested alike, seconds from then until they have grown with the service)."""
    service = SimulatedService(CAPACITY, CALL_SECONDS, seed=seed)
    hosts = [Host(service) for _ in range(3)]

    def rested() -> bool:
        sizes = [each.rested for each in hosts]
        return alike(sizes) and sum(sizes) >= CAPACITY

    def grown() -> bool:
        sizes = [each.size for each in hosts]
        return alike(sizes) and sum(sizes) >= 2 * CAPACITY

    at_rest = seconds_until(hosts, rested, REST_SECONDS)
    service.capacity = 3 * CAPACITY
    return at_rest, seconds_until(hosts, grown, GROWTH_SECONDS)


@pytest.mark.thorough
def test_three_hosts_share_a_service_alike_and_find_that_it_has_grown():
    """Nearly always: on 40 others 39 rested alike within 402 s, and 35 had grown alike within 400 s."""
    found = [times(seed) for seed in range(1, 13)]
    assert sum(at_rest is not None for at_rest, _ in found) >= 10, found
    assert sum(grown is not None for _, grown in found) >= 8, found
