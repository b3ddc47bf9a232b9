"""The lab's large plant whose nodes come and go."""

import numpy as np
import pytest

from controllers.simulation.churn import SCENARIO, NodeChurn, place_initially

SMALL = {"nodes": 60, "containers": 300, "hours": 3}


def metrics(law: str = "rebalancing", seed: int = 1, **settings):
    return SCENARIO.run(law, SCENARIO.read_settings(settings), seed, None).metrics


def test_nodes_that_are_drained_leave_nothing_behind_and_no_node_is_toobusy():
    found = metrics(**SMALL, leaving=0.1, failing=0)
    assert found["points_restored"] == 0 and found["points_moved"] > 0
    assert found["toobusy_node_minutes"] == 0


def test_what_a_node_held_that_stopped_is_made_again():
    found = metrics(**SMALL, leaving=0, failing=0.1)
    assert found["points_restored"] > 0
    assert found["toobusy_node_minutes"] == found["of_failures"]


def test_a_rule_that_moves_whole_containers_leaves_nodes_toobusy_where_ours_leaves_none():
    ours, theirs = (metrics(law, **SMALL, failing=0) for law in ("rebalancing", "greedy-band"))
    assert ours["toobusy_node_minutes"] == 0 < theirs["toobusy_node_minutes"]


@pytest.mark.parametrize("seed", range(5))
def test_a_node_is_drained_before_it_goes_and_somebody_new_comes_in_its_place(seed):
    there, chance = NodeChurn.start_with(50), np.random.default_rng(seed)
    plant = place_initially(SCENARIO.read_settings({"nodes": 50, "containers": 200}), seed)
    settings, absent = {"leaving": 0.5, "failing": 0.1}, 0
    for minute in range(5, 600, 5):
        there.step(minute, settings, chance)
        now = there.apply_absences(plant, minute)
        assert not (now.drained & now.offline).any()
        absent += int(now.offline.sum())
    there.step(700, {"leaving": 0.0, "failing": 0.0}, chance)
    there.step(800, {"leaving": 0.0, "failing": 0.0}, chance)
    assert absent and not there.apply_absences(plant, 800).offline.any()


@pytest.mark.slow
def test_a_thousand_nodes_of_five_thousand_containers_have_no_toobusy_minute_but_where_a_node_stopped():
    found = metrics()
    assert found["toobusy_node_minutes"] == found["of_failures"]
    # Of a large plant no greater part moves than of a small one.
    assert found["moved_share"] <= 1.1 * metrics(nodes=200, containers=1_000)["moved_share"]
