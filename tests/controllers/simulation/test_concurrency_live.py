"""Engines that explore while they work, event by event; and the box that drifts."""

import numpy as np
import pytest

from controllers.concurrency.throughput_curve import compute_station_throughput
from controllers.simulation.concurrency_live import SCENARIO
from controllers.simulation.scenario import create_random_generator
from controllers.simulation.thread_engine import EnginePool, EngineStation, ThreadEngine


def metrics(law, seed=1, **settings):
    return SCENARIO.run(law, SCENARIO.read_settings(settings), seed, None).metrics


@pytest.mark.thorough
def test_the_drifting_box_is_followed_to_its_new_peak():
    found = [metrics("explorer", seed, drift=1) for seed in range(1, 21)]
    assert np.mean([each["peak_fraction_before"] for each in found]) >= 0.99
    assert np.mean([each["peak_fraction_after"] for each in found]) >= 0.99
    assert max(each["windows_to_recover"] for each in found) <= 30


def test_an_engine_completes_what_the_queueing_model_says():
    pools = [EnginePool(EngineStation(2, 0.001))]
    engine = ThreadEngine(pools, [EngineStation(2, 0.0013)], 0.007, create_random_generator(1, "engine"))
    engine.resize(0, 6)
    engine.run(30.0)
    # Six threads hardly queue: a pass takes the delay and both services.
    assert pools[0].completed / 30 == pytest.approx(6 / 0.0093, rel=0.04)
    assert pools[0].completed / 30 < compute_station_throughput(6, 2, 2 / 0.0013, 0.0093) * 1.03


def test_a_pool_that_shrinks_loses_its_threads_as_they_end_their_events():
    pools = [EnginePool(EngineStation(2, 0.001))]
    engine = ThreadEngine(pools, [EngineStation(2, 0.001)], 0.01, create_random_generator(1, "engine"))
    engine.resize(0, 10)
    engine.run(1.0)
    engine.resize(0, 3)
    engine.run(2.0)
    assert pools[0].alive == 3
    engine.resize(0, 5)
    assert pools[0].alive == 5


@pytest.mark.slow
def test_with_seven_milliseconds_of_delay_tcc_settles_where_the_paper_did():
    found = metrics("tcc")
    assert found["threads_first"] in (16, 17)
    assert found["threads_least"] >= 15 and found["threads_most"] <= 18
    assert 0.94 <= found["utilisation"] <= 0.96


@pytest.mark.slow
@pytest.mark.parametrize("law", ["tcc", "explorer"])
def test_half_the_capacity_is_left_to_a_competitor_that_takes_it(law):
    found = metrics(law, competitor=0.5)
    assert 0.3 <= found["share"] <= 0.496


@pytest.mark.slow
@pytest.mark.parametrize("law", ["tcc", "explorer"])
@pytest.mark.parametrize("bottleneck", ["disk", "network"])
def test_a_disk_or_a_link_is_kept_busy_and_not_saturated(law, bottleneck):
    assert 0.9 <= metrics(law, bottleneck=bottleneck)["utilisation"] <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("law", ["tcc", "explorer"])
def test_beyond_the_cliff_of_a_memory_nobody_stays(law):
    settings = SCENARIO.read_settings({"bottleneck": "memory"})
    outcome = SCENARIO.run(law, settings, 1, None)
    # 48 threads fit. The least stay there that a step allows, and who looks beyond comes back at once.
    assert 35 <= outcome.metrics["threads_first"] <= 48
    assert np.mean(outcome.series["threads"] > 48) < 0.1


@pytest.mark.slow
def test_four_engines_that_explore_together_share_alike():
    apart, together = (
        [metrics("tcc", seed, servers=4, delay_ms=0, together=each)["share"] for seed in (1, 2, 3)] for each in (0, 1)
    )
    assert max(abs(share - 0.25) for share in together) <= 0.02
    assert max(abs(share - 0.25) for share in apart) > 0.05


@pytest.mark.slow
def test_a_memory_that_becomes_full_is_left_again():
    outcome = SCENARIO.run(
        "tcc", SCENARIO.read_settings({"bottleneck": "memory", "onset": 496, "seconds": 2000}), 1, None
    )
    assert outcome.series["threads"][486:496].max() > 55
    assert outcome.metrics["threads_last"] <= 48


@pytest.mark.slow
def test_servers_with_bottlenecks_of_their_own_scale_linearly():
    alone, four = (metrics("tcc", bottleneck="engine", servers=n, seconds=300) for n in (1, 4))
    assert four["linear_share"] == pytest.approx(alone["linear_share"], rel=0.05)
