"""An incident as its page shows it: cause, affected queues with their budgets, and earlier incidents like it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.incidents.summary import build_incident_summary
from console.models import AuditEntry
from tests.workers.snapshots import snapshot_of
from workers.alerts.lifecycle.models import Alert
from workers.objectives.models import Objective

pytestmark = pytest.mark.django_db


def alert_of(queue, minutes=0, **fields):
    at = timezone.now() - timedelta(minutes=minutes)
    values = {
        "rule_name": "queue-behind", "condition": "queue_wait", "fingerprint": f"{queue}{minutes}",
        "labels": {"queue": queue}, "severity": "critical", "title": f"Queue {queue} falls behind", "threshold": 30.0,
        "impact": "alert falls behind, too.", "state": "firing", "began_at": at, "fired_at": at,
    }  # fmt: skip
    return Alert.objects.create(**{**values, **fields})


def snapshot_with(incident=None):
    finding = {
        "subject": "queue/slow", "severity": "critical", "sign": "TOOBUSY", "incident": incident,
        "sentence": "The handler of slow holds both slots.", "impact": "alert waits 78 s (limit 30 s).",
        "affected": ["queue/alert", "node/n1"],
    }  # fmt: skip
    return snapshot_of(
        {
            "at": 1_000.0,
            "queues": {
                "slow": {"kind": "jobs", "wait_seconds": 114.0, "waiting_events": 137},
                "alert": {"kind": "jobs", "wait_seconds": 78.0, "waiting_events": 39},
                "calm": {"kind": "jobs", "wait_seconds": 0.1},
            },
            "health": {"state": "TOOBUSY", "sentence": "", "findings": [finding]},
            "objectives": {"in-time": {
                "target": 0.99, "window_days": 30, "bad": 720.0, "window_budget": 2_592.0, "bad_per_second": 0.5,
            }},
        }
    )  # fmt: skip


def test_the_finding_is_the_headline_and_names_who_is_affected(tmp_path):
    root = alert_of("slow")
    below = alert_of("alert", under=root)
    Objective.objects.create(name="in-time", kind="queue", condition="wait_seconds <= 30", target=0.99)
    for each in (root, below):
        incident = build_incident_summary(each, snapshot_with(root.pk), tmp_path)
        assert (incident.number, incident.alerts) == (root.pk, [root, below])
        assert incident.cause == "The handler of slow holds both slots."
        assert incident.impact == "alert waits 78 s (limit 30 s)."
        assert [(row.name, row.is_late) for row in incident.affected] == [("slow", True), ("alert", True)]
    budget = incident.budget
    assert (budget.promise, budget.left, budget.used_up_at) == ("99 % within 30 s", 1_872.0, 1_000.0 + 3_744.0)


def test_without_a_finding_the_alert_says_what_happened(tmp_path):
    incident = build_incident_summary(alert_of("slow"), snapshot_with(), tmp_path)
    assert (incident.cause, incident.impact) == ("Queue slow falls behind", "alert falls behind, too.")
    assert [row.name for row in incident.affected] == ["slow"]


def test_what_was_done_about_the_last_incident_like_it_is_remembered(tmp_path):
    now = timezone.now()
    for minutes, queue in ((900, "slow"), (600, "slow"), (500, "other")):
        end = now - timedelta(minutes=minutes - 22)
        last = alert_of(queue, minutes, state="resolved", resolved_at=end)
    at = now - timedelta(minutes=590)
    AuditEntry.objects.create(
        sequence=1,
        previous="",
        digest="1",
        at=at,
        actor="mika",
        action="queue.change",
        target="slow",
        after={"tries": 5},
    )
    first, second = build_incident_summary(alert_of("slow"), snapshot_with(), tmp_path).similar
    assert last not in (first.alert, second.alert)
    assert (first.by, round(first.after_seconds / 60)) == ("mika", 10) and "slow" in first.remedy
    assert second.remedy == ""
