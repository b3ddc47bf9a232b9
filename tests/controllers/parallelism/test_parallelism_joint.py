"""The joint law: what it learns, when a change pays for its pause, and that no rescale makes a backlog."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from controllers import catalog
from controllers.framework.law import decide_next
from controllers.parallelism.joint_law import JointParallelism
from controllers.parallelism.needs import ScalingCurve
from controllers.parallelism.plan import Demand, Lateness, PlanRanges, compute_waiting_cost, find_cheapest_plan

LAW = JointParallelism()
SERVICE = 0.01


def operators(tasks, rate, service=SERVICE, backlog=0.0):
    row = {"service_seconds": service, "backlog_events": backlog, "rate_per_second": rate}
    return {name: {"tasks": count, **row} for name, count in tasks.items()}


def observation(rows, source, ahead=None, deviation=None, at=0.0):
    return {
        "at_seconds": at,
        "source_per_second": source,
        "forecast_per_second": ahead,
        "deviation_per_second": deviation or (None if ahead is None else [0.0] * len(ahead)),
        "paths": [list(rows)],
        "operators": rows,
    }


def decide(document, state=None, **given):
    parameters = catalog.read_parameters(LAW, {"maximum": 100, **given})
    seen = catalog.read_observation(LAW, document)
    catalog.check_observation(LAW, parameters, seen)
    return decide_next(LAW, parameters, catalog.read_state(LAW, parameters, state), seen)


# -- the curve


@given(st.floats(1e-4, 1), st.floats(0, 0.2), st.integers(1, 30), st.integers(31, 90), st.integers(1, 90))
def test_two_points_far_apart_say_what_any_number_of_tasks_passes(service, contention, few, many, asked):
    def true(tasks):
        return service * (1 + contention * (tasks - 1))

    curve = ScalingCurve.fit({few: true(few), many: true(many)}, many)
    # The slope is drawn a little towards 0, the closer the points are the more.
    drawn = 1 / (1 + 1 / ((many - few) ** 2 / 2))
    assert curve.compute_service_seconds(many) == pytest.approx(true(many))
    assert curve.slope_seconds == pytest.approx(min(drawn * service * contention, 0.9 * true(many) / many))
    assert curve.compute_capacity_per_second(asked) == pytest.approx(asked / curve.compute_service_seconds(asked))


@given(st.floats(1e-4, 1), st.floats(0, 0.5), st.floats(0.01, 1e4), st.floats(0.1, 1))
def test_the_tasks_for_a_rate_are_the_fewest_that_pass_it(base, part, rate, utilisation):
    curve = ScalingCurve(base, base * part)
    tasks = curve.compute_fewest_tasks(rate, utilisation)
    if math.isinf(tasks):
        assert curve.compute_capacity_per_second(1e12) * utilisation <= rate * (1 + 1e-6)
        return
    assert curve.compute_capacity_per_second(tasks) * utilisation >= rate * (1 - 1e-6)
    assert tasks == 1 or curve.compute_capacity_per_second(tasks - 1) * utilisation < rate * (1 + 1e-6)


# -- the plan


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_the_plan_is_as_cheap_as_the_cheapest_of_all_ways(seed):
    chance = np.random.default_rng(seed)
    count = int(chance.integers(1, 5))
    needs, current = chance.integers(1, 9, (count, 2)), chance.integers(1, 9, 2)
    levels, waiting = chance.integers(1, 12, (3, 2)), chance.uniform(0, 30, (count, count, 3))
    waiting_now = np.cumsum(chance.uniform(0, 10, count)).tolist()
    keeps = [bool((need <= current).all()) for need in needs]
    change_cost = float(chance.uniform(0, 40))
    costs = []
    for changes in product([False, True], repeat=count):
        starts = [at for at, change in enumerate(changes) if change]
        until = starts[0] if starts else count
        if not all(keeps[:until]):
            continue
        cost = current.sum() * until * 2.0 + (waiting_now[until - 1] if until else 0.0)
        for begin, end in pairwise([*starts, count]):
            least = needs[begin:end].max(axis=0)
            cost += change_cost + min(
                np.maximum(level, least).sum() * 2.0 * (end - begin) + waiting[begin, end - 1, at]
                for at, level in enumerate(levels)
            )
        costs.append(cost)
    plan = find_cheapest_plan(current, keeps, waiting_now, PlanRanges(needs, levels, waiting, 2.0, change_cost))
    assert plan.cost == pytest.approx(min(costs))


# -- what waits


DEMAND = Demand(np.full((1, 4), 100.0), np.ones(1), 60.0, 100.0, 0.0)
LATENESS = Lateness(deadline_seconds=60.0, work_seconds=0.01, missed_cost=10.0)
NOW = np.zeros(1, dtype=np.int64)


def test_a_capacity_that_is_enough_makes_nobody_wait_and_one_that_is_not_makes_all_late_in_the_end():
    late, left = compute_waiting_cost(DEMAND, LATENESS, np.asarray([50.0, 100.0]), NOW, 0.0)
    assert late[0, :, 1].max() == left[0, :, 1].max() == 0.0
    # After four minutes at half of what comes 12 000 wait, the last of them for four minutes.
    assert left[0, -1, 0] == pytest.approx(12_000 * 0.01 * (1 + 10.0))
    assert late[0, -1, 0] > 6_000 * 0.01 * 10.0


def test_what_fails_comes_again_until_the_wait_is_below_the_deadline():
    """100/s are new, 300/s come again. At 200/s they never end; at 900/s what waits is soon in time again."""
    storm = Demand(np.full((1, 8), 100.0), np.ones(1), 60.0, 100.0, 30_000.0, again_per_second=300.0)
    alone = Demand(np.full((1, 8), 100.0), np.ones(1), 60.0, 100.0, 30_000.0)
    (stormy, _), (calm, _) = (
        compute_waiting_cost(each, LATENESS, np.asarray([200.0, 900.0]), NOW, 0.0) for each in (storm, alone)
    )
    new_each_minute = np.diff(stormy[0], axis=0)
    assert new_each_minute[-1, 0] == pytest.approx(400 * 60 * 0.01 * 10.0)
    assert new_each_minute[-1, 1] == 0.0
    assert stormy[0, -1, 1] > calm[0, -1, 1]


# -- the law


def test_what_is_forecast_is_met_before_it_comes():
    rows = operators({"a": 5, "b": 5}, 350.0)
    _, decision = decide(observation(rows, 350.0, [700.0, 700.0, 700.0]))
    assert all(count >= 700 * SERVICE / 0.8 for count in decision.action["tasks"].values())
    assert "do not suffice for the forecast load" in decision.reason


def test_a_short_dip_keeps_the_tasks_and_a_long_one_pays_for_the_pause():
    rows = operators({"a": 10}, 300.0)
    _, short = decide(observation(rows, 300.0, [300.0, 780.0]))
    _, long = decide(observation(rows, 300.0, [300.0] * 20))
    assert short.action is None and "pause" in short.reason
    assert long.action["tasks"]["a"] < 10 and "exceeds the cost of the pause" in long.reason


@pytest.mark.parametrize(("parameter", "measured", "price"), [(0.0, 20.0, 20.0), (20.0, 5.0, 20.0), (5.0, None, 5.0)])
def test_the_pause_of_a_change_is_the_longer_of_the_assumed_and_the_measured_one(parameter, measured, price):
    seen = observation(operators({"a": 10}, 300.0), 300.0, [300.0] * 3) | {"change_pause_seconds": measured}
    assert decide(seen, pause_seconds=parameter)[1].terms["pause_seconds"] == price


def test_a_measured_rebalance_prevents_a_change_that_would_not_repay_it():
    rows = operators({"a": 10}, 300.0)
    quick = decide(observation(rows, 300.0, [300.0] * 3), pause_seconds=0.0, deadline_seconds=5.0)[1]
    slow = observation(rows, 300.0, [300.0] * 3) | {"change_pause_seconds": 20.0}
    assert quick.action is not None
    assert decide(slow, pause_seconds=0.0, deadline_seconds=5.0)[1].action is None


@given(st.floats(50, 3000), st.floats(0, 60), st.floats(0, 20_000))
def test_no_change_leaves_what_its_pause_piles_up_waiting_beyond_the_deadline(rate, pause, backlog):
    rows = operators({"a": 1}, rate, backlog=backlog)
    given_ = {"pause_seconds": pause, "target_utilisation": 0.99, "maximum": 1000}
    _, decision = decide(observation(rows, rate, [rate] * 30), **given_)
    if decision.action is None:
        return
    capacity = decision.action["tasks"]["a"] / SERVICE
    left = rate * pause + backlog - (capacity - rate) * 30 * 60.0
    assert left / capacity <= 60.0


def test_a_storm_of_what_comes_again_is_ended_by_one_decision():
    """288,000 events wait behind one task, which lets 100/s through, and 4,000/s have failed. Who reads only
    what gets through sees 100/s, and 290/s to come."""
    rows = operators({"a": 1}, 100.0, backlog=288_000.0)
    seen = observation(rows, 100.0, [290.0] * 20) | {"failed_per_second": 4_000.0}
    _, decision = decide(seen, maximum=1000, pause_seconds=20.0)
    # More than what is new and what comes again: it ends.
    assert decision.action["tasks"]["a"] / SERVICE > 4_290
    # Not measured, it is all that waits beyond the deadline, once in each.
    _, unmeasured = decide(observation(rows, 100.0, [290.0] * 20), maximum=1000, pause_seconds=20.0)
    assert unmeasured.action["tasks"]["a"] / SERVICE > 290 + 288_000 / 60 - 100


def test_doubt_in_the_forecast_is_paid_for_in_tasks():
    rows = operators({"a": 5}, 450.0)
    _, sure = decide(observation(rows, 450.0, [700.0] * 30))
    _, unsure = decide(observation(rows, 450.0, [700.0] * 30, [200.0] * 30))
    assert sure.action["tasks"]["a"] == 9 and unsure.action["tasks"]["a"] > 10
    careless = decide(observation(rows, 450.0, [700.0] * 30, [200.0] * 30), missed_cost=0)
    assert careless[1].action["tasks"]["a"] == 9


def test_a_bound_that_can_be_kept_brings_more_tasks_and_one_that_cannot_brings_none():
    rows = operators({"a": 5}, 700.0)
    tasks = [
        decide(observation(rows, 700.0, [700.0] * 30), bound_seconds=bound, pause_seconds=0)[1].action["tasks"]["a"]
        for bound in (1.0, 0.005, 1e-6)
    ]
    assert tasks[0] == tasks[2] == 9 and tasks[1] > 20


def test_what_did_not_help_is_blocked_said_and_tried_again_later():
    busy = operators({"a": 5}, 900.0)
    state, first = decide(observation(busy, 900.0, at=0.0))
    set_ = first.action["tasks"]["a"]
    # Twice the tasks, twice the service: nothing was gained.
    in_vain = operators({"a": set_}, 1800.0, SERVICE * set_ / 5)
    state, blocked = decide(observation(in_vain, 1800.0, at=60.0), state)
    assert blocked.action is None and blocked.limited_by == "effectiveness"
    assert "gained less than expected" in blocked.reason and "retrying later" in blocked.reason
    state, still = decide(observation(in_vain, 1800.0, at=1000.0), state)
    assert still.action is None
    helped = operators({"a": set_}, 1800.0)
    _, later = decide(observation(helped, 1800.0, at=1900.0), state)
    assert later.action["tasks"]["a"] > set_


def test_a_gain_that_noise_hides_is_no_reason_to_block():
    expected = {"tasks": 52, "from_per_second": 1000, "to_per_second": 1040}
    learnt = {"tasks": [50, 52], "service_seconds": [0.05, 0.05], "expected": expected}
    rows = operators({"a": 52}, 2_000.0, service=0.0515, backlog=237_000.0)
    _, decision = decide(observation(rows, 2_000.0, at=60.0), {"operators": {"a": learnt}})
    assert decision.action["tasks"]["a"] > 52 and decision.terms["blocked"] == []
    # Nor is such a gain noted: of one task more.
    calm = {"target_utilisation": 0.84, "tolerance": 0, "pause_seconds": 0}
    state, more = decide(observation(operators({"a": 39}, 3_300.0), 3_300.0), **calm)
    assert more.action == {"tasks": {"a": 40}} and state["operators"]["a"]["expected"] is None


@pytest.mark.parametrize(("rate", "backlog", "is_tried"), [(1800, 1e6, False), (2000, 0, False), (2000, 1e6, True)])
def test_a_block_ends_early_where_more_comes_and_what_waits_outlasts_the_deadline(rate, backlog, is_tried):
    learnt = {"tasks": [10], "service_seconds": [SERVICE], "blocked_until_seconds": 1_800}
    state = {"operators": {"a": {**learnt, "blocked_per_second": 1_800}}}
    rows = operators({"a": 10}, float(rate), backlog=float(backlog))
    state, decision = decide(observation(rows, float(rate), at=120.0), state)
    assert (decision.action is not None) == is_tried
    assert (state["operators"]["a"]["blocked_until_seconds"] is None) == is_tried


def test_what_a_blocked_operator_gave_back_in_a_dip_it_may_get_again_and_no_more():
    busy = operators({"a": 5}, 900.0)
    state, first = decide(observation(busy, 900.0, at=0.0))
    had = first.action["tasks"]["a"]
    in_vain = operators({"a": had}, 1800.0, SERVICE * had / 5)
    state, _ = decide(observation(in_vain, 1800.0, at=60.0), state)
    _, decision = decide(observation(operators({"a": 5}, 1800.0), 1800.0, at=120.0), state)
    assert decision.action == {"tasks": {"a": had}} and decision.terms["blocked"] == ["a"]


@pytest.mark.parametrize(
    ("field", "document"),
    [
        ("observation.deviation_per_second", observation(operators({"a": 1}, 1.0), 1.0, [1.0, 2.0], [1.0])),
        ("observation.paths[0][1]", observation(operators({"a": 1}, 1.0), 1.0) | {"paths": [["a", "b"]]}),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(field, document):
    with pytest.raises(BadInput) as refused:
        decide(document)
    assert refused.value.field == field


def test_a_state_that_makes_no_sense_is_refused_by_name():
    with pytest.raises(BadInput) as refused:
        catalog.read_state(LAW, {}, {"operators": {"a": {"tasks": [1], "service_seconds": []}}})
    assert refused.value.field == "state.operators.a.service_seconds"


def test_what_was_let_through_in_an_overload_is_not_taken_for_what_is_offered():
    def share(state):
        source, here = state["operators"]["b"]["seen_per_second"]
        return here / source

    state = None
    # Calm; jammed; what had piled up comes down; calm again.
    for rate, backlog, expected in [(300, 0, 0.6), (100, 9000, 0.6), (490, 0, 0.6), (300, 0, 0.6)]:
        rows = operators({"a": 5, "b": 5}, 500.0, backlog=float(backlog))
        rows["b"]["rate_per_second"] = float(rate)
        state, _ = decide(observation(rows, 500.0), state)
        assert share(state) == pytest.approx(expected)
    rows["b"]["rate_per_second"] = 400.0
    for _ in range(20):
        state, _ = decide(observation(rows, 500.0), state)
    assert share(state) == pytest.approx(0.8, abs=0.01)


def test_a_share_first_seen_behind_a_jam_is_one_of_what_gets_through_it():
    """Taken for one of what is offered it was half of the true one for ever, as the jam never went: the tasks
    that were too few seemed to suffice."""
    rows = operators({"a": 5, "b": 5}, 1000.0, backlog=0.0)
    # Of 1000/s that are offered the five tasks pass 500, and each makes .8 events.
    rows["a"]["backlog_events"], rows["b"]["rate_per_second"] = 90_000.0, 400.0
    state, _ = decide(observation(rows, 1000.0))
    source, here = state["operators"]["b"]["seen_per_second"]
    assert here / source == pytest.approx(0.8)
    # It is a guess, which the first thing that is seen puts aside.
    rows["a"]["backlog_events"], rows["b"]["rate_per_second"] = 0.0, 350.0
    for _ in range(2):
        state, _ = decide(observation(rows, 500.0), state)
    source, here = state["operators"]["b"]["seen_per_second"]
    assert here / source == pytest.approx(0.7, abs=0.001)


def test_what_waits_counts_while_the_source_has_never_been_seen_to_send_anything():
    rows = operators({"a": 10}, 0.0, service=0.05, backlog=1_000_000.0)
    _, at_most = decide(observation(rows, 0.0), maximum=10)
    assert at_most.action is None
    _, free = decide(observation(rows, 0.0), maximum=1_000)
    assert free.action["tasks"]["a"] > 10
    _, idle = decide(observation(operators({"a": 10}, 0.0), 0.0), maximum=10)
    assert idle.action == {"tasks": {"a": 1}}


def test_what_a_person_sets_holds_and_the_others_are_planned_around_it():
    rows = operators({"a": 5, "b": 5}, 700.0)
    _, decision = decide(observation(rows, 700.0), tasks_of={"a": 3})
    assert decision.action["tasks"]["a"] == 3 and decision.action["tasks"]["b"] >= 9
    assert decision.terms["by_hand"] == {"a": 3} and "Set by a user: a" in decision.reason
    rows["a"]["tasks"], rows["b"]["tasks"] = 3, decision.action["tasks"]["b"]
    _, after = decide(observation(rows, 700.0), tasks_of={"a": 3, "gone": 4})
    assert after.action is None and after.terms["by_hand"] == {"a": 3}


def test_at_the_maximum_it_says_that_the_tasks_do_not_suffice():
    _, at_most = decide(observation(operators({"a": 10}, 5_000.0, backlog=50_000.0), 5_000.0), maximum=10)
    assert at_most.action is None and at_most.limited_by == "maximum"
    assert "10 tasks do not suffice, and more are not allowed" in at_most.reason
    _, below = decide(observation(operators({"a": 5}, 5_000.0), 5_000.0), maximum=10)
    assert below.action == {"tasks": {"a": 10}} and below.limited_by == "maximum"
    assert "nor do 10, and more are not allowed" in below.reason
    _, by_hand = decide(observation(operators({"a": 5}, 5_000.0), 5_000.0), tasks_of={"a": 5})
    assert by_hand.action is None and by_hand.limited_by is None and "do not suffice" in by_hand.reason
    _, enough = decide(observation(operators({"a": 10}, 900.0), 900.0), maximum=10)
    assert enough.limited_by is None and "suffice for now" in enough.reason


def test_a_rescale_says_what_capacity_and_which_latency_it_should_bring():
    _, decision = decide(observation(operators({"a": 5}, 700.0), 700.0))
    tasks = decision.action["tasks"]["a"]
    assert decision.expected.metric == "capacity_per_second" and decision.expected.direction == "up"
    assert decision.expected.amount == pytest.approx(0.99 * (tasks - 5) / SERVICE)
    assert 0 < decision.terms["path_seconds"] < 0.1
    _, fewer = decide(observation(operators({"a": 10}, 100.0), 100.0))
    assert (fewer.expected.metric, fewer.expected.direction) == ("tasks", "down")
    assert fewer.expected.amount == 10 - fewer.action["tasks"]["a"]
