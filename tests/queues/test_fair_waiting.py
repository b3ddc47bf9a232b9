"""How long events of a fair queue wait during a flood, on virtual time with a real server."""

from collections.abc import Mapping

import pytest
import redis

from bench.queues.node_servers import node_servers
from bench.queues.virtual_workers import VirtualFigures, VirtualLoad, VirtualWorkers

SECONDS = 8.0
LOAD = 0.92  # with a flood of 100 shares, slightly more than the workers can handle
FLOOD = VirtualLoad(LOAD, flood_shares=100.0)
SPLIT = VirtualLoad(LOAD, flood_shares=100.0, flood_keys=100)


@pytest.fixture(scope="module")
def figures() -> Mapping[str, VirtualFigures]:
    with node_servers(("n1",)) as urls, redis.Redis.from_url(urls["n1"]) as node:

        def run(load: VirtualLoad, *, is_fair: bool = True) -> VirtualFigures:
            node.flushall()
            return VirtualWorkers(node, is_fair).run(load, SECONDS)

        return {
            "idle": run(VirtualLoad(LOAD)),
            "flood": run(FLOOD),
            "split": run(SPLIT),
            "off": run(FLOOD, is_fair=False),
        }


def test_a_flood_of_100_shares_hardly_delays_the_other_keys(figures):
    assert figures["flood"].p95_seconds <= 1.2 * figures["idle"].p95_seconds


def test_without_fairness_the_same_flood_delays_the_other_keys(figures):
    assert figures["off"].p95_seconds > 2 * figures["idle"].p95_seconds


def test_a_flood_that_divides_itself_over_100_keys_gains_at_most_twice_its_share(figures):
    assert figures["split"].flood_per_second <= 2 * figures["flood"].flood_per_second


def test_a_fair_queue_has_the_throughput_of_one_that_is_not_fair(figures):
    assert figures["flood"].events_per_second >= 0.95 * figures["off"].events_per_second
