"""The explorer beside TCC, on the paper's models of a node."""

import numpy as np
import pytest

from controllers.design.friendliness import share
from controllers.simulation.concurrency import MODELS, SCENARIO

RATIOS = (0.1, 0.2, 0.5, 1, 2, 5, 10)


def metrics(law, **settings):
    return SCENARIO.run(law, SCENARIO.read_settings(settings), 1, None).metrics


@pytest.mark.slow
def test_the_explorer_needs_half_the_steps_for_the_same_threads_and_shares_as_well():
    cold, warm, apart = [], [], []
    for model in MODELS[:3]:
        for ratio in RATIOS:
            tcc, ours = (metrics(law, model=model, ratio=ratio) for law in ("tcc", "explorer"))
            cold.append(ours["steps"] / tcc["steps"])
            warm.append(ours["warm_steps"] / tcc["warm_steps"])
            apart.append(ours["utilisation"] - tcc["utilisation"])
            assert max(tcc["share"], ours["share"]) <= share(0.25, 0.14)[1]
    assert np.mean(cold) <= 0.55 and np.mean(warm) <= 0.5
    assert abs(np.mean(apart)) <= 0.03 and min(apart) >= -0.03
