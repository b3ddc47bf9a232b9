"""Tasks per operator: by queueing theory, exact; and by the cheapest way through windows to come."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint

from common.errors import BadInput
from controllers import catalog, request
from controllers.framework.law import decide_next, start_state
from controllers.framework.solver import minimise
from controllers.parallelism.forecast_law import ParallelismForecast, find_cheapest_path
from controllers.parallelism.queueing_law import QueueingParallelism
from controllers.parallelism.task_allocation import Path, QueueingOperator, allocate_fewest_tasks

QUEUEING, FORECAST = QueueingParallelism(), ParallelismForecast()


def row(weight, load, tasks=6, **more):
    """Measurements of an operator with a = weight [s] and b = load [tasks]."""
    service = weight / load
    plain = {"tasks": tasks, "arrival_interval_seconds": service * tasks / load, "service_seconds": service}
    return {**plain, "arrival_cv2": 1.0, "service_cv2": 1.0, "correction": 1.0, "latency_seconds": 0.0, **more}


def decide(law, parameters, seen):
    checked = catalog.read_parameters(law, parameters)
    observed = catalog.read_observation(law, seen)
    catalog.check_observation(law, checked, observed)
    return decide_next(law, checked, start_state(law, checked), observed)[1]


def within(bound, **more):
    return {"bound_seconds": bound, "minimum": 1, "maximum": 40, "batching_share": 1.0, **more}


def test_two_operators_on_a_path_get_the_fewest_tasks_that_keep_the_bound():
    seen = {"paths": [["x", "y"]], "operators": {"x": row(2, 2), "y": row(9.6, 4.8)}}
    decision = decide(QUEUEING, within(3.0), seen)
    assert decision.action["tasks"] == {"x": 4, "y": 10} and decision.action["feasible"]
    assert decision.action["expected_wait_seconds"]["x"] == pytest.approx(1.0)


def test_the_inverse_with_the_correction_is_exact_where_the_thesis_is_unstable():
    seen = {"paths": [["x"]], "operators": {"x": row(1, 4.5, correction=0.5)}}
    assert decide(QUEUEING, within(1.0), seen).action["tasks"] == {"x": 5}
    without = decide(QUEUEING, within(1.0, use_correction=False), seen)
    assert without.action["tasks"] == {"x": 6}


def operators(chance, names, most):
    return {
        name: QueueingOperator(name, 4, float(chance.uniform(0.1, 8)), float(chance.uniform(0.1, 6)), 0.0, 1, most)
        for name in names
    }


def budget(found, names, most, slack):
    return sum(found[name].wait_seconds(most) for name in names) * slack


def fewest_by_trying(found, path):
    """The optimum of one path, by trying all but the last operator."""
    *first, last = [found[name] for name in path.operators]
    best = math.inf
    for counts in itertools.product(*(range(each.fewest, each.maximum + 1) for each in first)):
        left = path.budget_seconds * (1 + 1e-9) - sum(
            each.wait_seconds(count) for each, count in zip(first, counts, strict=True)
        )
        if left > 0 and (count := last.compute_fewest_tasks(left)) <= last.maximum:
            best = min(best, sum(counts) + count)
    return best


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_one_path_gets_the_best_plan(count):
    for seed in range(count):
        chance = np.random.default_rng(seed)
        names = [f"o{at}" for at in range(int(chance.integers(1, 4)))]
        found = operators(chance, names, 25)
        path = Path(tuple(names), budget(found, names, 25, float(chance.uniform(1.05, 8))))
        tasks = allocate_fewest_tasks(found, [path])
        assert path.holds(found, tasks)
        assert sum(tasks.values()) == fewest_by_trying(found, path)


def fewest_by_program(found, paths, most):
    """The optimum of several paths: one of 0 and 1 for each operator and number of tasks."""
    columns = [(name, count) for name in found for count in range(found[name].fewest, most + 1)]
    one_each = [[float(name == each) for name, _ in columns] for each in found]
    waits = [
        [
            found[name].wait_seconds(count) / path.budget_seconds if name in path.operators else 0.0
            for name, count in columns
        ]
        for path in paths
    ]
    low = [1.0] * len(found) + [-np.inf] * len(paths)
    high = [1.0] * len(found) + [1 + 1e-9] * len(paths)
    cost = np.asarray([count for _, count in columns], dtype=float)
    constraint = LinearConstraint(np.asarray(one_each + waits), low, high)
    return round(minimise(cost, np.ones(len(cost)), Bounds(0, 1), constraint, {"mip_rel_gap": 1e-9}).fun)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [25, pytest.param(150, marks=pytest.mark.slow)])
def test_two_paths_that_share_operators_are_within_a_thousandth_of_the_best(count):
    ours = best_solution = 0
    for seed in range(count):
        chance = np.random.default_rng(seed)
        found = operators(chance, [f"o{at}" for at in range(6)], 30)
        paths = [
            Path(names, budget(found, names, 30, float(chance.uniform(1.1, 8))))
            for names in (("o0", "o1", "o2", "o3"), ("o0", "o4", "o2", "o5"))
        ]
        tasks = allocate_fewest_tasks(found, paths)
        assert all(path.holds(found, tasks) for path in paths)
        ours += sum(tasks.values())
        best_solution += fewest_by_program(found, paths, 30)
    assert best_solution <= ours <= 1.001 * best_solution


@given(st.floats(0.001, 100), st.floats(0.001, 50), st.floats(1e-3, 100))
def test_the_tasks_for_a_wait_are_the_fewest_that_keep_it(weight, load, wait):
    each = QueueingOperator("x", 1, weight, load, 0.0, 1, 10**9)
    tasks = each.compute_fewest_tasks(wait)
    assert each.wait_seconds(tasks) <= wait * (1 + 1e-6)
    assert tasks == each.fewest or each.wait_seconds(tasks - 1) > wait * (1 - 1e-6)


def test_a_bottleneck_is_doubled_times_its_utilisation():
    seen = {"paths": [["x"]], "operators": {"x": row(0.001, 6.0, tasks=4)}}
    decision = decide(QUEUEING, within(10.0), seen)
    assert decision.action["tasks"]["x"] == math.floor(2 * 4 * 1.5)
    assert "a bottleneck (utilization" in decision.reason


def test_a_bound_that_can_not_be_kept_names_the_path_and_what_would_suffice():
    seen = {"paths": [["x", "y"], ["z"]], "operators": {"x": row(2, 2), "y": row(9.6, 4.8), "z": row(1, 0.5)}}
    decision = decide(QUEUEING, within(1.0, maximum=8), seen)
    assert not decision.action["feasible"] and decision.limited_by == "maximum"
    assert decision.action["tasks"] == {"x": 8, "y": 8, "z": 2}
    assert "x → y can't meet the bound of 1 s" in decision.reason
    enough = int(decision.reason.split(" tasks would suffice")[0].split()[-1])
    assert decide(QUEUEING, within(1.0, maximum=enough), seen).action["feasible"]
    assert not decide(QUEUEING, within(1.0, maximum=enough - 1), seen).action["feasible"]


@pytest.mark.parametrize(
    ("paths", "field"),
    [
        ([], "observation.paths"),
        ([["x", "w"]], "observation.paths[0][1]"),
        ([["x", "y", "x"]], "observation.paths[0][2]"),
        ([["x", "y"], ["y", "x"]], "observation.paths"),
    ],
)
def test_paths_without_sense_are_refused_by_name(paths, field):
    with pytest.raises(BadInput) as refused:
        decide(QUEUEING, within(3.0), {"paths": paths, "operators": {"x": row(2, 2), "y": row(1, 1)}})
    assert refused.value.field == field


MISSED = [[500, 100, 0], [900, 400, 0], [50, 0, 0]]


@pytest.mark.parametrize(
    ("costs", "path", "cost"),
    [((1, 1, 1), [3, 3, 2], 10), ((1, 1, 300), [3, 3, 3], 309), ((1, 200, 1), [2, 3, 1], 1353)],
)
def test_the_cheapest_way_is_that_of_the_errata(costs, path, cost):
    names = ("cost_missed", "cost_task", "cost_change")
    decision = decide(FORECAST, dict(zip(names, costs, strict=True)), {"missed": MISSED, "current": 1})
    assert decision.action == {"tasks": path[0], "path": path, "cost": cost}


@pytest.mark.parametrize("current", [1, 2, 3])
def test_a_minimum_leaves_out_what_is_known_of_fewer_tasks_and_no_more(current):
    """Whoever measures says what the first column stands for, and knows no minimum."""
    seen = {"missed": MISSED, "current": current, "first": 1}
    costs = {"cost_missed": 1, "cost_task": 1, "cost_change": 1}
    whole, least = (decide(FORECAST, {**costs, "minimum": low}, seen) for low in (1, 2))
    assert whole.action["path"] == least.action["path"] == [3, 3, 2]
    assert least.action["cost"] == whole.action["cost"]
    assert least.reason == whole.reason
    most = decide(FORECAST, {**costs, "minimum": 3}, seen)
    assert most.action["path"] == [3, 3, 3]
    assert decide(FORECAST, {**costs, "minimum": 9}, seen).action["path"] == [3, 3, 3], "as near as can be"


def test_tasks_that_stay_do_not_keep_a_needed_change_waiting():
    document = {"observation": {"missed": MISSED, "current": 3, "first": 1}, "parameters": {"cost_task": 1}}
    kept = {"settings": {"cooldown_seconds": 30.0}, "now_seconds": 1_000.0, "age_seconds": 0.0}
    state = request.decide_once(FORECAST, {**document, "guard": kept}).guard_state
    for seconds in (5.0, 10.0):
        given = {**kept, "state": state, "now_seconds": 1_030.0 + seconds}
        guarded = request.decide_once(FORECAST, {**document, "guard": given})
        assert guarded.decision.action["tasks"] == 3
        state = guarded.guard_state
    fewer = {**document, "observation": {"missed": [[0, 0, 0]], "current": 3, "first": 1}}
    changed = request.decide_once(FORECAST, {**fewer, "guard": {**kept, "state": state, "now_seconds": 1_045.0}})
    assert (changed.decision.action["tasks"], changed.decision.limited_by) == (1, None)


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(st.integers(0, 20), min_size=width, max_size=width), min_size=1, max_size=4)
    ),
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 20)),
    st.data(),
)
def test_no_other_way_is_cheaper(missed, costs, data):
    table = np.asarray(missed, dtype=float)
    start = data.draw(st.integers(0, table.shape[1] - 1))
    path, cost = find_cheapest_path(table, start, *costs)

    def cost_of(way):
        changes = sum(left != right for left, right in zip([start, *way], way, strict=False))
        lost = sum(table[window, column] for window, column in enumerate(way))
        return lost * costs[0] + sum(column + 1 for column in way) * costs[1] + changes * costs[2]

    assert cost == cost_of(path)
    assert cost == min(map(cost_of, itertools.product(range(table.shape[1]), repeat=len(table))))


@pytest.mark.parametrize(
    ("seen", "field"),
    [
        ({"missed": [[1, 2], [1]], "current": 1}, "observation.missed"),
        ({"missed": [[1, 2]], "current": 3}, "observation.current"),
        ({"missed": [[1, -2]], "current": 1}, "observation.missed"),
    ],
)
def test_windows_without_sense_are_refused_by_name(seen, field):
    with pytest.raises(BadInput) as refused:
        decide(FORECAST, {}, seen)
    assert refused.value.field == field


def test_a_path_without_any_time_to_wait_is_decided_where_nothing_waits():
    """What a rounding leaves missing is no reason to go on: no task could take it away."""
    plain = {"tasks": 1, "arrival_interval_seconds": 1, "latency_seconds": 0.0}
    rows = {"a": {**plain, "service_seconds": 1e-12, "latency_seconds": 1.0}}
    rows["b"] = {**plain, "service_seconds": 0}
    seen = {"paths": [["a"], ["a", "b"]], "operators": rows}
    decision = decide(QUEUEING, {"bound_seconds": 1, "batching_share": 1}, seen)
    assert decision.limited_by is None and decision.action["tasks"] == {"a": 1, "b": 1}
