"""The planner as a law: it earns its authority by intervals that hold, and without a plan the loops continue."""

import msgspec
import numpy as np
import pytest
from msgspec.structs import asdict

from common.errors import BadInput
from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.planning import program
from controllers.planning.calibration import LEVEL, MIN_SCORES, IntervalCalibration
from controllers.planning.law import PlanningObservation, PlanningParameters, PlanningState, PlantPlanning, judge
from controllers.planning.model import PlantModel
from tests.controllers.planning.plants import orders, plant, workers

LAW = PlantPlanning()
PARAMETERS = PlanningParameters(horizon_seconds=300.0, steps=4, verdict_seconds=30.0)


def observe(at, spent=None, waiting=0.0, **parts):
    model = plant(**parts)
    fields = {name: getattr(model, name) for name in PlantModel.__struct_fields__}
    return PlanningObservation(**fields, at_seconds=float(at), spent=spent, event_seconds=waiting)


def trusted():
    held = IntervalCalibration(scores=(0.0,) * 40, held=(1, 1, 1, 1, 0) * 8)
    return PlanningState(cost=held, waiting=held)


def test_a_new_planner_only_advises():
    _, decision = LAW.decide(PARAMETERS, PlanningState(), observe(0, 0.0))
    assert decision.action is None and decision.limited_by == "calibration"
    assert decision.terms["units"] == {"workers": 5, "nodes": 2, "hosts": 2}


def test_a_planner_whose_intervals_hold_acts():
    _, decision = LAW.decide(PARAMETERS, trusted(), observe(0, 0.0))
    assert decision.action["units"] == {"workers": 5, "hosts": 2}
    assert decision.reason.startswith("Set workers to 5 (-1), set hosts to 2 (-1): the plant is expected to cost ")
    assert decision.expected.metric == "cost_per_hour"


def test_a_planner_whose_intervals_fail_returns_to_advice():
    state, spent = trusted(), 0.0
    for tick in range(60):
        # The plant costs more and more, and no plan expects it.
        spent += 0.1 * 1.2**tick
        state, decision = LAW.decide(PARAMETERS, state, observe(30 * tick, spent))
    assert state.cost.coverage < 0.65 and decision.limited_by == "calibration"


def test_without_a_plan_the_separate_loops_continue(monkeypatch):
    def fail(*arguments):
        raise RuntimeError("broken library")

    monkeypatch.setattr(program, "minimise_linear", fail)
    _, decision = LAW.decide(PARAMETERS, trusted(), observe(0, 0.0))
    assert decision.action is None and decision.limited_by == "no plan"
    assert "the separate loops continue" in decision.reason


def test_holds_that_contradict_each_other_are_named_in_the_reason():
    _, decision = LAW.decide(
        PARAMETERS, trusted(), observe(0, 0.0, stages={"workers": workers(fixed=99, pool="hosts")})
    )
    assert decision.limited_by == "no plan" and "contradict" in decision.reason


def test_a_verdict_compares_what_was_expected_with_what_happened():
    state, _ = LAW.decide(PARAMETERS, PlanningState(), observe(0, 0.0))
    (before,) = state.open
    spent = before.cost * 30 / 3_600
    state, _ = LAW.decide(PARAMETERS, state, observe(30, spent))
    assert state.cost.scores == pytest.approx([0.0], abs=1e-9) and state.cost.held == (1,)


def test_a_plan_that_is_not_applied_expects_what_the_plant_costs_without_it():
    # Three workers more than the plan has cost 1.2 an hour, and with their pool a little more.
    busy = {"workers": workers(units=8, pool="hosts")}
    before = trusted()
    after, decision = LAW.decide(PARAMETERS, before, observe(0, 0.0, stages=busy))
    kept = LAW.correct(PARAMETERS, before, after, None)
    assert decision.action is not None and kept.open[0].cost == kept.open[0].kept_cost
    assert LAW.correct(PARAMETERS, before, after, decision.action) == after
    spent = kept.open[0].kept_cost * 30 / 3_600
    judged = judge(PARAMETERS, kept, observe(30, spent, stages=busy))
    assert judged.cost.scores[-1] == pytest.approx(0.0, abs=1e-9)


def test_a_hold_of_the_planner_leaves_no_open_expectation():
    state, _ = LAW.decide(PARAMETERS, PlanningState(), observe(0, 0.0))
    assert LAW.resume(state).open == ()


def test_the_state_survives_a_restart_as_json():
    state = start_state(LAW, asdict(PARAMETERS))
    for tick in range(3):
        observation = observe(30 * tick, tick * 0.01, queues={"orders": orders(600.0)})
        state, decision = decide_next(LAW, asdict(PARAMETERS), state, observation)
    assert len(state["cost"]["scores"]) == 2 and decision.to_json()["terms"]["cost_interval"]


@pytest.mark.parametrize("shape", ["normal", "skewed", "drifting"])
def test_intervals_hold_as_often_as_they_promise_whatever_the_errors(shape):
    chance, calibration, held = np.random.default_rng(3), IntervalCalibration(), []
    for tick in range(1_500):
        error = chance.normal() if shape == "normal" else chance.exponential()
        error *= 1 + tick / 500 if shape == "drifting" else 1
        interval = calibration.build_interval(10.0, 1.0)
        calibration = calibration.record(10.0, 1.0, interval, max(0.0, 10.0 + error))
        held.append(calibration.held[-1])
    assert np.mean(held[MIN_SCORES:]) == pytest.approx(LEVEL, abs=0.03)


def test_an_observation_is_read_from_a_document_and_checked():
    document = msgspec.json.decode(msgspec.json.encode(observe(0, 0.0)))
    read = catalog.read_observation(LAW, document)
    parameters = catalog.read_parameters(LAW, {})
    catalog.check_observation(LAW, parameters, read)
    _, decision = decide_next(LAW, parameters, start_state(LAW, parameters), read)
    assert decision.terms["units"] == {"workers": 5, "nodes": 2, "hosts": 2}
    document["stages"]["workers"]["queue"] = "unknown"
    with pytest.raises(BadInput, match="unknown is not a queue of the model"):
        catalog.check_observation(LAW, parameters, catalog.read_observation(LAW, document))
