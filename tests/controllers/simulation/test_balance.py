"""The lab's balance: a hog on one replica, unequal nodes; our law beside its baselines."""

import numpy as np
import pytest

from controllers.simulation import balance

SCENARIO = balance.SCENARIO


def run(law, seed=1, trace=None, **settings):
    return SCENARIO.run(law, SCENARIO.read_settings(settings), seed, trace)


@pytest.mark.sweep(10)
@pytest.mark.parametrize("hog", [1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_with_a_hog_on_one_of_two_the_mean_delay_hardly_changes(hog, seed):
    metrics = run("lqr", seed, hog=hog).metrics
    assert metrics["delay_mean_seconds"] <= 1.15 * run("lqr", seed, hog=0).metrics["delay_mean_seconds"]
    assert metrics["ratio"] <= 1.15
    assert metrics["delay_max_seconds"] < 2 * run("lqr", seed, hog=0).metrics["delay_max_seconds"]


def test_round_robin_grows_without_bound():
    delays = run("round-robin").series["delay_seconds"]
    thirds = [float(part.mean()) for part in np.split(delays, 3)]
    assert thirds[2] > 2 * thirds[1] > 10 * thirds[0]
    assert delays[-20:].mean() > 0.9 * delays.max()


@pytest.mark.parametrize("hog", [0, 1])
def test_with_eight_unequal_nodes_the_shortest_queue_is_beaten(hog):
    ours, shortest = (run(law, replicas=8, unequal=3, hog=hog).metrics for law in ("lqr", "shortest-queue"))
    assert ours["delay_mean_seconds"] < 0.8 * shortest["delay_mean_seconds"]
    assert ours["spread"] < 0.2 * shortest["spread"]


def test_a_regulator_that_ignores_the_delay_oscillates_with_growing_amplitude():
    """Xu's Figure 9. The one that is designed with the delay does not."""
    wrong, right = (run(law, delay=2, noise=0).series["delay_seconds"] for law in ("undelayed", "lqr"))
    early, late = float(np.ptp(wrong[balance.HOG_FROM + 4 : balance.HOG_FROM + 16])), float(np.ptp(wrong[-60:]))
    assert late > 1.2 * early > 1.0
    assert np.ptp(right[1_100:]) < 0.01


def test_the_hogged_replica_gets_what_it_can_do():
    shares = run("lqr", noise=0).series["first_replica_share"]
    assert shares[balance.HOG_FROM - 1] == pytest.approx(1 / 2, abs=0.001)
    assert shares[-1] == pytest.approx(1 / 3, abs=0.001)
