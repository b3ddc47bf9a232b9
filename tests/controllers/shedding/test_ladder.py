"""The remedy ladder: who acts first in an overload, and who lets go first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.shedding.ladder import LEVELS, Ladder
from controllers.simulation.ladder import SCENARIO

LAW = Ladder()


def run(observations, **parameters):
    """The rung after each observation, and the decisions."""
    given = catalog.read_parameters(LAW, parameters)
    state, rungs, decisions = start_state(LAW, given), [], []
    for seen in observations:
        observed = catalog.read_observation(LAW, seen)
        catalog.check_observation(LAW, given, observed)
        state, decision = decide_next(LAW, given, state, observed)
        rungs.append(state["rung"])
        decisions.append(decision)
    return rungs, decisions


def seen(demand, capacity, backlog=0.0, *saturated):
    return {
        "demand_per_second": demand,
        "capacity_per_second": capacity,
        "backlog_seconds": backlog,
        "saturated": dict.fromkeys(saturated, True),
    }


OVER, ALL_BELOW = seen(2000, 1000), ("rebalance", "workers", "nodes", "throttle")


def test_levels_engage_one_after_the_other_as_each_is_exhausted():
    steps = [seen(2000, 1000, 0.0, *LEVELS[:count]) for count in range(5)]
    assert run(steps)[0] == [1, 2, 3, 4, 5]


def test_a_level_without_effect_is_left_after_its_settling_time_and_one_that_helps_is_not():
    assert run([OVER] * 4, settling_decisions=3)[0] == [1, 1, 1, 2]
    helping = [seen(2000, 1000 + 150 * step) for step in range(6)]
    assert run(helping, settling_decisions=3)[0] == [1] * 6


def test_throttling_and_shedding_wait_until_unmet_demand_has_lasted():
    short, met = seen(2000, 1000, 0.0, *ALL_BELOW), seen(950, 1000, 0.0, *ALL_BELOW)
    assert run([short] * 3, unmet_decisions=3)[0] == [3, 3, 5]
    assert run([short, short, met] * 4, unmet_decisions=3)[0] == [3] * 12
    _, decisions = run([short] * 2, unmet_decisions=3)
    assert decisions[1].action is None
    assert decisions[1].reason == (
        "No action: adding nodes is saturated; unmet demand has lasted for 2 of 3 decisions. (Unmet demand: 50 %.)"
    )


def throttled(came, demand=100, capacity=50):
    return {**seen(demand, capacity, 0.0, "rebalance", "workers", "nodes"), "came_per_second": came}


def test_nothing_is_shed_while_throttling_alone_keeps_what_comes_within_capacity():
    rungs, decisions = run([throttled(100), *[throttled(52)] * 12])
    assert rungs == [4] * 13
    assert {each.action["closed_share"] for each in decisions} == {0.5}


def test_a_level_is_tried_only_while_its_trial_ends_before_latency_exceeds_its_bound():
    """The queue processes 50 of 100 events/s, so the latency grows by 0.5 s/s; a trial and a decision take 20 s."""
    enough, late = ({**throttled(100), "latency_slack_seconds": seconds} for seconds in (12.0, 9.0))
    assert run([enough] * 3)[0] == [4, 4, 4]
    rungs, decisions = run([late])
    assert rungs == [5]
    assert "throttling too slow for the latency bound" in decisions[0].reason
    kept = {**throttled(50), "latency_slack_seconds": 0.0}
    assert run([enough, kept])[0] == [4, 4], "all arrivals are processed, so the latency doesn't grow"
    assert run([late] * 3, cap="throttle")[0] == [4, 4, 4]


def test_the_ladder_waits_for_advice_until_the_latency_bound_is_near():
    advice = {"advice": {"workers": "set 3 tasks"}, "saturated": {"rebalance": True}}
    slack = [{**seen(100, 50), **advice, "latency_slack_seconds": seconds} for seconds in (20.0, 10.0, 4.0)]
    assert run(slack)[0] == [2, 2, 5]


def test_throttling_that_lets_too_much_come_is_left_after_its_settling_time():
    """Others than those who publish over HTTP can't be asked to wait."""
    assert run([throttled(100), *[throttled(90)] * 3])[0] == [4, 4, 4, 5]
    calmed = [throttled(100), throttled(90), *[throttled(50)] * 5]
    assert run([*calmed, *[throttled(70)] * 3])[0] == [4] * 9 + [5], "once is no proof"


def test_shedding_goes_first_then_throttling_then_the_rest_within_three_decisions():
    steps = [seen(2000, 1000, 0.0, *ALL_BELOW)] + [seen(600, 1000)] * 3
    assert run(steps)[0] == [5, 4, 3, 0]


def test_neither_throttling_nor_shedding_engages_while_the_demand_is_met_however_much_waits():
    rungs, decisions = run([seen(100, 1000, 600.0, *ALL_BELOW)] * 4)
    assert rungs == [3, 3, 3, 3]
    assert decisions[1].limited_by == "demand met"
    assert decisions[1].reason == (
        "No action: adding nodes is saturated, and the demand is met; throttling and shedding need unmet "
        "demand. (Unmet demand: 0 %; backlog: 600 s, limit 10 s.)"
    )


@pytest.mark.parametrize("met", [seen(100, 1000, 600.0, *ALL_BELOW), seen(950, 1000, 0.0, *ALL_BELOW)])
def test_shedding_and_then_throttling_end_as_soon_as_the_demand_is_met(met):
    rungs, decisions = run([seen(2000, 1000, 0.0, *ALL_BELOW), met, met, met])
    assert rungs == [5, 4, 3, 3]
    assert decisions[1].action == {"rung": 4, "closed_share": 0.0}
    assert decisions[1].reason.startswith("Disable shedding: demand is met, and shedding needs unmet demand;")


@given(
    st.lists(
        st.tuples(st.floats(0, 3000), st.floats(1, 3000), st.floats(0, 100), st.sets(st.sampled_from(LEVELS))),
        max_size=40,
    )
)
def test_no_decision_throttles_or_sheds_at_no_unmet_demand(steps):
    _, decisions = run([seen(d, c, backlog, *s) for d, c, backlog, s in steps])
    for decision, (demand, capacity, _, _) in zip(decisions, steps, strict=True):
        if decision.action is not None and demand <= capacity:
            assert decision.action["rung"] < 4 or decision.action["closed_share"] == 0
            assert not decision.reason.startswith(("Enable throttling", "Enable shedding"))


def test_a_capped_queue_goes_no_further_and_says_so():
    rungs, decisions = run([seen(2000, 1000, 0.0, *ALL_BELOW)] * 2, cap="throttle")
    assert rungs == [4, 4]
    assert decisions[1].limited_by == "cap" and "allows no level above" in decisions[1].reason


@pytest.mark.parametrize("cap", LEVELS[:-1])
def test_shedding_that_an_error_budget_ends_leaves_no_level_above_a_lowered_cap(cap):
    given_ = catalog.read_parameters(LAW, {"cap": cap})
    state = {"rung": len(LEVELS), "decisions": 3, "unmet": 0.5, "calm": 0}
    spent = {"level": "shed", "share": 0, "name": "o", "left": 0}
    observed = catalog.read_observation(LAW, {**OVER, "budgets": [spent]})
    after, decision = decide_next(LAW, given_, catalog.read_state(LAW, given_, state), observed)
    rung = LEVELS.index(cap) + 1
    assert after["rung"] == decision.action["rung"] == rung and decision.raw == rung
    assert ("closed_share" in decision.action) == (cap == "throttle")


@given(
    st.lists(st.tuples(st.floats(0, 3000), st.floats(1, 3000), st.sets(st.sampled_from(LEVELS))), max_size=40),
    st.sampled_from(LEVELS),
)
def test_no_level_engages_above_the_cap_or_over_one_that_can_still_do_something(steps, cap):
    before = 0
    rungs, _ = run([seen(d, c, 0.0, *s) for d, c, s in steps], cap=cap, settling_decisions=1_000)
    for rung, (_, _, saturated) in zip(rungs, steps, strict=True):
        assert rung <= LEVELS.index(cap) + 1
        if rung > max(before, 1):
            assert set(LEVELS[max(before, 1) - 1 : rung - 1]) <= saturated
        before = rung


def test_an_unknown_level_is_refused_by_name():
    with pytest.raises(BadInput) as refused:
        run([seen(1, 1, 0.0, "pray")])
    assert refused.value.field == "observation.saturated.pray"


def metrics(law="ladder", **settings):
    return SCENARIO.run(law, SCENARIO.read_settings(settings), 1, None).metrics


def test_at_three_times_the_load_nothing_is_shed_before_the_lower_levels_are_exhausted():
    found = metrics(overload_percent=300)
    assert found["rungs"] == 5 and found["lost_events"] > 0
    assert found["shed_too_early"] == 0 and found["lost_orders"] == 0
    assert found["shed_after_decisions"] <= 3
    assert found["lost_events"] < 0.5 * metrics("shed-only", overload_percent=300)["lost_events"]


@pytest.mark.parametrize(("percent", "rung"), [(80, 0), (120, 2), (160, 4)])
def test_a_smaller_overload_stops_at_a_lower_level_and_loses_nothing(percent, rung):
    found = metrics(overload_percent=percent)
    assert found["rungs"] == rung and found["lost_events"] == 0


ADVICE = {"nodes": "node scaling would use n3, but is in advise: approve its plan"}


def test_advice_is_waited_for_and_named_until_its_time_is_over():
    waiting = {**seen(2000, 1000, 0.0, "rebalance", "workers"), "advice": ADVICE, "interval_seconds": 30.0}
    rungs, decisions = run([waiting] * 5)
    assert rungs == [3, 3, 3, 3, 4]
    assert decisions[0].reason == (
        "Enable adding nodes: cheaper levels are exhausted (rebalancing saturated, adding workers saturated); node "
        "scaling would use n3, but is in advise: approve its plan; the ladder waits another 120 s. "
        "(Unmet demand: 50 %.)"
    )
    assert decisions[1].reason == (
        "No action: node scaling would use n3, but is in advise: approve its plan; the ladder waits another 90 s. "
        "(Unmet demand: 50 %.)"
    )
    assert "adding nodes not approved within 120 s" in decisions[4].reason
    assert run([waiting] * 2, advice_seconds=0.0)[0] == [4, 4]


def test_advice_that_is_approved_ends_the_overload_before_anything_is_throttled():
    waiting = {**seen(2000, 1000, 0.0, "rebalance", "workers"), "advice": ADVICE}
    assert run([waiting] * 20 + [seen(2000, 2500)] * 3)[0] == [3] * 22 + [0]


def test_a_level_that_can_not_help_is_neither_enabled_nor_named():
    jobs = {
        **seen(2000, 1000, 0.0, *ALL_BELOW),
        "unavailable": {"rebalance": "the plant has a single node", "shed": "-"},
    }
    rungs, decisions = run([jobs] * 2)
    assert rungs == [4, 4]
    assert decisions[1].reason == (
        "Keep throttling: throttling is saturated, and no level above it can help. (Unmet demand: 50 %.)"
    )
    calm = {**seen(600, 1000), "unavailable": {"throttle": "no producer can wait"}}
    over = {**seen(2000, 1000, 0.0, "rebalance", "workers", "nodes"), "unavailable": calm["unavailable"]}
    rungs, decisions = run([over, calm, calm, calm])
    assert rungs == [5, 3, 3, 0], "from shedding to adding nodes"
    assert decisions[0].action == {"rung": 5, "closed_share": 0.0}
    assert decisions[1].reason.endswith("enabled: rebalancing, adding workers, adding nodes.")


def test_throttling_ends_when_its_last_producer_is_gone_and_nothing_above_can_help():
    busy = {**seen(2000, 1000, 0.0, "rebalance", "workers", "nodes"), "unavailable": {"shed": "-"}}
    gone = {**busy, "unavailable": {"shed": "-", "throttle": "no producer of alert can wait"}}
    rungs, decisions = run([busy, gone, gone])
    assert rungs == [4, 3, 3]
    assert decisions[1].reason.startswith("Disable throttling: no producer of alert can wait; enabled: rebalancing,")
    nothing = {**OVER, "unavailable": dict.fromkeys(LEVELS, "-")}
    assert run([nothing])[1][0].reason == "No action: none of the levels allowed for this queue can help now."


@given(
    st.lists(
        st.tuples(
            st.floats(0, 3000), st.floats(1, 3000), st.sets(st.sampled_from(LEVELS)), st.sets(st.sampled_from(LEVELS))
        ),
        max_size=40,
    ),
    st.sampled_from(LEVELS),
)
def test_no_decision_enables_a_level_that_can_not_help(steps, cap):
    steps = [({**seen(d, c, 0.0, *s), "unavailable": dict.fromkeys(u, "-")}, u) for d, c, s, u in steps]
    rungs, decisions = run([observed for observed, _ in steps], cap=cap)
    for rung, decision, (_, unavailable) in zip(rungs, decisions, steps, strict=True):
        if decision.reason.startswith(("Enable", "Disable")) and rung:
            assert LEVELS[rung - 1] not in unavailable
        if decision.action and "throttle" in unavailable:
            assert decision.action.get("closed_share", 0.0) == 0.0
