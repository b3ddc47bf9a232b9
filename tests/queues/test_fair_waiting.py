"""How long events of a fair queue wait during a flood, on virtual time with a real server."""

import pytest
import redis

from bench.queues.virtual_workers import VirtualFigures, VirtualLoad, VirtualWorkers

SECONDS = 8.0
LOAD = 0.92  # with a flood of 100 shares, slightly more than the workers can handle


def run(node: redis.Redis, load: VirtualLoad, *, is_fair: bool = True) -> VirtualFigures:
    return VirtualWorkers(node, is_fair).run(load, SECONDS)


@pytest.fixture
def idle(node: redis.Redis) -> VirtualFigures:
    figures = run(node, VirtualLoad(LOAD))
    node.flushall()
    return figures


def test_a_flood_of_100_shares_hardly_delays_the_other_keys(node, idle):
    flood = run(node, VirtualLoad(LOAD, flood_shares=100.0))
    assert flood.p95_seconds <= 1.2 * idle.p95_seconds


def test_without_fairness_the_same_flood_delays_the_other_keys(node, idle):
    flood = run(node, VirtualLoad(LOAD, flood_shares=100.0), is_fair=False)
    assert flood.p95_seconds > 2 * idle.p95_seconds


def test_a_flood_that_divides_itself_over_100_keys_gains_at_most_twice_its_share(node):
    flood = run(node, VirtualLoad(LOAD, flood_shares=100.0))
    node.flushall()
    split = run(node, VirtualLoad(LOAD, flood_shares=100.0, flood_keys=100))
    assert split.flood_per_second <= 2 * flood.flood_per_second


def test_fairness_costs_no_throughput(node):
    fair = run(node, VirtualLoad(LOAD, flood_shares=500.0))
    node.flushall()
    off = run(node, VirtualLoad(LOAD, flood_shares=500.0), is_fair=False)
    assert fair.events_per_second >= 0.95 * off.events_per_second
