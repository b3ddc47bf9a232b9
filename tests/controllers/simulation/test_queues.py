"""The lab's days of queues: the arithmetic of the scenario, and our law against the thesis'."""

import numpy as np
import pytest

from common.errors import BadInput
from controllers.simulation import crash, queues
from controllers.simulation.scenario import resample

SINE = queues.SCENARIO
KEYS = ("toobusy_node_minutes", "points_moved", "nodes_used_mean")


def day(law, configuration, seed=1, **settings):
    values = SINE.read_settings({"configuration": configuration, **settings})
    return SINE.run(law, values, seed, None).metrics


def days(law, configuration, seeds, **settings):
    runs = [day(law, configuration, seed, **settings) for seed in seeds]
    return {key: sum(run[key] for run in runs) / len(runs) for key in KEYS}


def compare(configuration, seeds, share, **settings):
    ours, baseline = (days(law, configuration, seeds, **settings) for law in ("rebalancing", "random-40"))
    assert ours["toobusy_node_minutes"] == 0
    assert ours["points_moved"] <= share * baseline["points_moved"]
    assert ours["nodes_used_mean"] <= baseline["nodes_used_mean"]


def test_the_small_plants_stay_below_toobusy_with_a_tenth_of_the_points():
    compare(1, (1, 2, 3), 0.12)
    compare(2, (1, 2, 3), 0.12)


@pytest.mark.sweep(14)
@pytest.mark.parametrize("step", [0.3, 0.9])
@pytest.mark.parametrize("configuration", [1, 2, 3, 4])
def test_a_jump_is_cleared_at_the_first_decision(configuration, step):
    ours = day("rebalancing", configuration, step=step)
    assert ours["minutes_to_clear"] <= queues.DECISION_MINUTES


SEEDS = {1: range(1, 13), 2: range(1, 25), 3: range(1, 4), 4: range(1, 4)}
POINTS_SHARE = {1: 0.1, 2: 0.1, 3: 1.0, 4: 1.0}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("configuration", [1, 2, 3, 4])
def test_over_the_seeds_the_numbers_hold(configuration):
    compare(configuration, SEEDS[configuration], POINTS_SHARE[configuration])


def test_a_trace_is_scaled_to_its_maximum_and_stretched_to_the_day():
    trace = np.array([0.0, 5.0, 10.0, 5.0])
    assert resample(trace, 7) == pytest.approx([0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5])
    shaped = SINE.run("greedy-band", SINE.read_settings({}), 1, trace)
    assert shaped.series["arrivals_per_second"].max() == pytest.approx(2360, rel=1e-3)


@pytest.mark.parametrize("trace", [[], [0.0, 0.0], [1.0, -1.0], [float("nan")]])
def test_a_trace_without_a_flow_is_refused(trace):
    with pytest.raises(BadInput):
        resample(np.array(trace), 10)


def test_a_crash_loses_events_of_the_thesis_and_none_of_ours():
    values = crash.SCENARIO.read_settings({})
    ours, thesis = (crash.SCENARIO.run(law, values, 1, None).metrics for law in ("rebalancing", "thesis"))
    assert ours["events_lost"] == 0 < thesis["events_lost"]
    assert ours["seconds_to_divert"] <= 1.0
    assert ours["points_restored"] == sum(held[1] for held in crash.build_initial_plant().points)


def test_no_crash_loses_and_restores_nothing():
    values = crash.SCENARIO.read_settings({"at": 1199, "restore": 1})
    for law in crash.SCENARIO.laws:
        assert set(crash.SCENARIO.run(law, values, 1, None).metrics.values()) == {0}
