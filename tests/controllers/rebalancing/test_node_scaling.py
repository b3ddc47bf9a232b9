"""How many nodes are used, and what becomes of the points of a lost one."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings

from common.errors import BadInput
from controllers import catalog
from controllers.framework.law import decide_next
from controllers.rebalancing.node_scaling import NodeScaling
from controllers.request import answer
from tests.controllers.rebalancing.plants import after, node, observation, observations, queue

LAW = NodeScaling()


def decide(seen, state=None, **parameters):
    values = catalog.read_parameters(LAW, {"busy": 350, "toobusy": 450, **parameters})
    read = catalog.read_observation(LAW, seen)
    catalog.check_observation(LAW, values, read)
    return decide_next(LAW, values, catalog.read_state(LAW, values, state), read)


def plant(rate, *more_nodes):
    return observation([node("n1"), node("n2"), *more_nodes], [queue("q", rate, {"n1": 500, "n2": 500})])


def test_an_idle_node_is_taken_when_most_used_nodes_are_busy():
    _, decision = decide(plant(720, node("n3", state="IDLE")))
    assert decision.action["use"] == ["n3"] and decision.action["release"] == []


def test_the_most_capable_idle_node_is_taken_first():
    _, decision = decide(plant(720, node("small", 0.5, state="IDLE"), node("large", 2.0, state="IDLE")))
    assert decision.action["use"] == ["large"]


def test_a_forecast_calls_for_a_node_before_any_is_busy():
    seen = plant(600, node("n3", state="IDLE"))
    assert decide(seen)[1].action is None
    at = datetime(2026, 11, 30, 7, 40, tzinfo=UTC).timestamp()
    _, decision = decide({**seen, "forecast": 1.2, "forecast_at": at})
    assert decision.action["use"] == ["n3"]
    assert decision.reason.startswith("Use n3: the ramp at 07:40 UTC needs node n3: a capacity of ")


def test_without_a_forecast_the_current_load_counts_and_the_reason_says_so():
    _, decision = decide({**plant(720, node("n3", state="IDLE")), "forecast_missing": "q: collecting data"})
    assert decision.reason.startswith("Use n3: the current load needs node n3: ")
    assert "without a forecast of q: collecting data" in decision.reason


def test_of_several_nodes_that_are_not_needed_a_decision_names_the_one_that_a_plan_empties():
    seen = plant(200, node("weak", 0.5), node("strong", 2.0))
    state, _ = decide(seen)
    _, decision = decide(seen, state)
    assert decision.reason.startswith("Release weak: ") and "the other nodes suffice without weak." in decision.reason
    values = catalog.read_parameters(LAW, {"busy": 350, "toobusy": 450})
    two = decide_next(NodeScaling(release_at_once=2), values, state, catalog.read_observation(LAW, seen))[1]
    assert two.action["release"] == ["weak", "n1"], "where more can be emptied at once"


def test_what_was_lost_is_restored_before_a_node_is_used():
    seen = plant(720, node("n3", state="IDLE"), node("n4", state="OFFLINE"))
    seen["queues"][0]["containers"] = {"n1": 400, "n2": 400, "n4": 200}
    state, first = decide(seen)
    assert first.action["use"] == ["n3"]
    _, second = decide(seen, state)
    assert second.action["restore"] and (second.action["use"], second.action["release"]) == ([], [])
    assert second.reason.startswith("Restore 200 points of lost nodes: ")
    declined = {**seen, "declined": {"restore": True}}
    assert decide(declined, state)[1].action["use"] == ["n3"]


def test_the_calm_while_events_are_held_back_releases_nothing_and_counts_anew_afterwards():
    seen = plant(200, node("weak", 0.5), node("strong", 2.0))
    state, _ = decide(seen)
    state, held = decide({**seen, "held_back": True}, state)
    assert held.action is None and "events are held back" in held.reason
    state, first = decide(seen, state)
    assert first.action is None
    _, second = decide(seen, state)
    assert second.action["release"] == ["weak"]


def test_among_equals_the_node_whose_containers_find_room_most_easily_is_released():
    nodes = [node("n1"), node("n2"), node("n3")]
    heavy = queue("heavy", 200.0, {"n1": 600, "n2": 400})
    light = [queue(f"q{index}", 80.0, {"n2": 500, "n3": 500}) for index in range(4)]
    seen = observation(nodes, [heavy, *light])
    state, _ = decide(seen)
    _, second = decide(seen, state, minimum_containers=2)
    # n1 carries least, 120, but in one piece; n3's 160 are in four.
    assert second.action["release"] == ["n3"]


def test_as_many_nodes_stay_as_a_queue_needs_containers():
    seen = plant(1.0)
    state, _ = decide(seen)
    assert decide(seen, state)[1].action is None


def test_nothing_idle_is_left_is_said_as_the_limit():
    _, decision = decide(plant(900))
    assert decision.limited_by == "nodes" and decision.action is None


def test_a_node_that_stays_away_gives_its_points_to_the_others_and_the_minimum_is_kept():
    seen = plant(300, node("n3"))
    seen["nodes"][1]["state"] = "OFFLINE"
    state, first = decide(seen)
    assert first.action is None
    _, second = decide(seen, state)
    assert after(seen, second.action["restore"]) == {"q": {"n1": 500, "n3": 500}}


def test_a_node_that_comes_back_in_time_keeps_its_points():
    seen = plant(300, node("n3"))
    seen["nodes"][1]["state"] = "OFFLINE"
    state, _ = decide(seen)
    seen["nodes"][1]["state"] = "NORMAL"
    state, _ = decide(seen, state)
    assert state["lost"] == {}


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@given(seen=observations(nodes=(3, 7)))
def test_whatever_is_lost_every_restored_queue_has_all_points_and_its_minimum_on_living_nodes(seen):
    _, decision = decide(seen, lost_decisions=1)
    moves = [] if decision.action is None else decision.action["restore"]
    points = after(seen, moves)
    lost = {each["name"] for each in seen["nodes"] if each["state"] == "OFFLINE"}
    able = {each["name"] for each in seen["nodes"] if not each["drained"]} - lost
    for name in {move["queue"] for move in moves}:
        assert not lost & points[name].keys()
        assert len(points[name].keys() & able) >= min(2, len(able))
    assert all(move["from"] in lost and move["to"] in able for move in moves)


def test_a_release_that_would_call_for_the_node_again_is_refused():
    with pytest.raises(BadInput) as refusal:
        answer("node_scaling", {"parameters": {"fill": 0.5, "margin": 0.6}, "observations": [plant(1)]})
    assert refusal.value.field == "parameters.margin"
