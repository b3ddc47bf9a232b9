"""Everything that people have in force is one list, with its effect now and a warning where its end would hurt."""

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User

from tests.workers.snapshots import snapshot_of
from workers.alerts.lifecycle.models import Alert, Silence
from workers.documents.pipeline import PipelineOrder
from workers.snapshot.manual_changes import ManualRecords, list_manual_changes

AT = 1_000.0


def override(name, value, number=1, **more):
    return {
        "id": number,
        "name": name,
        "value": value,
        "owner": "anna",
        "reason": "a test",
        "created_at": 900.0,
        **more,
    }


def changes_of(plant=None, reminder_seconds=None, **records):
    return list_manual_changes(snapshot_of({"at": AT, **(plant or {})}), ManualRecords(**records), reminder_seconds)


def only(plant, **records):
    (change,) = changes_of(plant, **records)
    return change


LOOPS = {
    "rebalancing/all": {"law": "rebalancing", "mode": "hold", "target": {}},
    "worker_rate/slow/n1": {"law": "worker_rate", "mode": "auto", "target": {"queue": "slow", "node": "n1"}},
    "worker_rate/slow/n2": {"law": "worker_rate", "mode": "hold", "target": {"queue": "slow", "node": "n2"}},
}


@pytest.mark.parametrize(
    ("row", "kind", "title", "was", "value", "effect"),
    [
        (
            override("busy_threshold", 0.75, node="n2", instead_of=0.7),
            "override", "Busy threshold of n2", "70 %", "75 %", "none now: n2 is at 5 %",
        ),
        (
            override("mode", "hold", law="rebalancing", instead_of="auto"),
            "hold", "Rebalancing, all loops", "auto", "hold", "1 loop is on hold",
        ),
        (
            override("upper_limit", 3, loop="worker_rate/slow/n1", instead_of=8),
            "override", "Upper limit of worker rate of slow on n1", "8", "3", "1 loop uses it",
        ),
        (
            override("upper_limit", 3, loop="worker_rate/slow/n2", instead_of=8),
            "override", "Upper limit of worker rate of slow on n2", "8", "3", "none now: no active loop uses it",
        ),
        (
            override("consumption", "paused", queue="slow", instead_of="open"),
            "pause", "Consumption of slow", "open", "paused", "230 events waiting, 1.2/s added",
        ),
        (
            override("intake", "paused", queue="slow", instead_of="open"),
            "pause", "Intake of slow", "open", "paused", "producers wait; 230 events waiting, 2.5/s processed",
        ),
        (
            override("work", "draining", host="jobs@vm", instead_of="at work"),
            "host drain", "Worker host jobs@vm", "at work", "draining", "2 worker slots unused; 1 still running",
        ),
        (
            override("drained", "drained", node="n4", instead_of="in use"),
            "drain", "Node n4", "in use", "drained", "n2 serves its load",
        ),
        (
            override("cordoned", "cordoned", node="n2", instead_of="in use"),
            "cordon", "Node n2", "in use", "cordoned", "keeps 1,000 points and gets no more",
        ),
        (
            override("cap", "throttle", loop="ladder/slow", instead_of="shed"),
            "cap", "Remedy ladder of slow", "up to shed", "up to throttle", "none now: not reached",
        ),
    ],
)  # fmt: skip
def test_an_override_says_what_it_changes_and_its_effect_now(row, kind, title, was, value, effect):
    plant = {
        "overrides": [row],
        "loops": LOOPS,
        "nodes": {
            "n2": {"utilisation": 0.05, "points": 1000, "cordoned": row["name"] == "cordoned"},
            "n4": {"points": 0, "drained": row["name"] == "drained"},
        },
        "hosts": {"jobs@vm": {"role": "jobs", "slots": 2, "busy": 1}},
        "queues": {"slow": {"waiting_events": 230, "in_per_second": 1.2, "out_per_second": 2.5}},
    }
    change = only(plant)
    assert (change.kind, change.title, change.was, change.value, change.effect) == (kind, title, was, value, effect)
    assert (change.key, change.owner, change.reason, change.since) == ("override/1", "anna", "a test", 900.0)


def pause(queue, service_seconds, slots=2, **figures):
    plant = {
        "overrides": [override("consumption", "paused", queue=queue, instead_of="open")],
        "queues": {queue: figures},
        "totals": {"worker_slots": slots},
    }
    return only(plant, service_seconds={queue: service_seconds}).warning


def test_the_end_of_a_pause_warns_if_the_handler_takes_all_slots_again():
    held = pause("slow", 3.5, waiting_events=230, in_per_second=1.2)
    assert held == (
        "Queue slow needs 4.2 worker slots at 3.5 s per event, and takes all 2 again. "
        "Fix the handler or add slots first."
    )
    behind = pause("slow", 0.5, waiting_events=600, in_per_second=1.0)
    assert behind == "The backlog of slow keeps 2 worker slots busy for 2 min. Other queues wait."
    assert pause("slow", 0.01, waiting_events=20, in_per_second=1.0) == ""
    assert pause("slow", None, waiting_events=230, in_per_second=1.2) == ""


def test_the_end_of_a_raised_threshold_warns_if_the_node_is_between_the_two():
    row = override("busy_threshold", 0.8, node="n2", instead_of=0.7)
    change = only({"overrides": [row], "nodes": {"n2": {"utilisation": 0.75}}})
    assert change.effect == "n2 is at 75 % and does not count as busy"
    assert change.warning == "n2 is at 75 %, above 70 %, so it counts as busy at once."


def test_the_end_of_a_cap_that_is_reached_warns_that_events_are_lost():
    row = override("cap", "throttle", loop="ladder/slow", instead_of="shed")
    ladder = {"law": "ladder", "mode": "auto", "last_mode": "auto", "target": {"queue": "slow"}, "terms": {"rung": 4}}
    change = only({"overrides": [row], "loops": {"ladder/slow": ladder}})
    assert change.effect == "the ladder is at its cap"
    assert change.warning == "Without the cap, the ladder of slow continues to shed. Shedding loses events."


def test_tasks_set_by_hand_name_who_why_and_the_loops_that_hold():
    holder = {
        "holder": "priya", "until": 1_060.0, "since": 940.0, "reason": "load test",
        "before": {"performance": 2}, "after": {"performance": 3},
    }  # fmt: skip
    loops = {
        "parallelism_queueing/main": {
            "law": "parallelism_queueing",
            "mode": "auto",
            "target": {"application": "performance"},
        }
    }
    change = only({"plant": "main", "steered_by": holder, "loops": loops})
    assert (change.kind, change.title, change.was, change.value) == ("tasks", "Tasks of performance", "2", "3")
    assert (change.owner, change.reason, change.effect) == ("priya", "load test", "1 parallelism loop is on hold")


def test_a_stopped_application_counts_until_it_is_started():
    stopped = PipelineOrder(stopped=True, by="anna", reason="a new disk", at=1.0)
    change = only({}, orders={"performance": stopped})
    assert (change.key, change.owner, change.reason) == ("stop/performance", "anna", "a new disk")
    assert changes_of({}, orders={"performance": PipelineOrder(restart=3, by="anna")}) == []


def test_changes_of_an_earlier_version_are_listed_without_a_user():
    plant = {"nodes": {"n1": {"drained": True}, "n2": {"cordoned": True, "points": 5}}}
    changes = changes_of(plant, caps={"telemetry": "throttle"})
    assert [(change.key, change.owner) for change in changes] == [
        ("cap/telemetry", ""), ("node/n1/drained", ""), ("node/n2/cordoned", ""),
    ]  # fmt: skip


def test_a_silence_and_a_snooze_say_what_they_hide():
    user = User(username="mika")
    silence = Silence(
        pk=3, matchers=[{"label": "queue", "is": "=", "value": "slow"}], reason="known", owner=user,
        created_at=datetime.fromtimestamp(900, UTC), expires_at=datetime.fromtimestamp(2_000, UTC),
    )  # fmt: skip
    snoozed = Alert(pk=7, title="Late", snoozed_by=user, snoozed_until=datetime.fromtimestamp(1_500, UTC))
    alerts = [{"id": 9, "severity": "warning", "labels": {"queue": "slow"}}]
    snooze, hidden = changes_of({"alerts": alerts}, silences=[silence], snoozed=[snoozed])
    assert (hidden.effect, hidden.warning) == ("1 open alert silenced", "1 open alert notifies its receivers again.")
    assert (snooze.key, snooze.owner, snooze.until) == ("snooze/7", "mika", 1_500.0)


def test_the_soonest_to_end_stands_first_and_one_without_an_end_has_a_reminder():
    by = {"owner": "anna", "reason": "a test"}
    cpu, load = {**by, "value": 3.0, "until_seconds": 1_090.0}, {**by, "value": 2.0, "until_seconds": 1_040.0}
    pipeline = {"applications": {"performance": {"controls": {"held_criteria": {"cpu": cpu, "load": load}}}}}
    endless = override("cordoned", "cordoned", node="n1", instead_of="in use")
    plant = {"pipeline": pipeline, "nodes": {"n1": {"cordoned": True}}, "overrides": [endless]}
    found = changes_of(plant, reminder_seconds=600.0)
    assert [change.title for change in found] == [
        "Criterion load of performance",
        "Criterion cpu of performance",
        "Node n1",
    ]
    assert [change.remind_at for change in found] == [None, None, 1_500.0]
