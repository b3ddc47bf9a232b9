"""The judgment of audited actions: which ones end a cause, and which ones cost points."""

from types import SimpleNamespace

import pytest

from common.errors import BadInput
from console.accounts.access import ACTIONS
from console.drills.faults import concentrate_points, find_usual_producer
from console.drills.records import FAULT_WORDS
from console.drills.scenarios import SCENARIOS, assess, get_scenario
from workers.documents.queues import ProducerStatus
from workers.documents.snapshot import Snapshot

SUBJECTS = {"queue": "slow", "node": "n2"}
# Audited under another name than the permission that they need.
RECORDED_AS = {"queue.change": "queue.define"}


def entry(action, target, **after):
    return SimpleNamespace(action=action, target=target, after=after)


PAUSED = entry("queue.pause", "queue slow", consumption="paused", expires_at=None)
MORE_SLOTS = entry("override.set", "concurrency/jobs@here", pool_size=3)
OTHER_PAUSED = entry("queue.pause", "queue alert", consumption="paused")


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_can_be_ended_by_something_that_people_may_do(name):
    scenario = SCENARIOS[name]
    responses = [response for group in scenario.right for response in group]
    assert all(scenario.right) and len(scenario.right) <= len(scenario.faults)
    assert {RECORDED_AS.get(response.action, response.action) for response in responses} <= set(ACTIONS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_tells_what_to_do_without_a_gap(name):
    scenario = SCENARIOS[name]
    texts = [scenario.briefing, *scenario.hints, *(FAULT_WORDS[fault.kind] for fault in scenario.faults)]
    assert len(scenario.hints) == 3 and scenario.lesson
    assert all("{" not in text.format(**SUBJECTS) for text in texts)


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_fault_has_an_end(name):
    assert all(0 < fault.seconds <= 300 and fault.after_seconds <= 60 for fault in SCENARIOS[name].faults)


def test_the_action_that_ends_the_cause_is_right_and_the_same_at_another_queue_is_harmful():
    scenario = SCENARIOS["slow-handler"]
    judged = [scenario.judge(each, SUBJECTS) for each in (PAUSED, MORE_SLOTS, OTHER_PAUSED)]
    assert judged == ["right", "no effect", "harmful"]
    assert scenario.judge(entry("alert.note", "alert 3"), SUBJECTS) == "neutral"


def test_a_queue_is_not_taken_for_another_whose_name_contains_it():
    longer = entry("queue.pause", "queue slower", consumption="paused")
    assert SCENARIOS["slow-handler"].judge(longer, SUBJECTS) == "harmful"


def test_the_time_is_that_of_the_first_right_action_and_later_changes_cost_nothing():
    assessed = assess(SCENARIOS["slow-handler"], SUBJECTS, [(9.0, MORE_SLOTS), (40.0, PAUSED), (50.0, MORE_SLOTS)])
    assert assessed.action_seconds == 40.0
    assert assessed.verdicts == ["no effect", "right", "neutral"]


def test_of_two_failures_each_needs_its_own_action():
    scenario = SCENARIOS["two-failures"]
    drained = entry("node.use", "n2", drained=True)
    assert assess(scenario, SUBJECTS, [(20.0, PAUSED)]).action_seconds is None
    assert assess(scenario, SUBJECTS, [(20.0, PAUSED), (70.0, drained)]).action_seconds == 70.0


def test_an_action_before_the_alert_counts_as_at_once():
    assert assess(SCENARIOS["slow-handler"], SUBJECTS, [(-4.0, PAUSED)]).action_seconds == 0.0


def test_under_load_each_action_that_the_console_offers_is_right():
    slot = entry("loop.mode", "concurrency/jobs@here", mode="manual", expires_at=None)
    pause = entry("queue.pause", "queue slow", intake="paused", expires_at=None)
    offered = (slot, PAUSED, pause)
    for name in ("burst", "hot-key"):
        assert {SCENARIOS[name].judge(action, SUBJECTS) for action in offered} == {"right"}


def test_a_hot_key_comes_from_the_usual_producer_of_its_queue():
    producers = {"web": ProducerStatus(queues={"slow": 30.0}), "app": ProducerStatus(queues={"slow": 9.0})}
    assert find_usual_producer(Snapshot(producers=producers), "slow") == "web"
    assert find_usual_producer(Snapshot(producers=producers), "practice") == "practice"


def test_an_unknown_drill_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="must be one of burst, "):
        get_scenario("fire")


def test_a_harmful_plan_can_begin_on_a_node_without_points_and_needs_a_second_node():
    assert concentrate_points("n2", {"n1", "n2", "n3"}) == {"n2": 900, "n1": 50, "n3": 50}
    assert sum(concentrate_points("n2", {"n1", "n3", "n4", "n5"}).values()) == 1000
    with pytest.raises(BadInput, match="only node"):
        concentrate_points("n2", {"n2"})
