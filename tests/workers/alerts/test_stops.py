"""What a person has stopped for a time explains what follows from it, and no more."""

import pytest

from common.stored_document import encode_document
from queues import keys
from tests.workers.alerts.checks import Looks, kinds, lost, plant, queue, rule, the_alert
from tests.workers.snapshots import snapshot_of
from workers.alerts.conditions.evidence import LedgerTick, LoopFacts
from workers.alerts.conditions.gatherer import Gatherer
from workers.alerts.evaluation import evaluator
from workers.alerts.lifecycle.models import Delivery
from workers.alerts.lifecycle.open_alerts import describe_situation, find_suppression
from workers.documents.queues import ReportedProducer

pytestmark = pytest.mark.django_db


def test_a_plant_whose_last_worker_host_is_drained_calls_once_and_says_who_did_it(looks):
    missing = {"title": "No worker", "threshold": 0, "clear_threshold": 0, "severity": "critical"}
    rule("workers-missing", condition="workers_missing", **missing)
    rule("queue-behind", condition="queue_wait", title="{queue} behind", threshold=30, clear_threshold=15)
    draining = {"part": "work", "override": 1, "by": "ada", "reason": "a disk is changed"}
    late = {"a": {**queue(99), "kind": "jobs"}, "b": {**queue(99), "kind": "jobs"}}
    host = {"role": "jobs", "slots": 2, "drained": True, "draining": draining}
    looks.snapshot = plant(queues=late, hosts={"jobs@a": host})
    looks.snapshot["totals"]["worker_slots"] = 0
    looks.pass_seconds(6)
    alert = the_alert(condition="workers_missing")
    words = "No workers process events of the jobs queues: host jobs@a is drained (ada: a disk is changed)."
    assert (alert.sentence, alert.explanation) == (words, "")
    assert {each.alert.title for each in Delivery.objects.select_related("alert")} == {"No worker"}


def test_a_drained_node_that_is_taken_away_calls_nobody_unless_events_wait_there(looks):
    rule()
    looks.snapshot = lost("n1")
    looks.snapshot["nodes"]["n1"] |= {"drained": True, "points": 0}
    looks.snapshot["queues"] = {}
    looks.pass_seconds(4)
    assert the_alert().explanation == "Node n1 is drained and empty."
    assert not Delivery.objects.exists()
    looks.snapshot["queues"] = {"a": {**queue(1), "containers": {"n1": {"waiting_events": 7}}}}
    looks.pass_seconds(4)
    assert the_alert().explanation == "" and Delivery.objects.exists()


def harmful(looks: Looks, name: str, target: dict[str, str]) -> LoopFacts:
    """A loop that has just made it worse."""
    ticks = [LedgerTick(1, looks.now, True, 1.0, None, "harmful")]
    return LoopFacts(1, name, name.partition("/")[0], target, 5.0, 5.0, looks.now, ticks=ticks)


def test_a_drained_node_that_is_taken_away_explains_its_own_loops_and_no_others(looks):
    rule()
    once = {"threshold": 1, "clear_threshold": 1, "window_seconds": 900}
    rule("loop-harmful", condition="loop_harmful", title="{loop} harmful", severity="warning", **once)
    looks.snapshot = lost("n1")
    looks.snapshot["nodes"]["n1"] |= {"drained": True, "points": 0}
    looks.snapshot["queues"] = {}
    own = {"queue": "alert", "node": "n1"}
    looks.more = {"loops": [harmful(looks, "balance", {}), harmful(looks, "worker_rate/alert/n1", own)]}
    looks.pass_seconds(10)
    of_plant, of_node = (the_alert(labels__loop=name) for name in ("balance", "worker_rate/alert/n1"))
    assert (of_plant.under, of_plant.explanation) == (None, "")
    assert {each.alert_id for each in Delivery.objects.all()} == {of_plant.pk}
    assert (of_node.under, of_node.explanation) == (None, "Node n1 is drained and empty.")


def test_a_pause_explains_its_queue_until_it_ends_and_no_other(looks):
    rule("queue-behind", condition="queue_wait", title="{queue} behind", threshold=30, clear_threshold=15)
    pause = {"part": "consumption", "override": 1, "by": "ada", "reason": "a disk is changed"}
    looks.snapshot = plant(queues={"alert": {**queue(99), "pauses": [pause]}, "other": queue(99)})
    looks.pass_seconds(6)
    alert = the_alert(labels__queue="alert")
    words = "Consumption of alert is paused without expiry (ada: a disk is changed)."
    assert alert.explanation == words
    assert find_suppression(alert) == ("paused", None)
    assert describe_situation(alert).words.startswith("Suppressed: Consumption of alert is paused")
    assert {each.alert.title for each in Delivery.objects.select_related("alert")} == {"other behind"}
    looks.snapshot = plant(queues={"alert": queue(99), "other": queue(99)})
    looks.pass_seconds(4)
    alert.refresh_from_db()
    assert alert.explanation == "" and kinds(alert) == ["fired", "explained", "unexplained"]
    assert "alert behind" in {each.alert.title for each in Delivery.objects.select_related("alert")}


def test_who_is_silent_because_of_a_pause_of_hours_calls_nobody_all_the_while(control, looks):
    rule("silent", condition="producer_silent", title="{producer} is silent", threshold=60, clear_threshold=30)
    pause = {"part": "intake", "override": 1, "by": "ada", "reason": "a disk is changed"}
    gatherer, began = Gatherer(control), looks.now
    # As in the snapshot, which shows a producer for some minutes: shop published to alert last, web to other.
    for name, ago in (("shop|alert", 5), ("shop|other", 4_000), ("web|other", 5)):
        control.hset(keys.PRODUCERS, name, encode_document(ReportedProducer(at=began - ago)))
    for seconds in (2, 70, 3_000):
        looks.now = began + seconds
        queues = {"alert": {**queue(), "pauses": [pause]}, "other": queue()}
        control.set(keys.SNAPSHOT, snapshot_of(plant(at=looks.now, queues=queues)).to_json())
        evaluator.check(gatherer.gather(looks.now, looks.now), 1)
    alert = the_alert(labels__producer="shop")
    assert alert.explanation.startswith("Intake of alert is paused without expiry (ada:")
    assert {each.alert.title for each in Delivery.objects.select_related("alert")} == {"web is silent"}
