"""Error budgets in the ladder and the shedding law: never past them, and nothing changes without one."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.parameter import build
from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.shedding.budgets import MIN_TO_KEEP
from controllers.shedding.inputs import SheddingInputs, SheddingObservation, SheddingParameters
from controllers.shedding.ladder import LEVELS, SHED, THROTTLE, Ladder
from controllers.shedding.law import Shedding
from workers.objectives.error_budget import MinuteCounts, compute_allowed, compute_left_share

LADDER, LAW = Ladder(), Shedding()
BELOW = dict.fromkeys(LEVELS[: SHED - 1], True)
WINDOW_MINUTES, BOOKED_AFTER_SECONDS = 400, 15


def budget(left: float, share: float | None, level: str = "shed") -> dict[str, Any]:
    return {"level": level, "name": "loss", "left": left, "share": share}


def ladder_decision(
    state: Any, demand: float, capacity: float, rows: list[dict[str, Any]], saturated: Any = BELOW, **given: Any
) -> Any:
    parameters = catalog.read_parameters(LADDER, given)
    seen = {"demand_per_second": demand, "capacity_per_second": capacity, "saturated": saturated}
    observed = catalog.read_observation(LADDER, {**seen, "budgets": rows})
    return decide_next(LADDER, parameters, state or start_state(LADDER, parameters), observed)


def shedding(rate: float, rows: list[dict[str, Any]], state: Any = None, **given: Any) -> Any:
    """The law's decision on one pattern that can do 100 events/s, of `rate` that come."""
    parameters = catalog.read_parameters(LAW, {"utilisation_budget": 0.2, "spare": "admit", **given})
    pattern = {
        "operator": "o", "name": "p", "expression": "SEQ(a; b)", "emits": "m", "seconds": 0.002,
    }  # fmt: skip
    seen = {
        "arrivals": {"o": {"a": rate / 2, "b": rate / 2}},
        "patterns": [pattern],
        "sinks": {"m": 1.0},
        "budgets": rows,
    }
    observed = catalog.read_observation(LAW, seen)
    catalog.check_observation(LAW, parameters, observed)
    after, decision = decide_next(LAW, parameters, state or start_state(LAW, parameters), observed)
    inputs = SheddingInputs.arrange(build(SheddingParameters, parameters), build(SheddingObservation, observed))
    return after, decision, inputs


def test_the_ladder_does_not_shed_with_too_little_left_and_says_of_which_objective():
    state, decision = ladder_decision(None, 2_000, 1_000, [budget(5.0, 0.015)])
    assert decision.action == {"rung": THROTTLE, "closed_share": 0.5}
    _, decision = ladder_decision(state, 2_000, 1_000, [budget(5.0, 0.015)])
    assert (decision.limited_by, decision.action["rung"]) == ("error budget", THROTTLE)
    assert decision.reason == (
        "Keep throttling: throttling is saturated, and the error budget of loss is too small to shed. "
        "(Unmet demand: 50 %.)"
    )
    assert ladder_decision(state, 2_000, 1_000, [budget(5.0, 0.02)])[1].action["rung"] == SHED


def test_shedding_ends_when_its_budget_is_used_up_and_throttling_goes_on():
    state, decision = ladder_decision(None, 2_000, 1_000, [budget(1e6, 0.9)])
    assert decision.action["rung"] == SHED
    state, decision = ladder_decision(state, 2_000, 1_000, [budget(1e3, 0.0101)])
    assert decision.action["rung"] == SHED  # it is used up to the reserve
    state, decision = ladder_decision(state, 2_000, 1_000, [budget(1e3, 0.0099)])
    assert decision.action == {"rung": THROTTLE, "closed_share": 0.5}
    assert decision.reason.startswith("Disable shedding: the error budget of loss is too small to shed;")


def test_a_budget_of_which_nothing_is_known_allows_nothing():
    assert ladder_decision(None, 2_000, 1_000, [budget(0.0, None)])[1].action["rung"] == THROTTLE
    _, decision, _ = shedding(300.0, [budget(0.0, None)])
    assert not any(decision.action["shed"]["p"].values())


def test_throttling_closes_no_more_than_its_budget_allows_and_is_passed_once_that_is_used_up():
    rows = [budget(720.0, 0.5, "throttle")]
    saturated = {**BELOW, "throttle": False}
    state, decision = ladder_decision(None, 2_000, 1_000, rows, saturated)
    assert decision.action == {"rung": THROTTLE, "closed_share": 0.2}  # 720 s over an hour
    _, decision = ladder_decision(state, 2_000, 1_000, [budget(0.0, 0.0, "throttle")], saturated)
    assert decision.action == {"rung": SHED, "closed_share": 0.0}
    assert "throttling out of error budget" in decision.reason
    both = [budget(0.0, 0.0, "throttle"), budget(0.0, 0.0)]
    assert ladder_decision(state, 2_000, 1_000, both, saturated)[1].action["closed_share"] == 0.0


def test_the_law_sheds_no_more_than_its_budget_allows_and_says_so():
    _, free, inputs = shedding(300.0, [])
    wanted = inputs.compute_shed_rate(free.action["shed"])
    assert wanted == pytest.approx(200.0)
    after, limited, inputs = shedding(300.0, [budget(180_000.0, 0.5)])
    assert inputs.compute_shed_rate(limited.action["shed"]) == pytest.approx(50.0)
    assert limited.limited_by == "error budget"
    assert "the error budget allows 50 events/s to be shed" in limited.reason
    assert limited.action["utilisation"] == pytest.approx(0.002 * 250)
    # Enough left: the same as without.
    assert shedding(300.0, [budget(1e9, 0.9)])[1] == free
    # What is left falls: the table follows once it sheds a twentieth too much, and when there is more again.
    assert shedding(300.0, [budget(175_000.0, 0.5)], after)[1].action is None
    assert "allows less" in shedding(300.0, [budget(170_000.0, 0.5)], after)[1].reason
    assert "allows more" in shedding(300.0, [budget(190_000.0, 0.5)], after)[1].reason
    assert "allows more" in shedding(300.0, [], after)[1].reason


@given(st.floats(1, 5_000), st.floats(0, 1e7), st.floats(60, 1e5))
def test_no_table_ever_sheds_more_than_what_is_left_over_its_time(rate, left, budget_seconds):
    _, decision, inputs = shedding(rate, [budget(left, 0.5)], budget_seconds=budget_seconds)
    shed = decision.action["shed"] if decision.action else {}
    assert inputs.compute_shed_rate(shed) <= left / budget_seconds * (1 + 1e-9)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 400))
def test_a_cut_of_tables_up_and_down_the_stream_keeps_to_what_is_allowed(above, below, most):
    parameters = catalog.read_parameters(LAW, {})
    patterns = [
        {"operator": "o", "name": "p", "expression": "a", "emits": "m", "seconds": 0.001, "outputs": 3.0},
        {"operator": "q", "name": "r", "expression": "m", "emits": "n", "seconds": 0.001},
    ]
    seen = {"arrivals": {"o": {"a": 100.0}}, "patterns": patterns, "sinks": {"n": 1.0}}
    observed = catalog.read_observation(LAW, seen)
    inputs = SheddingInputs.arrange(build(SheddingParameters, parameters), build(SheddingObservation, observed))
    table = {"p": {"a": above}, "r": {"m": below}}
    found = inputs.cut(table, most)
    assert inputs.compute_shed_rate(found) <= most or found is table
    if inputs.compute_shed_rate(table) <= most:
        assert found is table


class Run:
    """A plant that sheds as ladder and law say, and an objective that books it, some seconds late."""

    def __init__(self, target: float, before: float) -> None:
        self.target, self.counts = target, MinuteCounts(WINDOW_MINUTES, 0)
        self.counts.add(0, 0.0, before)
        self.second, self.state, self.shares, self.pending = 0, None, 0.0, []
        self.law_state, self.beyond, self.shed = None, 0.0, 0.0

    def rows(self) -> list[dict[str, Any]]:
        whole = self.counts.sum_window()
        return [budget(compute_allowed(whole, self.target) - whole.bad, compute_left_share(whole, self.target))]

    def step(self, rate: float, capacity: float, seconds: int) -> None:
        rows = self.rows()
        self.state, _ = ladder_decision(self.state, rate, capacity, rows)
        left = rows[0]["share"]
        if self.state["rung"] >= SHED:
            assert left is not None and left >= MIN_TO_KEEP, "it sheds past its budget"
        shed = 0.0
        if self.state["rung"] >= SHED:
            self.law_state, _, inputs = shedding(rate, rows, self.law_state, utilisation_budget=0.002 * capacity)
            shed = inputs.compute_shed_rate(self.law_state["shed"])
        else:
            self.law_state = None
        self.pending.append((self.second, shed * seconds, rate * seconds))
        self.second += seconds
        while self.pending and self.pending[0][0] <= self.second - BOOKED_AFTER_SECONDS:
            at, bad, total = self.pending.pop(0)
            self.counts.add(at // 60, bad, total)
            self.counts.advance(self.second // 60)
            self.shed += bad
            if bad:
                whole = self.counts.sum_window()
                self.beyond = max(self.beyond, whole.bad - compute_allowed(whole, self.target))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(4))
def test_ladder_and_law_never_shed_past_the_budget_in_random_runs(seed):
    choose = random.Random(seed)
    run = Run(choose.choice([0.9, 0.99, 0.999]), choose.choice([0.0, 1e5, 1e7]))
    rate, capacity = 100.0, 100.0
    for _ in range(250):
        if choose.random() < 0.1:
            rate, capacity = choose.choice([50.0, 150.0, 400.0, 2_000.0]), choose.choice([40.0, 100.0, 300.0])
        run.step(rate, capacity, choose.choice([2, 5, 5, 20]))
    assert run.beyond <= 0.0
    assert run.shed > 0  # it did spend some of it
