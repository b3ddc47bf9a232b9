"""A whole plant in money: what the disturbances do, what each law pays, and that no event disappears."""

import numpy as np
import pytest

from controllers.simulation import whole_plant
from controllers.simulation.composite_plant import count_undone_actions
from controllers.simulation.whole_plant import PEAKS, SCENARIO, build_plant, generate_course
from controllers.simulation.whole_plant_planner import LAWS

WEEK = SCENARIO.read_settings({})
DAY = SCENARIO.read_settings({"days": 1})


def run(law, settings=DAY, seed=1):
    return SCENARIO.run(law, settings, seed, None).metrics


def one_second(orders=0.0, telemetry=0.0, reports=0.0):
    return {
        "orders": {"order": orders},
        "telemetry": {"metric": telemetry, "heartbeat": 0.0, "debug": 0.0},
        "reports": {"report": reports},
    }


def test_every_law_gets_the_same_arrivals_and_disturbances():
    first, again = (generate_course(WEEK, 3, None) for _ in range(2))
    other = generate_course(WEEK, 4, None)
    assert np.array_equal(first.arrivals, again.arrivals) and first.lost_node_at == again.lost_node_at
    assert not np.array_equal(first.arrivals, other.arrivals)


def test_a_trace_sets_the_load_of_all_queues_at_different_times_of_day():
    trace = np.tile(np.concatenate([np.ones(12), np.full(12, 3.0)]), 7)
    quiet = SCENARIO.read_settings({"disturbances": 0})
    totals = generate_course(quiet, 1, trace).sum_by_queue()
    for column, (peak, _) in zip(totals.T, PEAKS.values(), strict=True):
        assert np.quantile(column, 0.9) == pytest.approx(peak, rel=0.1)
    assert not np.array_equal(totals[:, 0] > 400, totals[:, 2] > 270)


def test_no_event_appears_or_disappears():
    course = generate_course(DAY, 1, None)
    plant, _ = whole_plant.simulate(LAWS["loops"](course), course)
    for flow, total in zip(plant.queues.values(), course.sum_by_queue().sum(axis=0), strict=True):
        assert flow.waiting + flow.held + flow.departed + sum(flow.lost.values()) == pytest.approx(total)


def test_a_second_is_bad_if_the_oldest_event_has_waited_longer_than_promised():
    plant = build_plant()
    plant.units["large nodes"].working = 1
    for units in plant.stages["orders"]:
        units.working = 1
    for _ in range(7):
        plant.advance(one_second(orders=500.0))
    # A hundred events/s are processed, so after six seconds the oldest event has waited for five.
    assert plant.queues["orders"].age_seconds == pytest.approx(6.0)
    assert plant.queues["orders"].bad_seconds == 1
    assert plant.costs["bad_seconds"] == pytest.approx(0.02)


def test_a_change_of_tasks_stops_the_queue_and_a_node_starts_late():
    plant = build_plant()
    plant.set_units("fraud rules", 3)
    plant.set_units("large nodes", 1)
    plant.advance(one_second(orders=50.0))
    assert plant.queues["orders"].waiting == 50.0 and plant.units["large nodes"].working == 0
    for _ in range(60):
        plant.advance(one_second())
    assert plant.queues["orders"].waiting == 0.0 and plant.units["large nodes"].working == 1


def test_a_change_is_undone_if_an_opposite_one_follows_soon():
    assert count_undone_actions([(0, 1), (60, -1), (500, 1), (900, -2)], 120.0) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_the_planner_pays_less_than_the_loops_and_every_baseline(seed):
    costs = {law: run(law, WEEK, seed)["cost"] for law in ("planner", "loops", "threshold", "static-peak")}
    assert costs["planner"] <= 0.85 * costs["loops"]
    assert costs["planner"] <= 0.9 * min(costs["threshold"], costs["static-peak"])


def test_the_planner_pays_less_than_the_loops_on_a_day_with_all_disturbances():
    planner, loops = run("planner"), run("loops")
    assert planner["cost"] < 0.95 * loops["cost"]
    assert planner["lost_events_orders"] == planner["lost_events_reports"] == 0
