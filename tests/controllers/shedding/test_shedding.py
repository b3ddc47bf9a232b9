"""The shedding law and its program, against the program as printed and against the contract's example."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.laws import full_shedding_program
from common.errors import BadInput
from common.parameter import build
from controllers import catalog
from controllers.framework.law import decide_next
from controllers.shedding.inputs import SheddingInputs, SheddingObservation, SheddingParameters
from controllers.shedding.latency_bound import compute_operator_budget, compute_operator_seconds
from controllers.shedding.law import Shedding, shed_tables
from controllers.shedding.problem import Overload, SheddingProblem
from controllers.shedding.program import solve, solve_by_programs, solve_piecewise
from tests.controllers.shedding.applications import observation

LAW = Shedding()
EXAMPLE = [
    {"operator": "O2", "name": "P21", "expression": "SEQ(0;0;1)", "emits": "Q21", "seconds": 0.010},
    {"operator": "O2", "name": "P22", "expression": "AND(1,2,3)", "emits": "Q22", "seconds": 0.012},
    {"operator": "O3", "name": "P3", "expression": "AND(Q11,Q21)", "emits": "S1", "seconds": 0},
    {"operator": "O4", "name": "P4", "expression": "AND(Q12,Q22)", "emits": "S2", "seconds": 0},
]


def example(q11: float, q12: float, **more) -> dict:
    arrivals = {"O2": {"0": 40, "1": 30, "2": 20, "3": 25}, "O3": {"Q11": q11}, "O4": {"Q12": q12}}
    seen = {"bottleneck": "O2", "patterns": EXAMPLE, "sinks": {"S1": 1, "S2": 1}, "arrivals": arrivals}
    return {**seen, **more}


def read(parameters: dict, seen: dict):
    checked = catalog.read_parameters(LAW, parameters)
    observed = catalog.read_observation(LAW, seen)
    catalog.check_observation(LAW, checked, observed)
    return checked, observed


def decide(parameters: dict, seen: dict, state=None):
    checked, observed = read(parameters, seen)
    return decide_next(LAW, checked, catalog.read_state(LAW, checked, state), observed)


@pytest.mark.parametrize(
    ("q11", "q12", "perspective", "sinks"),
    [
        (30, 30, "global", 20),
        (0, 30, "global", 50 / 3),
        (5, 12, "global", 17),
        (30, 30, "local", 20),
        (0, 30, "local", 0),
        (5, 12, "local", 5),
    ],
)
def test_the_worked_example_gives_what_the_contract_says(q11, q12, perspective, sinks):
    _, decision = decide({"perspective": perspective, "utilisation_budget": 0.6}, example(q11, q12))
    assert decision.action["expected"]["sinks"] == pytest.approx(sinks, rel=1e-9)
    assert decision.action["utilisation"] <= 0.6 + 1e-12


def test_what_no_match_needs_is_dropped_and_nothing_else():
    _, decision = decide({"utilisation_budget": 0.6}, example(5, 12))
    shed = decision.action["shed"]
    assert shed["P21"] == pytest.approx({"0": 1 - 10 / 40, "1": 1 - 5 / 30})
    assert shed["P22"] == pytest.approx({"1": 1 - 12 / 30, "2": 1 - 12 / 20, "3": 1 - 12 / 25})
    assert decision.action["utilisation"] == pytest.approx(5 * 0.03 + 12 * 0.036)


def test_a_type_that_is_never_shed_comes_through_whole_at_the_others_cost():
    given = {"utilisation_budget": 0.75, "never_shed": {"1": True}}
    _, decision = decide(given, example(30, 30))
    shed = decision.action["shed"]
    assert shed["P21"]["1"] == 0 and shed["P22"]["1"] == 0
    assert shed["P21"]["0"] > 0
    assert decision.action["utilisation"] == pytest.approx(0.75)


def test_a_promise_never_to_shed_that_the_budget_can_not_keep_is_kept_and_said():
    given = {"utilisation_budget": 0.3, "never_shed": {"1": True}}
    _, decision = decide(given, example(30, 30))
    assert decision.limited_by == "never_shed"
    assert decision.action["shed"]["P22"] == {"1": 0.0, "2": 1.0, "3": 1.0}


def arranged(parameters: dict, seen: dict) -> SheddingInputs:
    given, observed = read(parameters, seen)
    return SheddingInputs.arrange(build(SheddingParameters, given), build(SheddingObservation, observed))


def test_several_bottlenecks_are_relieved_upstream_first():
    rows = [
        {"operator": "A", "name": "a", "expression": "AND(x,y)", "emits": "mid", "seconds": 0.02},
        {"operator": "B", "name": "b", "expression": "AND(mid,z)", "emits": "end", "seconds": 0.04},
    ]
    seen = {"arrivals": {"A": {"x": 40, "y": 40}, "B": {"z": 40}}, "patterns": rows[::-1], "sinks": {"end": 1}}
    inputs = arranged({"utilisation_budget": 0.5}, seen)
    found, made = shed_tables(inputs)
    assert [each.operator for each in found] == ["A", "B"]
    assert made[inputs.application.index["mid"]] == pytest.approx(12.5)  # 0.5 / (2 * 0.02)
    assert made[inputs.application.index["end"]] == pytest.approx(6.25)
    assert all(each.utilisation <= 0.5 + 1e-12 for each in found)


def overloads(count: int):
    for seed in range(count):
        chance = np.random.default_rng(seed)
        budget = float(chance.uniform(0.05, 0.9))
        inputs = arranged({"utilisation_budget": budget}, observation(chance))
        yield inputs, Overload(inputs.application, inputs.observation.arrivals, "B", budget, inputs.observation.sinks)


def value_at_the_affected_sinks(inputs: SheddingInputs, overload: Overload) -> float:
    _, made = shed_tables(inputs)
    affected = {pattern.emits for pattern in inputs.application.list_affected("B")}
    index = inputs.application.index
    return sum(weight * made[index[sink]] for sink, weight in overload.weights.items() if sink in affected)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_nested_applications_get_the_value_of_the_full_program(count):
    shed = 0
    for inputs, overload in overloads(count):
        full, load = full_shedding_program.find_best_solution(overload)
        tables = solve(overload)
        ours = value_at_the_affected_sinks(inputs, overload)
        assert ours == pytest.approx(full, rel=1e-9, abs=1e-9)
        used = sum(table.load for table in tables)
        assert used <= overload.budget + 1e-9
        if any((table.admitted < table.offered).any() for table in tables):
            shed += 1
            assert used <= load + 1e-6
    assert shed > count / 2


def test_piece_by_piece_and_by_programs_the_same_load_buys_the_same_value():
    compared = 0
    for _, overload in overloads(60):
        problem = SheddingProblem(overload)
        flows = solve_piecewise(problem)
        if flows is not None and sum(table.load for table in problem.build_full_tables()) > overload.budget:
            compared += 1
            loads = [
                sum(table.load for table in problem.build_tables(each)) for each in (flows, solve_by_programs(problem))
            ]
            assert loads[0] == pytest.approx(loads[1], abs=1e-8)
    assert compared > 4


@pytest.mark.parametrize("length", [1, 3, 1_200])
def test_a_chain_of_any_number_of_operators_is_cut_at_its_bottleneck(length):
    patterns = [
        {
            "operator": f"o{place}",
            "name": f"p{place}",
            "expression": f"t{place}",
            "emits": f"t{place + 1}",
            "seconds": 0 if place else 0.01,
        }
        for place in range(length)
    ]
    seen = {"bottleneck": "o0", "patterns": patterns, "arrivals": {"o0": {"t0": 100}}}
    _, decision = decide({"utilisation_budget": 0.4}, {**seen, "sinks": {f"t{length}": 1}})
    assert decision.action["expected"]["sinks"] == pytest.approx(40)
    assert decision.action["shed"]["p0"] == pytest.approx({"t0": 0.6})


@given(st.floats(1e-3, 10), st.floats(1e-3, 1e6), st.floats(0, 50))
def test_the_budget_is_the_greatest_that_keeps_the_bound(bound, rate, cv2):
    budget = compute_operator_budget(bound, rate, cv2)
    assert compute_operator_seconds(budget, rate, cv2) <= bound
    assert compute_operator_seconds(min(1.0, budget * (1 + 1e-9) + 1e-12), rate, cv2) > bound or budget > 1 - 1e-9


def test_a_table_stands_while_little_changes_and_goes_when_rates_or_times_do():
    given = {"utilisation_budget": 0.6}
    state, first = decide(given, example(5, 12))
    assert first.action is not None
    same, second = decide(given, example(5, 12.5), state)
    assert second.action is None and same == state
    _, third = decide(given, example(5, 13), state)
    assert third.action is not None and "rates" in third.reason
    slower = [{**row, "seconds": row["seconds"] * 1.2} for row in EXAMPLE]
    _, fourth = decide(given, example(5, 12, patterns=slower), state)
    assert fourth.action is not None and "processing times" in fourth.reason


def test_a_bound_that_variability_now_breaks_calls_for_a_new_table():
    given = {"latency_bound_seconds": 0.1}
    state, _ = decide(given, example(5, 12, service_cv2=1.0))
    _, second = decide(given, example(5, 12, service_cv2=1.0), state)
    assert second.action is None
    _, third = decide(given, example(30, 30, service_cv2=1.0))
    busy, _ = decide(given, example(30, 30, service_cv2=1.0))
    _, fourth = decide(given, example(30, 30, service_cv2=2.0), busy)
    assert fourth.action is not None and "exceed its bound" in fourth.reason
    assert fourth.action["utilisation"] < third.action["utilisation"]


def test_a_bound_below_the_processing_time_says_by_how_much_and_keeps_the_last_table():
    state, _ = decide({"latency_bound_seconds": 0.05}, example(30, 30))
    after, decision = decide({"latency_bound_seconds": 0.004}, example(30, 30), state)
    assert decision.action is None and decision.limited_by == "infeasible"
    assert "0.006 s below" in decision.reason and "O2" in decision.reason
    assert after["shed"] == state["shed"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"bottleneck": "O9"}, "observation.bottleneck"),
        ({"sinks": {"S9": 1}}, "observation.sinks.S9"),
        ({"patterns": [*EXAMPLE, EXAMPLE[0]]}, "observation.patterns[4].name"),
        ({"patterns": [{**EXAMPLE[0], "expression": "SEQ(0,1)"}]}, "observation.patterns[0].expression"),
        ({"arrivals": {"O3": {"Q21": 3}}}, "observation.arrivals.O3.Q21"),
    ],
)
def test_contradictions_are_refused_by_name(change, field):
    with pytest.raises(BadInput) as refused:
        read({}, example(30, 30, **change))
    assert refused.value.field == field


def test_a_cycle_is_refused_with_the_patterns_on_it():
    rows = [
        {"operator": "A", "name": "a", "expression": "AND(x,back)", "emits": "mid", "seconds": 0},
        {"operator": "B", "name": "b", "expression": "mid", "emits": "back", "seconds": 0},
    ]
    with pytest.raises(BadInput) as refused:
        read({}, {"arrivals": {}, "patterns": rows, "sinks": {"mid": 1}})
    assert "a, b" in refused.value.message and refused.value.field == "observation.patterns"
