"""What an alert means for the events is true of its queue, and of the others."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.workers.alerts.checks import Looks, lost, node, rule, the_alert
from tests.workers.snapshots import judged, snapshot_of
from workers.alerts.conditions import plant_conditions
from workers.alerts.conditions.evidence import Evidence
from workers.alerts.delivery import outbox
from workers.alerts.evaluation.impact import Impacts, describe_first_step

PAUSE = {"part": "consumption", "override": 1, "by": "ada", "reason": "x", "until": 2000.0}
BEHIND = {"kind": "jobs", "wait_seconds": 40.0, "waiting_events": 9_000}
CALM = {"kind": "jobs", "wait_seconds": 0.1, "waiting_events": 1}


def impact(condition: str, queue: str, **queues: dict[str, Any]) -> str:
    snapshot = judged(snapshot_of({"at": 1000.0, "nodes": {"n1": {"state": "NORMAL"}}, "queues": queues}))
    return Impacts(snapshot).collect(SimpleNamespace(condition=condition, labels={"queue": queue}, under_id=None))


def test_the_impact_of_a_late_queue_is_that_of_the_cause_that_the_headline_names():
    said = "The oldest event of a waits 40 s (limit 30 s). 9,000 events wait."
    assert impact("queue_wait", "a", a=BEHIND, b=CALM) == said


def test_points_of_a_lost_node_are_said_to_move_only_while_it_has_some():
    assert describe_first_step("node_lost", points=3).endswith("to other nodes after 10 s.")
    assert (
        describe_first_step("node_lost", points=0)
        == "Restart the node's agent or server. Kill it if it is suspended. Check the node's host."
    )


@pytest.mark.parametrize(("count", "said"), [(1, "1 event of a stays unprocessed until"), (2, "2 events of a stay")])
def test_dead_letters_are_counted_in_words(count, said):
    queue = {**CALM, "dead_letters": count}
    assert impact("dead_letters", "a", a=queue).startswith(said)
    evidence = Evidence(now=1.0, snapshot=snapshot_of({"queues": {"a": queue}}))
    (reading,) = plant_conditions.dead_letters(evidence, 0.0)
    letters = "1 dead letter" if count == 1 else "2 dead letters"
    assert reading.sentence == f"Queue a: {letters} to requeue or discard."


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (0, "The node has no points, so it receives no new events. No acknowledged events are lost."),
        (3, "The node has 3 points of a. n2 takes new events. No acknowledged events are lost."),
    ],
)
def test_of_a_lost_node_that_was_emptied_nobody_is_said_to_take_no_events(points, said):
    """Soon after a node is lost its points are moved: then *no other node takes its new events* was false."""
    nodes = {"n1": node("OFFLINE", 14.0) | {"points": points}, "n2": node() | {"points": 1_000}}
    rows = {"n1": {"points": points, "waiting_events": 0}, "n2": {"points": 1_000 - points}}
    snapshot = snapshot_of({"at": 1.0, "nodes": nodes, "queues": {"a": CALM | {"containers": rows}}})
    alert = SimpleNamespace(condition="node_lost", labels={"node": "n1"})
    assert Impacts(snapshot).collect(alert) == said


def test_what_an_alert_meant_is_not_said_of_its_end(db):
    rule()
    looks = Looks()
    looks.snapshot = lost()
    looks.look()
    looks.pass_seconds(20)
    alert = the_alert()
    assert outbox.build_message_content("firing", [alert])["alerts"][0]["impact"] != ""
    alert.resolved_at = looks.at
    assert outbox.build_message_content("resolved", [alert])["alerts"][0]["impact"] == ""


@pytest.mark.parametrize(
    ("days", "rate", "said"),
    [
        (30, 14.4, "At this rate, the whole 30-day error budget lasts 2.1 days."),
        (90, 14.4, "At this rate, the whole 90-day error budget lasts 6.2 days."),
        (3, 36.0, "At this rate, the whole 3-day error budget lasts 2 h."),
        (3, 1_000.0, "At this rate, the whole 3-day error budget lasts 4 min."),
        (90, None, "At this rate, the error budget is used up long before its window ends."),
    ],
)
def test_how_long_a_budget_lasts_is_that_of_its_own_window(days, rate, said):
    objective = {"target": 0.99, "window_days": days, "kind": "queue", "subject": "a", "burn": {"fast": rate}}
    snapshot = snapshot_of({"at": 1000.0, "queues": {"a": CALM}, "objectives": {"o": objective}})
    labels = {"objective": "o", "queue": "a"}
    assert Impacts(snapshot).collect(SimpleNamespace(condition="budget_burn_fast", labels=labels)) == said
