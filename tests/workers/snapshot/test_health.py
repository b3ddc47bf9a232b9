"""The sentence people read first: true, worst first, and calm when all is well."""

from typing import Any

import pytest

from tests.workers.snapshots import judged, snapshot_of
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.evaluation.impact import describe_first_step
from workers.alerts.rules.rules import FIRST_RULES
from workers.documents.snapshot import PlantHealth, Snapshot
from workers.snapshot.compose import wait_seconds

DRAIN = {"part": "work", "override": 1, "by": "ada", "reason": "a disk."}


def node(**changed: Any) -> dict[str, Any]:
    calm = {"state": "NORMAL", "age_seconds": 0.4, "points": 334, "utilisation": 0.2}
    return {**calm, **changed}


def queue(**changed: Any) -> dict[str, Any]:
    calm = {"kind": "jobs", "wait_seconds": 1.0, "waiting_events": 10, "trouble": None, "dead_letters": 0}
    return {**calm, **changed}


def plant(**changed: Any) -> Snapshot:
    calm: dict[str, Any] = {
        "nodes": {"n1": node(), "n2": node(), "n3": node()},
        "queues": {"alert": queue(), "telemetry": queue(kind="pipeline")},
        "pipeline": {"state": "running", "age_seconds": 0.5, "error": None},
        "totals": {"worker_slots": 2},
    }
    return snapshot_of({**calm, **changed})


def health(snapshot: Snapshot) -> PlantHealth:
    """As the observer publishes it."""
    return judged(snapshot).health


def test_a_calm_plant_says_so():
    assert health(plant()) == PlantHealth("NORMAL", "All queues keep up.", "All 3 nodes are normal.", word="Normal")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"nodes": {"n1": node(state="TOOBUSY", utilisation=0.95)}}, "Too busy"),
        ({"nodes": {"n1": node(state="OFFLINE", stale=True, age_seconds=14.0)}}, "Offline"),
        ({"totals": {"worker_slots": 0}}, "Critical"),
        ({"queues": {"alert": queue(waiting_events=63_517, wait_seconds=40.0)}}, "Warning"),
        ({"queues": {"alert": queue(waiting_events=74_412, wait_seconds=3.0, in_per_second=9.0)}}, "Notice"),
        (
            {"alerts": [{"id": 7, "severity": "critical", "condition": "disk_full", "sentence": "It is full."}]},
            "Critical",
        ),
    ],
)
def test_the_word_before_the_sentence_is_true_of_that_sentence(change, word):
    """A queue, an alert or a plant without workers is not "too busy": nothing was said of a load."""
    assert health(plant(**change)).word == word


def test_a_wait_is_what_the_oldest_event_has_waited_whatever_the_rate_promises():
    assert wait_seconds(30_000, 48.0) == 48.0
    assert wait_seconds(1, 0.8) == 0.8
    assert wait_seconds(0, None) == 0.0
    assert wait_seconds(5, None) is None
    assert wait_seconds(None, None) is None


def test_the_headline_is_one_finding_and_the_others_are_its_list():
    nodes = {"n1": node(state="BUSY", utilisation=0.8), "n2": node(state="OFFLINE", age_seconds=5.0)}
    found = health(plant(nodes=nodes, queues={"alert": queue(dead_letters=3)}))
    assert [each.subject for each in found.findings] == ["node/n2", "queue/alert", "node/n1"]
    assert found.sentence == found.findings[0].sentence
    assert "n1 is busy" not in found.sentence


def test_a_problem_without_an_incident_says_when_the_incident_opens():
    late, dead = queue(wait_seconds=60.0, waiting_events=9), queue(dead_letters=3)
    opening = {"queue/alert": 1_060.0}
    found = health(plant(queues={"alert": late, "slow": dead}, opening=opening)).findings
    assert {row.subject: row.opens_at for row in found} == {"queue/alert": 1_060.0, "queue/slow": None}
    alert = {"id": 7, "severity": "warning", "condition": "queue_wait", "labels": {"queue": "alert"}}
    (row,) = health(plant(queues={"alert": late}, opening=opening, alerts=[alert])).findings
    assert (row.incident, row.opens_at) == (7, None)


BUSY_HOST = {
    "id": 7,
    "severity": "critical",
    "condition": "host_overloaded",
    "sentence": "3 of 3 loops tick late, because the host is too busy for the processes of Weir.",
}


def test_nobody_says_that_all_is_normal_while_an_alert_of_no_subject_is_open():
    found = health(plant(alerts=[BUSY_HOST]))
    assert (found.state, found.severity, found.sentence) == ("TOOBUSY", "critical", BUSY_HOST["sentence"])
    assert found.findings[0].subject == "alert/7"


@pytest.mark.parametrize(("alerts", "said"), [([], "9 loops have stopped."), ([BUSY_HOST], BUSY_HOST["sentence"])])
def test_nine_loops_of_one_cause_are_one_finding(alerts, said):
    loop = {"law": "rebalancing", "at": 100.0, "interval_seconds": 5.0}
    loops = {f"rebalancing/{number}": loop for number in range(9)}
    found = health(plant(at=200.0, loops=loops, alerts=alerts))
    assert [each.sentence for each in found.findings] == [said]


def test_what_an_attached_plants_alert_does_to_its_loops_is_said_once_and_those_of_others_by_themselves():
    loop = {"law": "parallelism_joint", "at": 100.0, "interval_seconds": 5.0}
    loops = {f"x/plant:{name}": {**loop, "target": {"plant": name}} for name in ("shop", "east")}
    alert = {"id": 7, "severity": "warning", "condition": "queue_unserved", "labels": {"plant": "shop"}}
    alert |= {"sentence": "3 tasks wait in queue mail of shop."}
    found = health(plant(at=200.0, loops=loops, alerts=[alert]))
    assert {each.subject for each in found.findings} == {"alert/7", "loop/x/plant:east"}
    silenced = health(plant(at=200.0, loops=loops, alerts=[{**alert, "quiet": "silenced"}]))
    assert {each.subject for each in silenced.findings} == {f"loop/{name}" for name in loops}


@pytest.mark.parametrize(
    "changed",
    [
        {"condition": "queue_wait"},  # its queue keeps up again, and the alert ends a while later
        {"quiet": "silenced"},
        {"quiet": "explained", "under": 6},
        {"severity": "notice"},
    ],
)
def test_an_alert_that_a_state_says_or_that_calls_for_nobody_is_not_the_headline(changed):
    assert health(plant(alerts=[{**BUSY_HOST, **changed}])).severity == "well"


@pytest.mark.parametrize(
    ("changed", "state", "words"),
    [
        ({"nodes": {}}, "OFFLINE", "No node is configured"),
        ({"nodes": {"n1": node(), "n2": node(state="OFFLINE", age_seconds=14.2)}}, "OFFLINE", "reporting 10 s ago"),
        ({"nodes": {"n1": node(), "n2": node(state=None)}}, "OFFLINE", "start its agent"),
        ({"nodes": {"n1": node(state="BUSY", utilisation=0.78)}}, "BUSY", "n1 is busy."),
        ({"pipeline": {"state": "starting", "age_seconds": 1.0, "error": None}}, "BUSY", "starting;"),
        ({"pipeline": {"state": "starting", "age_seconds": 1.0, "error": "x"}}, "BUSY", "after a failure: x"),
        ({"pipeline": {"state": "stalled", "age_seconds": 1.0, "hindrance": "n1"}}, "TOOBUSY", "stalled: n1"),
        ({"pipeline": {"state": "offline", "age_seconds": 12.0, "error": None}}, "OFFLINE", "reporting 10 s ago"),
        ({"pipeline": {"state": "failed", "age_seconds": 1.0, "error": "boom"}}, "TOOBUSY", "boom"),
        ({"totals": {"worker_slots": 0}}, "TOOBUSY", "No worker host"),
        (
            {"totals": {"worker_slots": 0}, "hosts": {"jobs@here": {"role": "jobs", "draining": DRAIN}}},
            "TOOBUSY",
            "Worker host jobs@here is drained by ada: no worker processes events of alert.",
        ),
        ({"totals": {"worker_slots": 2, "shed_share": 0.123}}, "TOOBUSY", "Events are shed."),
        ({"queues": {"alert": queue(dead_letters=3)}}, "BUSY", "has dead letters."),
        ({"queues": {"alert": queue(dead_letters=1)}}, "BUSY", "has dead letters."),
    ],
)
def test_what_is_wrong_is_named(changed, state, words):
    found = health(plant(**changed))
    assert found.state == state
    assert words in found.sentence


def test_an_offline_node_comes_before_a_busy_one_and_says_who_serves_its_points():
    nodes = {"n1": node(state="BUSY"), "n2": node(state="OFFLINE", age_seconds=5.0), "n3": node()}
    shared = {"alert": queue(containers={name: {"points": 334} for name in nodes})}
    found = health(plant(nodes=nodes, queues=shared))
    assert found.sentence == "Node n2 stopped reporting."
    assert found.findings[0].impact == "The node has 334 points of alert. n1 and n3 take new events."
    assert [each.words for each in found.findings[0].actions] == ["Restart agent-n2", "Restart n2"]
    nodes["n1"] = node(drained=True)
    assert health(plant(nodes=nodes, queues=shared)).findings[0].impact.endswith("n3 takes new events.")
    nodes["n2"] = node(state="OFFLINE", age_seconds=65.0, points=0)
    shared = {"alert": queue(containers={"n1": {"points": 1_000}})}
    found = health(plant(nodes=nodes, queues=shared))
    assert found.sentence == "Node n2 stopped reporting 1 min ago."
    assert "has no points" in found.findings[0].impact


def test_a_silenced_alert_of_all_loops_explains_none_of_them():
    loops = {f"rebalancing/{at}": {"law": "rebalancing", "at": 100.0, "interval_seconds": 5.0} for at in range(9)}
    alert = {"id": 7, "severity": "critical", "condition": "loops_stopped", "sentence": "No loop ticks."}
    for quiet, said in ((None, "No loop ticks."), ("acknowledged", "No loop ticks."), ("silenced", "9 loops")):
        found = health(plant(at=900.0, loops=loops, alerts=[{**alert, "quiet": quiet}]))
        assert found.sentence.startswith(said) and found.severity != "well"


def test_a_node_that_was_emptied_may_be_taken_away_and_one_that_holds_events_may_not():
    nodes = {"n1": node(state="OFFLINE", age_seconds=40.0, points=0, drained=True), "n2": node()}
    found = health(plant(nodes=nodes))
    assert (found.state, found.severity) == ("NORMAL", "notice")
    assert found.sentence == "Node n1 is drained and empty, and does not report."
    for left, severity in (({"waiting_events": 0}, "notice"), ({"waiting_events": 7}, "critical")):
        queues = {"alert": queue(containers={"n1": {"points": 0, **left}})}
        assert health(plant(nodes=nodes, queues=queues)).severity == severity


def test_whatever_calls_somebody_says_what_to_do_first_and_what_it_means():
    shipped = {rule["condition"] for rule in FIRST_RULES.values()}
    assert {each for each in shipped if not describe_first_step(each)} == set()
    of_a_subject = {"node_lost", "node_toobusy", "node_memory", "queue_wait", "queue_latency", "dead_letters"}
    assert {each for each in shipped if not CONDITIONS[each].impact} == of_a_subject | {
        "override_ending",
        "manual_change_open",
    }
