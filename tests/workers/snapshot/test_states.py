"""One state a subject: its alert's thresholds, with hysteresis, since when, and unknown where it is."""

from typing import Any

import pytest

from common.stored_document import replace_fields
from tests.workers.snapshots import judged, snapshot_of
from workers.alerts.lifecycle.models import AlertRule
from workers.documents.snapshot import Snapshot
from workers.snapshot.evaluate import evaluate_states
from workers.snapshot.judgement import SHIPPED, build_limits

RUNNING: dict[str, Any] = {
    "state": "running",
    "age_seconds": 0.5,
    "applications": {"performance": {"state": "running"}},
}


def plant(**parts: Any) -> Snapshot:
    return snapshot_of({"at": 1_000.0, "totals": {"worker_slots": 2}, "nodes": {"n1": {"state": "NORMAL"}}, **parts})


def queue(wait: float | None, waiting: int | None = 5, **more: Any) -> dict[str, Any]:
    return {"alert": {"kind": "jobs", "wait_seconds": wait, "waiting_events": waiting, **more}}


def after(*waits: float | None) -> Any:
    """The state of a queue after these waits, a second each."""
    states: dict[str, Any] = {}
    for second, wait in enumerate(waits):
        states = evaluate_states(plant(at=1_000.0 + second, queues=queue(wait)), states)
    return states["queue/alert"]


def test_a_node_that_dies_while_it_is_too_busy_is_offline_since_then():
    busy = evaluate_states(snapshot_of({"at": 1_000.0, "nodes": {"n1": {"state": "TOOBUSY", "utilisation": 0.95}}}))
    later = {"at": 8_200.0, "nodes": {"n1": {"state": "OFFLINE", "stale": True, "age_seconds": 3.2}}}
    found = evaluate_states(snapshot_of(later), busy)["node/n1"]
    assert (found.word, found.since) == ("Offline", 8_200.0)


def test_a_worker_host_that_dies_with_another_fault_is_named_and_its_role():
    host = {"control@a": {"role": "control", "age_seconds": 0.4, "ahead_seconds": 90.0}}
    before = evaluate_states(snapshot_of({"at": 1_000.0, "hosts": host}))
    before = evaluate_states(snapshot_of({"at": 1_400.0, "hosts": host}), before)
    found = evaluate_states(snapshot_of({"at": 1_411.0}), before, listed=("control@a",))["host/control@a"]
    assert found.finding == "The control worker control@a has stopped reporting: no loop acts."
    assert found.step == "Restart worker-control."


@pytest.mark.parametrize(("capabilities", "severity"), [(["zone-a"], "critical"), (["gpu", "zone-a"], "well")])
def test_a_queue_whose_requirement_no_host_meets_says_what_is_missing_and_how_to_provide_it(capabilities, severity):
    hosts = {"jobs@a": {"role": "jobs", "age_seconds": 0.4, "capabilities": capabilities}}
    state = evaluate_states(plant(hosts=hosts, queues=queue(0.0, 0, requirements=["gpu"])))["queue/alert"]
    assert state.severity == severity
    if severity == "critical":
        assert state.finding == "Queue alert has no workers: no worker host of role jobs has gpu."
        assert state.step == (
            'Start a worker host of role jobs with WEIR_CAPABILITIES="gpu", or remove the requirement from the queue.'
        )


def test_between_the_two_thresholds_a_state_is_what_it_was():
    assert after(31.0).severity == "warning"
    assert after(31.0, 16.0).severity == "warning"
    assert after(31.0, 16.0, 14.0).severity == "well"
    assert after(14.0, 16.0).severity == "well"


def test_what_is_not_known_any_more_is_said_as_that_and_never_as_0_s():
    assert after(40.0, None).finding == "Queue alert falls behind."
    assert " 0 s" not in after(40.0, None).impact
    states: dict[str, Any] = {}
    said = []
    for second, (latency, waiting) in enumerate([(90.0, 5), (None, 5), (90.0, 5), (None, 0)]):
        row = queue(1.0, waiting, latency_p95_seconds=latency)
        states = evaluate_states(plant(at=1_000.0 + second, queues=row), states)
        said.append((states["queue/alert"].finding, "(limit 15 s)" in states["queue/alert"].impact))
    falls_behind = "Queue alert falls behind."
    assert said == [(falls_behind, True), (falls_behind, False), (falls_behind, True), ("", False)]


PAUSE = {"part": "consumption", "override": 1, "by": "ada", "reason": "a disk is changed"}


def test_a_queue_that_somebody_has_paused_stands_still_on_purpose_and_is_no_warning():
    states: dict[str, Any] = {}
    said = []
    for second, pauses in enumerate([[PAUSE], [PAUSE], []]):
        row = queue(99.0, latency_p95_seconds=80.0, pauses=pauses)
        seen = judged(replace_fields(plant(at=1_000.0 + second, queues=row), states=states))
        states = dict(seen.states)
        said.append((seen.health.severity, seen.health.sentence))
    assert said[:2] == [("notice", "Queue alert is paused (consumption) by ada without expiry.")] * 2
    assert said[2] == ("warning", "Queue alert falls behind.")
    intake = queue(99.0, pauses=[{**PAUSE, "part": "intake"}])
    assert judged(plant(queues=intake)).health.severity == "warning", "what waits is still to be handled"


def test_a_queue_of_the_pipeline_says_that_nobody_reads_it_and_how_to_start_it():
    row = {"clicks": {"kind": "pipeline", "wait_seconds": 50.0, "waiting_events": 5}}
    waits = "Application visits is stopped, so queue clicks waits."
    for state, said, step in (("running", "Queue clicks falls behind.", ""), ("stopped", waits, "Start visits.")):
        reads = {"state": "running", "applications": {"visits": {"state": state, "queues": ["clicks"]}}}
        found = evaluate_states(plant(queues=row, pipeline=reads))["queue/clicks"]
        assert (found.finding, found.step) == (said, step)
        assert found.impact == "The oldest event of clicks waits 50 s (limit 30 s). 5 events wait."


def test_a_state_follows_the_rule_that_people_set():
    rule = AlertRule(
        name="queue-behind", condition="queue_wait", threshold=5.0, clear_threshold=2.0, severity="critical"
    )
    found = evaluate_states(plant(queues=queue(6.0)), limits=build_limits([rule]))["queue/alert"]
    assert (found.severity, found.sign, found.rules) == ("critical", "TOOBUSY", ["queue-behind"])


def test_a_second_rule_adds_a_level_and_matchers_narrow_it():
    rules = [
        AlertRule(name="late", condition="queue_wait", threshold=30, clear_threshold=15, severity="warning"),
        AlertRule(
            name="very-late", condition="queue_wait", threshold=300, clear_threshold=200, severity="critical",
            matchers=[{"label": "queue", "is": "=", "value": "alert"}],
        ),
    ]  # fmt: skip
    queues = {**queue(400.0), "other": {"kind": "jobs", "wait_seconds": 400.0, "waiting_events": 5}}
    found = evaluate_states(plant(queues=queues), limits=build_limits(rules))
    assert found["queue/alert"].severity == "critical"
    assert found["queue/other"].severity == "warning"


def test_a_disabled_rule_notifies_nobody_and_the_state_has_the_shipped_threshold():
    rule = AlertRule(name="queue-behind", condition="queue_wait", threshold=5, clear_threshold=2, enabled=False)
    assert build_limits([rule]).by_condition["queue_wait"] == SHIPPED.by_condition["queue_wait"]


@pytest.mark.parametrize(
    ("state", "severity", "sign"),
    [("NORMAL", "well", "NORMAL"), ("BUSY", "warning", "BUSY"), ("TOOBUSY", "critical", "TOOBUSY"),
     ("OFFLINE", "critical", "OFFLINE"), (None, "critical", "OFFLINE")],
)  # fmt: skip
def test_a_node_is_drawn_with_its_own_state(state, severity, sign):
    nodes = {"n1": {"state": state, "utilisation": 0.8, "age_seconds": 4.0}}
    found = evaluate_states(plant(nodes=nodes))["node/n1"]
    assert (found.severity, found.sign) == (severity, sign)


def test_how_bad_too_busy_is_says_the_rule_on_a_nodes_load():
    """The alert said "warning" while the headline said "critical" of one node."""
    busy = plant(nodes={"n1": {"state": "TOOBUSY", "utilisation": 0.95}})
    assert evaluate_states(busy)["node/n1"].rules == ["node-too-busy"]
    rule = AlertRule(name="mine", condition="node_toobusy", threshold=90.0, clear_threshold=80.0)
    found = evaluate_states(busy, limits=build_limits([rule]))["node/n1"]
    assert (found.severity, found.sign, found.rules) == ("warning", "TOOBUSY", ["mine"])


@pytest.mark.parametrize(
    ("state", "used", "sign", "word"),
    [("IDLE", 0.1, "IDLE", "Idle"), ("NORMAL", 0.95, "BUSY", "Warning"),
     ("TOOBUSY", 0.95, "TOOBUSY", "Too busy")],
)  # fmt: skip
def test_a_node_whose_memory_ends_is_not_drawn_as_well(state, used, sign, word):
    row = {"state": state, "utilisation": 0.3, "memory_bytes": round(100 * used), "memory_capacity_bytes": 100}
    found = evaluate_states(plant(nodes={"n1": row}))["node/n1"]
    assert (found.sign, found.word) == (sign, word)


def test_a_node_that_rejects_events_of_durable_queues_says_why():
    row = {"state": "NORMAL", "utilisation": 0.3, "durability_problem": "the replica is not responding"}
    found = evaluate_states(plant(nodes={"n1": row}))["node/n1"]
    assert found.severity == "warning"
    assert "rejects events of durable queues: the replica is not responding." in found.finding


def pipeline(**changes: Any) -> Snapshot:
    queues = {"telemetry": {"kind": "pipeline", "wait_seconds": 1.0, "waiting_events": 3}}
    return plant(queues=queues, pipeline={**RUNNING, **changes})


def test_a_failed_pipeline_is_failed_with_all_its_applications_and_named_once():
    states = evaluate_states(pipeline(state="failed", error="no memory"))
    assert states["pipeline/main"].finding == "The pipeline failed: no memory."
    application = states["application/performance"]
    assert (application.sign, application.word, application.stale) == ("TOOBUSY", "Failed", True)
    assert application.within == "pipeline/main"
    sentences = [each.sentence for each in judged(pipeline(state="failed", error="no memory")).health.findings]
    assert sentences == ["The pipeline failed: no memory."]


def test_complex_events_that_no_queue_takes_are_a_finding_of_who_found_them():
    """With the intake of a queue paused they waited in an outbox that no page named."""
    waiting = {"performance": {"state": "running", "outbox": {"alert": 41}}}
    found = judged(pipeline(applications=waiting)).states["application/performance"]
    assert found.severity == "warning"
    assert found.finding == "Complex events of performance wait for queue alert: it accepts no events."
    pause = {"part": "intake", "override": 1}
    held = plant(pipeline={**RUNNING, "applications": waiting}, queues=queue(0.0, 0, pauses=[pause]))
    said = evaluate_states(held)["application/performance"]
    assert (said.severity, said.finding.partition(": ")[2]) == ("notice", "its intake is paused.")
    waiting["performance"] |= {"outbox": {"alert": 200_000}, "outbox_full": True}
    found = judged(pipeline(applications=waiting)).states["application/performance"]
    assert found.severity == "critical"
    assert found.finding == (
        "Complex events of performance wait for queue alert: it accepts no events; "
        "performance stops reading until the queue accepts events."
    )


def test_a_silent_pipeline_is_not_reporting_and_its_figures_are_old():
    states = evaluate_states(pipeline(state="offline", age_seconds=22.0))
    assert states["pipeline/main"].finding == "The pipeline stopped reporting 20 s ago."
    assert states["application/performance"].word == "Not reporting"


def test_a_pipeline_that_never_reported_is_starting_before_it_is_down():
    snapshot = pipeline(state=None, age_seconds=None, applications={})
    first = evaluate_states(snapshot)
    assert (first["pipeline/main"].severity, first["pipeline/main"].word) == ("notice", "Unknown")
    later = evaluate_states(replace_fields(snapshot, at=1_100.0), first)
    assert (later["pipeline/main"].severity, later["pipeline/main"].word) == ("critical", "Not reporting")
    assert evaluate_states(replace_fields(snapshot, at=1_101.0), later)["pipeline/main"].severity == "critical"


@pytest.mark.parametrize(("ahead_seconds", "side"), [(600.0, "ahead of"), (-600.0, "behind")])
def test_a_host_whose_clock_is_off_by_more_than_a_minute_is_named_with_what_to_do(ahead_seconds, side):
    hosts = {"jobs@here": {"role": "jobs", "age_seconds": 0.4, "ahead_seconds": ahead_seconds}}
    found = evaluate_states(plant(hosts=hosts))["host/jobs@here"]
    assert found.finding == f"The clock of jobs@here is 600 s {side} the control server's."
    assert found.severity == "warning" and "NTP" in found.step
    hosts["jobs@here"]["ahead_seconds"] = ahead_seconds / 11
    assert evaluate_states(plant(hosts=hosts))["host/jobs@here"].severity == "well"


def test_a_host_that_stops_reporting_is_named_for_a_while_and_then_has_left():
    here = evaluate_states(plant(hosts={"jobs@here": {"role": "jobs", "age_seconds": 0.4}}))
    gone = evaluate_states(plant(at=1_011.0), here)
    assert gone["host/jobs@here"].finding == "Worker host jobs@here has stopped reporting."
    assert "host/jobs@here" not in evaluate_states(plant(at=1_400.0), gone)


def test_a_host_that_took_leave_is_not_missed_and_one_that_is_still_listed_is():
    here = evaluate_states(plant(hosts={"jobs@here": {"role": "jobs", "age_seconds": 0.4}}))
    assert "host/jobs@here" not in evaluate_states(plant(at=1_011.0), here, listed=())
    assert "host/jobs@here" in evaluate_states(plant(at=1_011.0), here, listed=("jobs@here",))


def test_a_loop_without_a_valid_measurement_for_as_long_as_its_alert_says_is_a_finding():
    loop = {"law": "rebalancing", "at": 999.0, "interval_seconds": 5.0, "limited_by": "stale measurement"}
    seconds = {"rebalancing": {**loop, "blind_since": 960.0}}
    found = evaluate_states(plant(loops=seconds))["loop/rebalancing"]
    assert found.finding == "Rebalancing has no valid measurement."
    assert found.impact == "Values have not changed for 39 s."
    assert (
        evaluate_states(plant(loops={"rebalancing": {**loop, "blind_since": 980.0}}))["loop/rebalancing"].finding == ""
    )
