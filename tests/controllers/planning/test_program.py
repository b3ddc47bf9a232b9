"""The linear program: the cheapest course of a plant, in whole units, and what a bad solver can't do."""

import threading

import numpy as np
import pytest
import scipy
from msgspec.structs import replace

from common.errors import BadInput
from controllers.planning import program
from controllers.planning.inputs import PlanInputs, PlannerParameters, average_forecast, build_steps
from controllers.planning.model import check_model
from controllers.planning.program import NoPlanError, build_risk_slopes, solve_course
from controllers.planning.rounding import round_units
from tests.controllers.planning.plants import CLICK, ORDER, nodes, orders, plant, workers


def expect(forecast, **values):
    return replace(orders(**values), forecast_per_second=forecast)


PARAMETERS = PlannerParameters(horizon_seconds=600.0, steps=8)


def solve(model, **counts):
    check_model(model)
    return solve_course(PlanInputs.build(model, PARAMETERS), counts)


def test_steps_grow_from_the_first_one_and_cover_the_horizon():
    steps = build_steps(PlannerParameters(horizon_seconds=1_800.0, first_step_seconds=10.0, steps=12))
    assert steps[0] == pytest.approx(10.0) and steps.sum() == pytest.approx(1_800.0)
    assert np.all(np.diff(steps) > 0)


def test_a_step_has_the_mean_of_its_part_of_the_forecast_and_the_last_value_continues():
    means = average_forecast((10.0, 30.0), 60.0, np.array([30.0, 60.0, 60.0]))
    assert means.tolist() == pytest.approx([10.0, 20.0, 30.0])


def test_the_lines_of_the_risk_follow_the_chance_of_a_normal_load():
    points = np.append(0.0, program.RISK_POINTS)
    for above in (0.25, 0.5, 1.0, 2.0):
        missing = np.clip(points[1:] - above, 0.0, np.diff(points))
        assert build_risk_slopes() @ missing == pytest.approx(scipy.special.ndtr(-above), abs=0.03)


def test_a_steady_load_gets_the_units_that_carry_it():
    assert round_units(solve(plant())) == {"workers": 5, "nodes": 2, "hosts": 2}


def test_an_uncertain_load_gets_a_reserve():
    uncertain = plant(queues={"orders": orders(deviation_per_second=(60.0,))})
    assert round_units(solve(uncertain))["workers"] > round_units(solve(plant()))["workers"]


def test_a_node_is_ordered_ahead_of_the_load_by_its_start_up_time():
    soon, later = (
        plant(queues={"orders": expect((500.0,) * calm + (1_500.0,))}, pools={}, stages={"workers": workers()})
        for calm in (2, 6)
    )
    assert round_units(solve(soon))["nodes"] >= 3
    assert round_units(solve(later))["nodes"] == 2


def test_worthless_events_are_shed_and_valuable_ones_are_not():
    types = {"order": ORDER, "click": CLICK}
    found = solve(plant(queues={"orders": orders(types=types)}, nodes={"nodes": nodes(maximum=2)}))
    order, click = found.values["shed"]
    assert np.all(order < 1e-6) and click[-1] == pytest.approx(100.0)


def test_events_wait_within_their_bound_if_that_saves_units():
    peak = (1_000.0, 1_000.0, 200.0)
    patient, urgent = (
        solve(plant(queues={"orders": expect(peak, bound_seconds=bound)}, nodes={})) for bound in (600.0, 5.0)
    )
    assert patient.values["wait"].max() > 10_000 > urgent.values["wait"].max()
    assert patient.values["over"].sum() == pytest.approx(0.0, abs=1e-6)
    assert patient.cost < urgent.cost


def test_producers_hold_events_back_only_if_the_queue_has_no_room():
    small = {"orders": orders(1_000.0, room_events=100.0, max_held_events=50_000.0)}
    large = {"orders": orders(1_000.0, room_events=1e6, max_held_events=50_000.0)}
    limited = {"workers": workers(maximum=7)}
    assert solve(plant(queues=small, stages=limited)).values["held"].max() > 1_000
    assert solve(plant(queues=large, stages=limited)).values["held"].max() == pytest.approx(0.0, abs=1e-6)


def test_a_hold_fixes_a_number_and_a_cap_limits_it():
    held = plant(stages={"workers": workers(fixed=9)})
    capped = plant(stages={"workers": workers(maximum=4)})
    assert round_units(solve(held))["workers"] == 9
    assert round_units(solve(capped))["workers"] == 4


def test_bad_seconds_beyond_the_error_budget_cost_more():
    late = {"workers": workers(maximum=4)}
    free = solve(plant(queues={"orders": orders(backlog_events=9_000.0)}, stages=late))
    spent = solve(plant(queues={"orders": orders(backlog_events=9_000.0, budget_seconds=0.0)}, stages=late))
    assert spent.cost > free.cost


def test_holds_that_contradict_each_other_give_no_plan():
    with pytest.raises(NoPlanError, match="contradict"):
        solve(plant(stages={"workers": workers(fixed=50, pool="hosts")}))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"stages": {"workers": workers(queue="unknown")}}, "is not a queue"),
        ({"stages": {"workers": workers(pool="unknown")}}, "is not a pool"),
        ({"stages": {"nodes": workers()}}, "names two groups"),
        ({"nodes": {"nodes": nodes(minimum=5, maximum=4)}}, "at most maximum"),
        ({"queues": {"orders": orders(deviation_per_second=(1.0, 2.0))}}, "no or 1 values"),
        ({"queues": {"orders": orders(types={"a": ORDER, "b": ORDER})}}, "at most 1 together"),
    ],
)
def test_a_model_that_contradicts_itself_is_refused(part, message):
    with pytest.raises(BadInput, match=message):
        check_model(plant(**part))


def test_a_solver_that_hangs_gives_no_plan_until_it_ends(monkeypatch):
    end = threading.Event()
    monkeypatch.setattr(program, "minimise_linear", lambda *arguments: end.wait())
    monkeypatch.setattr(program, "HANG_FACTOR", 0.0)
    monkeypatch.setattr(program, "HANG_SECONDS", 0.0)
    with pytest.raises(NoPlanError, match="the solver hangs"):
        solve(plant())
    with pytest.raises(NoPlanError, match="still hangs"):
        solve(plant())
    monkeypatch.undo()
    end.set()
    program._HANGING[0].join()
    assert solve(plant()).cost > 0


class Result:
    """A result of a solver that is not one."""

    def __init__(self, x, status=0):
        self.x, self.status = x, status


def crash(*arguments):
    raise RuntimeError("broken library")


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (crash, "failed"),
        (lambda *arguments: Result(None, 1), "time limit"),
        (lambda cost, *rest: Result(np.full(cost.size, np.nan)), "breaks its own limits"),
        (lambda cost, *rest: Result(np.zeros(cost.size)), "breaks its own limits"),
        (lambda cost, *rest: Result(np.zeros(3)), "breaks its own limits"),
    ],
)
def test_a_solver_that_fails_stops_or_returns_nonsense_gives_no_plan(monkeypatch, solver, message):
    monkeypatch.setattr(program, "minimise_linear", solver)
    with pytest.raises(NoPlanError, match=message):
        solve(plant())
