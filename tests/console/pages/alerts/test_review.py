"""The review of a time: what fired, how long, and what nobody saw; and the weekly report."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.console.pages.alerts.checks import look, opened
from tests.workers.alerts.checks import lost, rule, the_alert
from tests.workers.reports.weeks import eventful_week
from workers.alerts import incidents
from workers.alerts.delivery import outbox
from workers.alerts.lifecycle.models import Alert, Message, Receiver
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db


def test_the_review_says_what_fired_how_long_and_what_nobody_saw(operator, stored_snapshot):
    rule()
    look(-60)
    for seconds in (-57, -53, -50, -46):
        look(seconds, snapshot={**lost(), "nodes": {}})
    alert = the_alert()
    outbox.bundle(timezone.now() + timedelta(minutes=1))
    page = operator.get("/alerts/review/?hours=12")
    (row,) = page.context["alerts"]
    assert row.alert == alert and 10 < row.seconds < 20 and not row.acknowledged_by
    assert page.context["summary"].alerts == 1
    assert "1 incident; all are resolved" in page.content.decode()
    csv = b"".join(operator.get("/alerts/review/?hours=12&format=csv")).decode().splitlines()
    assert csv[0].startswith("id,rule,title") and "node-lost" in csv[1]


def test_the_totals_of_a_review_count_incidents_and_nothing_twice(operator, alert):
    began = timezone.now() - timedelta(hours=1)
    cause = alert
    Alert.objects.filter(pk=cause.pk).update(fired_at=began, began_at=began)
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    entry = {"loop": loop, "action": {"start": 3}, "parameters": {}, "reason": "x", "verdict": "effective"}
    LedgerEntry.objects.create(mode="auto", at=began + timedelta(minutes=5), **entry)
    for name, under in (("explained", cause), ("beside", None)):
        other = opened(name, node="n1")
        end = began + timedelta(minutes=30)
        Alert.objects.filter(pk=other.pk).update(
            fired_at=began, began_at=began, under=under, resolved_at=end, state="resolved"
        )
    summary = operator.get("/alerts/review/?hours=12").context["summary"]
    assert (summary.incidents, summary.alerts, summary.explained) == (2, 3, 1)
    assert summary.actions == summary.effective == 1, "one action, though three alerts saw it"
    assert summary.unjudged == 0
    assert 3_595 < summary.open_seconds < 3_700, "what overlaps counts once"
    assert summary.sentence.startswith("2 incidents with 3 alerts; 1 is still open. Most severe: ")


@pytest.mark.parametrize(
    "query", ["from=2026-01-02T00:00&to=2026-01-01T00:00", "from=yesterday", "from=2020-01-01T00:00"]
)
def test_a_review_of_no_time_says_what_it_takes(query, operator, alert):
    page = operator.get(f"/alerts/review/?{query}")
    assert page.status_code == 200 and page.context["errors"]


def test_a_severity_that_a_person_says_is_that_of_the_lists_and_of_the_review(operator, alert):
    incidents.grade(alert.pk, None, "notice", timezone.now())
    assert 'data-severity="notice"' in operator.get(f"/alerts/{alert.pk}/").content.decode()
    page = operator.get("/alerts/review/")
    assert page.context["summary"].critical == 0
    assert page.context["alerts"][0].document()["severity"] == "notice"


def kept(name, minutes, ended_minutes=1.0, **more):
    """An alert that fired so many minutes ago, and has ended."""
    now, made = timezone.now(), opened(name, node="n1")
    times = {"fired_at": now - timedelta(minutes=minutes), "resolved_at": now - timedelta(minutes=ended_minutes)}
    Alert.objects.filter(pk=made.pk).update(**{"state": "resolved", "title": name, **times, **more})
    return made


def test_the_worst_of_a_night_is_the_most_severe_and_of_those_the_longest(operator, alert):
    Alert.objects.filter(pk=alert.pk).update(fired_at=None)
    kept("long-notice", 600, severity="notice")
    kept("short-warning", 5, severity="warning")
    page = operator.get("/alerts/review/?hours=12")
    assert page.context["summary"].sentence.endswith("Most severe: short-warning, 4 min.")
    assert page.context["alerts"][0].alert.title == "short-warning"


def test_alerts_whose_cause_was_over_before_are_not_said_never_to_have_fired(operator, alert):
    Alert.objects.filter(pk=alert.pk).update(
        fired_at=timezone.now() - timedelta(hours=30), resolved_at=timezone.now() - timedelta(hours=13)
    )
    kept("backlog", 60, under=alert)
    page = operator.get("/alerts/review/?hours=12")
    assert len(page.context["alerts"]) == 1
    assert page.context["summary"].sentence == "1 alert fired, explained by earlier alerts."


def test_a_test_message_that_was_given_up_is_no_message_of_the_night(operator, alert):
    receiver = Receiver.objects.create(name="desk-of-tests", channel="email")
    for number, kind in enumerate(("test", "alerts")):
        Message.objects.create(
            key=f"{number:032}", receiver=receiver, content={"kind": kind}, state="failed", error="refused"
        )
    assert operator.get("/alerts/review/").context["summary"].failed == 1


WEEK = "?until=2026-01-05T07:00:00Z"


def test_a_report_s_page_and_the_api_say_the_same(browsers, stored_snapshot):
    eventful_week(User.objects.get(username="operator"))
    viewer = browsers["viewer"]
    page = viewer.get(f"/reports/{WEEK}").content.decode()
    document = viewer.get(f"/api/v1/reports{WEEK}").json()
    assert document["objectives"][0]["missed"] and document["incidents"][0]["title"] == "Node n1 is lost"
    for part in ("Node n1 is lost", "the sale begins at nine"):
        assert part in page and part in document["text"], part
    assert "98.00" in page and "data since" not in page
    assert document["objectives"][0]["known_from"] is None
    earlier = "?until=2025-12-29T07:00:00Z"
    assert "data since" in viewer.get(f"/reports/{earlier}").content.decode()
    assert viewer.get(f"/api/v1/reports{earlier}").json()["objectives"][0]["known_from"]
    assert "must be" in viewer.get("/reports/?until=never").content.decode()
