"""The baselines of rebalancing do what their sources say, and keep the invariants of points."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.parameter import build
from controllers.baselines.rebalancing import GreedyBand, Thesis
from controllers.rebalancing.allocation import PlantObservation, from_observation
from tests.controllers.rebalancing.plants import node, observation, observations, queue

BASELINES = [Thesis(share, 350.0, 450.0) for share in (0.0, 0.25, 0.4)] + [GreedyBand()]


def allocation(seen):
    return from_observation(build(PlantObservation, seen), 2)


def crowded(queues=10):
    """n1 is TOOBUSY by one of its many queues; n2 and n3 are NORMAL."""
    nodes = [node("n1"), node("n2"), node("n3")]
    loads = [900.0] + [2.0] * (queues - 1)
    return allocation(
        observation(nodes, [queue(f"q{i}", rate, {"n1": 600, "n2": 400}) for i, rate in enumerate(loads)])
    )


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@given(seen=observations(), baseline=st.sampled_from(BASELINES), seed=st.integers(0, 99))
def test_every_rival_keeps_the_points_the_minimum_and_moves_only_what_is_there(seen, baseline, seed):
    plant = allocation(seen)
    if not plant.available.any():
        return
    balance, scaling = baseline.decide(plant, np.random.default_rng(seed))
    now = plant
    for move in [*balance, *scaling]:
        assert 1 <= move.points <= now.points[move.queue].get(move.source, 0)
        assert now.available[move.target] and move.target != move.source
        now = now.apply([move])
    for before, held in zip(plant.points, now.points, strict=True):
        assert sum(held.values()) == 1000 and len(held) >= min(2, len(before))


@pytest.mark.parametrize(("share", "count"), [(0.0, 1), (0.25, 3), (0.4, 4)])
def test_the_thesis_gives_half_of_its_share_of_containers(share, count):
    balance, _ = Thesis(share, 350.0, 450.0, offload_chance=0.0).decide(crowded(), np.random.default_rng(1))
    assert len(balance) == count
    assert {move.points for move in balance} == {300}


def test_the_greedy_band_moves_the_largest_container_that_fits_to_the_least_loaded():
    nodes = [node("n1"), node("n2"), node("n3")]
    small = [queue(f"q{i}", 100.0, {"n1": 600, "n2": 400}) for i in range(4)]
    plant = allocation(observation(nodes, small))
    balance, scaling = GreedyBand().decide(plant, np.random.default_rng(0))
    assert scaling == [] and all(move.points == 600 and move.target == 2 for move in balance)
    assert plant.apply(balance).loads.max() <= 1.09 * 400 / 3 + 1e-9 or len(balance) == 2
