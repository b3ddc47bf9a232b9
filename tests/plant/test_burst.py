"""Events that come at once on an empty queue: the pool is used, few workers run, nobody else has to wait."""

import pytest

from bench.burst import LIMITS, SLOW_HANDLER, burst, handled_by
from bench.running_plant import RunningPlant

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
CONTAINERS = 3


@pytest.fixture(scope="module", autouse=True)
def _started(plant: RunningPlant) -> None:
    plant.until(lambda s: (s["pipeline"] or {}).get("state") == "running", 120, "the pipeline runs")


def test_a_burst_takes_hardly_more_workers_than_it_fills_and_delays_no_other_queue(plant: RunningPlant):
    with handled_by(plant, SLOW_HANDLER):
        seen = burst(plant, 60_000, calm_seconds=1.0)
    # Each container's last worker may find the rest of what fills the others.
    assert seen["worker_runs"] <= LIMITS["runs_to_minimum"] * seen["minimum_runs"] + CONTAINERS
    assert seen["others_lag_seconds"] <= max(LIMITS["others_lag_seconds"], seen["calm_lag_seconds"] + 1.0)
    # The last of a dozen workers runs alone for its half second.
    assert seen["pool_share"] >= 0.75


@pytest.mark.slow
@pytest.mark.parametrize("handler", ["sql", SLOW_HANDLER])
def test_two_hundred_thousand_events_at_once_are_handled_at_the_pools_capacity(
    plant: RunningPlant, handler: str
):
    with handled_by(plant, handler):
        seen = burst(plant)
    assert seen["pool_share"] >= LIMITS["pool_share"]
    assert seen["runs_to_minimum"] <= LIMITS["runs_to_minimum"]
    assert seen["others_lag_seconds"] <= LIMITS["others_lag_seconds"]
