"""Alerts on their pages: acknowledged, snoozed, escalated, noted, and what is said of them."""

import re
from datetime import datetime, timedelta
from urllib.parse import parse_qs

import pytest
from django.test import Client
from django.utils import timezone

from console.incidents.differences import build_compared_ranges
from console.live.view import find_view
from console.pages.alerts import alert_view
from console.pages.alerts.alerts import get_view_name
from tests.console.page_form import audited, fetch
from tests.console.pages.alerts.checks import look
from tests.workers.alerts.checks import lost, queue, rule
from workers.alerts import review
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.condition import SERIES_LABELS
from workers.alerts.lifecycle.models import Alert, AlertRule, Delivery, Receiver
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
AWAY = "redis://127.0.0.1:1/0"


def test_an_open_alert_stands_on_its_page_with_what_it_means(operator, alert):
    assert "Node n1 is lost" in operator.get("/alerts/").content.decode()
    shown = operator.get(f"/alerts/{alert.pk}/")
    page = shown.content.decode()
    assert "Node n1 is lost" in page and "has not reported for 14 s" in page
    assert "The node has 1,000 points" in page and "Acknowledge" in page
    assert shown.context["alert"].id == alert.pk
    assert operator.get("/alerts/999/").status_code == 404


def test_many_of_one_rule_are_folded_and_hide_no_other(operator, stored_snapshot):
    rule()
    rule("queue-behind", condition="queue_wait", title="{queue} behind", threshold=30, clear_threshold=15)
    look(snapshot={**lost(), "queues": {f"q{at}": queue(99, nodes=()) for at in range(30)}})
    shown = operator.get("/alerts/").context["incidents"]
    assert [row.alert.rule_name for row in shown].count("queue-behind") == 4
    assert sum(len(row.more) for row in shown) == 26
    assert "26 more from queue-behind" in operator.get("/alerts/").content.decode()


def test_the_chart_of_an_open_alert_follows_whatever_it_watches():
    """Its page gets each series that a condition charts, also of an attached plant's groups and sensors."""
    labels = {name: f"a-{name}" for name in SERIES_LABELS}
    missed = {
        path
        for condition in CONDITIONS.values()
        for path in condition.series
        if not _is_followed(path, {name: labels[name] for name in re.findall(r"{(\w+)}", path)})
    }
    assert missed == set()


def _is_followed(path, labels):
    keys = [key.format(**labels) for key in path.split(".")]
    value = 7.0
    for key in reversed(keys):
        value = {key: value}
    seen = find_view(get_view_name(Alert(labels=labels))).narrow(value)
    for key in keys:
        seen = seen.get(key, {})
    return bool(seen == 7.0)


def test_an_alert_that_never_fired_has_no_page(operator, alert):
    Alert.objects.filter(pk=alert.pk).update(fired_at=None, state="pending")
    assert operator.get(f"/alerts/{alert.pk}/").status_code == 404


def test_who_acknowledges_has_it_and_nobody_else_is_notified(operator, alert):
    answer = fetch(operator, f"/alerts/{alert.pk}/acknowledge", {"note": "the host restarts"})
    assert answer.status_code == 200 and "Acknowledged until" in answer.json()["message"]
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by.username) == ("acknowledged", "operator")
    assert audited() == [("operator", "alert.acknowledge", f"alert {alert.pk}")]
    page = operator.get(f"/alerts/{alert.pk}/").content.decode()
    assert "Acknowledged by operator; fires again in" in page and "the host restarts" in page
    look(30)
    assert Delivery.objects.filter(kind="firing").count() == 1


@pytest.mark.parametrize(("action", "posted"), [("acknowledge", {}), ("snooze", {"minutes": "15"})])
def test_its_undo_opens_the_alert_again_and_restarts_the_escalation(action, posted, operator, alert):
    look(5)
    answer = fetch(operator, f"/alerts/{alert.pk}/{action}", posted).json()
    assert fetch(operator, answer["undo"]["url"]).status_code == 200
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by, alert.acknowledged_until) == ("firing", None, None)
    assert (alert.snoozed_by, alert.snoozed_until) == (None, None)
    assert audited()[-1] == ("operator", "alert.withdraw", f"alert {alert.pk}")
    look(6)
    alert.refresh_from_db()
    assert alert.round == 2 and Delivery.objects.filter(kind="firing").count() == 2
    refused = fetch(operator, answer["undo"]["url"])
    assert refused.status_code == 422 and "neither acknowledged nor snoozed" in refused.content.decode()


def test_an_acknowledgement_that_runs_out_calls_again(operator, alert):
    fetch(operator, f"/alerts/{alert.pk}/acknowledge")
    Alert.objects.filter(pk=alert.pk).update(acknowledged_until=timezone.now() - timedelta(seconds=1))
    look(5)
    look(6)
    alert.refresh_from_db()
    assert (alert.state, alert.round) == ("firing", 2)
    assert Delivery.objects.filter(kind="firing").count() == 2


def test_snoozed_it_notifies_nobody_until_then(operator, alert):
    assert fetch(operator, f"/alerts/{alert.pk}/snooze", {"minutes": "15"}).status_code == 200
    alert.refresh_from_db()
    assert alert.snoozed_until is not None and alert.state == "firing"
    assert "Snoozed by operator" in operator.get(f"/alerts/{alert.pk}/").content.decode()


@pytest.mark.parametrize("minutes", ["", "0", "-5", "1441", "soon", "nan"])
def test_a_snooze_without_an_end_is_refused(minutes, operator, alert):
    answer = fetch(operator, f"/alerts/{alert.pk}/snooze", {"minutes": minutes})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["minutes"])
    assert audited() == []


def test_escalating_notifies_the_next_step_and_says_when_nobody_is_left(operator, alert):
    Receiver.objects.create(name="second", channel="browser")
    steps = [{"after_minutes": 0, "receivers": ["desk"]}, {"after_minutes": 60, "receivers": ["second"]}]
    AlertRule.objects.update(escalation=steps)
    assert "second will be notified" in fetch(operator, f"/alerts/{alert.pk}/escalate").json()["message"]
    assert [each.receiver.name for each in Delivery.objects.order_by("pk")] == ["desk", "second"]
    alert.refresh_from_db()
    assert alert.announcement == "1.1"
    refused = fetch(operator, f"/alerts/{alert.pk}/escalate")
    assert "all steps" in refused.json()["errors"]["step"][0]


def test_a_page_that_is_old_notifies_nobody_but_whom_its_button_named(operator, alert):
    """Two people press "Notify second now": the third step is not due for either of them."""
    for name in ("second", "third"):
        Receiver.objects.create(name=name, channel="browser")
    names = ("desk", "second", "third")
    AlertRule.objects.update(
        escalation=[{"after_minutes": 60 * at, "receivers": [name]} for at, name in enumerate(names)]
    )
    assert 'name="step" value="1"' in operator.get(f"/alerts/{alert.pk}/").content.decode()
    assert fetch(operator, f"/alerts/{alert.pk}/escalate", {"step": "1"}).status_code == 200
    refused = fetch(operator, f"/alerts/{alert.pk}/escalate", {"step": "1"})
    assert "was notified or restarted" in refused.json()["errors"]["step"][0]
    assert [each.receiver.name for each in Delivery.objects.order_by("pk")] == ["desk", "second"]


def test_an_alert_that_ended_after_the_clock_was_set_back_has_no_length_below_nothing(operator, alert):
    ended = alert.fired_at - timedelta(hours=1)
    Alert.objects.update(state="resolved", resolved_at=ended)
    page = operator.get(f"/alerts/{alert.pk}/")
    assert "after" not in page.context["alert"].situation.words and "-60" not in page.content.decode()


def test_what_is_over_cannot_be_acknowledged_but_noted(operator, alert):
    Alert.objects.update(state="resolved", resolved_at=timezone.now())
    for deed in ("acknowledge", "snooze", "escalate"):
        answer = fetch(operator, f"/alerts/{alert.pk}/{deed}", {"minutes": "5"})
        assert answer.status_code == 422 and "already resolved" in answer.json()["errors"]["alert"][0]
    assert fetch(operator, f"/alerts/{alert.pk}/note", {"note": "it was the switch"}).status_code == 200
    assert fetch(operator, f"/alerts/{alert.pk}/note", {"note": " "}).status_code == 422


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (["effective", "ineffective"], "1 of 2 actions had an effect; 1 had no effect."),
        (["effective", "no action", "no action"], "1 of 3 actions had an effect; 2 not expected to have an effect."),
    ],
)
def test_the_page_says_what_the_controllers_tried_and_whether_it_helped(verdicts, words, operator, alert):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    other = Loop.objects.create(name="worker_rate/alert/n2", law="worker_rate", target={"node": "n2"})
    for each, verdict in (*((loop, verdict) for verdict in verdicts), (other, "harmful")):
        entry = {"action": {"start": 3}, "verdict": verdict, "parameters": {}, "reason": "n1 is lost"}
        LedgerEntry.objects.create(loop=each, mode="auto", at=alert.began_at, **entry)
    response = operator.get(f"/alerts/{alert.pk}/").context["alert"].response
    assert response.outcome.words == words
    assert {entry.loop.name for entry in response.entries} == {"rebalancing"}


def test_what_loops_did_before_its_onset_is_no_answer_to_it(operator, alert):
    """A loop that starts workers every ten seconds had "156 of 164 actions with an effect" after 23 s."""
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    for seconds in (10, 20):
        at = alert.began_at - timedelta(seconds=seconds)
        entry = {"action": {"start": 3}, "verdict": "effective", "parameters": {}, "reason": "as ever"}
        LedgerEntry.objects.create(loop=loop, mode="auto", at=at, **entry)
    page = operator.get(f"/alerts/{alert.pk}/")
    words = "No loop has acted since the alert started; 2 actions in the 5 minutes before."
    assert page.context["alert"].response.outcome.words == words
    assert "as ever" in page.content.decode()


@pytest.mark.parametrize(
    ("labels", "by"),
    [
        ({"receiver": "chat"}, set()),
        ({"task": "retention"}, set()),
        ({"plant": "east"}, {"parallelism_joint/east"}),
        ({"plant": "east", "queue": "alert"}, {"parallelism_joint/east"}),
        ({"queue": "alert"}, {"rebalancing", "worker_rate/alert/n2"}),
    ],
)
def test_only_loops_that_steer_what_an_alert_is_about_have_done_something_about_it(labels, by, operator, alert):
    """Of a receiver that failed it said that 52 of 59 actions had an effect."""
    for name, target in (
        ("rebalancing", {}),
        ("worker_rate/alert/n2", {"queue": "alert", "node": "n2"}),
        ("parallelism_joint/east", {"plant": "east"}),
    ):
        loop = Loop.objects.create(name=name, law=name.split("/")[0], target=target)
        entry = {"action": {"x": 1}, "verdict": "effective", "parameters": {}, "reason": ""}
        LedgerEntry.objects.create(loop=loop, mode="auto", at=alert.began_at, **entry)
    Alert.objects.filter(pk=alert.pk).update(labels=labels)
    found = review.build_alert_response(Alert.objects.get(pk=alert.pk))
    assert {each.loop.name for each in found.entries} == by and found.outcome.count == len(by)


def test_what_was_done_since_its_onset_comes_first_and_advice_is_no_action(operator, alert, secrets):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    entry = {"loop": loop, "action": {"start": 3}, "parameters": {}, "verdict": "effective"}
    for minutes, mode, reason in ((-4, "auto", "on a forecast"), (0, "auto", "at onset"), (1, "advise", "if")):
        at = alert.began_at + timedelta(minutes=minutes)
        LedgerEntry.objects.create(mode=mode, at=at, reason=reason, **entry)
    page = operator.get(f"/alerts/{alert.pk}/")
    response, text = page.context["alert"].response, page.content.decode()
    assert [each.reason for each in response.entries] == ["at onset", "on a forecast"]
    assert [each.reason for each in response.advice] == ["if"]
    assert response.outcome.words == "1 of 1 action had an effect."
    assert text.index("at onset") < text.index("Before the alert") < text.index("on a forecast")
    assert "Advice not applied: 1 decision of loops" in text
    headers = {"authorization": f"Bearer {secrets['viewer']}"}
    tried = Client().get(f"/api/v1/alerts/{alert.pk}", headers=headers).json()["tried"]
    assert (len(tried["entries"]), len(tried["advice"]), tried["actions"]) == (2, 1, 1)


def test_what_an_incident_explains_is_folded_below_it(operator, alert):
    rule("queue-behind", condition="queue_wait", title="{queue} behind", threshold=30, clear_threshold=15)
    look(2, {**lost(), "queues": {"alert": queue(99)}})
    page = operator.get("/alerts/")
    [incident] = page.context["incidents"]
    assert incident.alert == alert and [row.alert.title for row in incident.explained] == ["alert behind"]
    assert "Explains 1 more alert" in page.content.decode()


def test_when_nobody_checks_alerts_the_page_says_so(operator, alert):
    assert "Alert evaluation is not running" not in operator.get("/alerts/").content.decode()
    look(-60)
    page = operator.get("/alerts/").content.decode()
    assert "Alert evaluation is not running (last run:" in page and "Start the alerter" in page


def test_the_alerter_is_not_blamed_while_the_control_server_is_away(operator, alert, settings):
    look(-60)
    settings.REDIS_URL = AWAY
    page = operator.get("/alerts/").content.decode()
    assert "Alert evaluation is not running (last run:" in page and "Start the alerter" not in page
    assert "The alerter needs the control server, which is not responding" in page


def test_who_has_the_page_open_sees_that_alerts_are_not_evaluated(operator, alert):
    """Nothing of it is in the snapshot: the part is there from the beginning, and asked for again."""
    for _ in range(2):
        assert 'id="alerts-watch" data-refresh="every:15"' in operator.get("/alerts/").content.decode()
        look(-60)


@pytest.mark.parametrize(
    ("lasts", "minutes"), [(timedelta(seconds=20), 5), (timedelta(hours=1), 60), (timedelta(days=9), 6 * 60)]
)
def test_what_is_different_in_it_is_asked_of_a_stretch_that_the_page_takes(lasts, minutes, alert):
    alert.began_at, alert.resolved_at = alert.fired_at - lasts, alert.fired_at
    query = parse_qs(alert_view._build_links(alert)["differences"].partition("?")[2])
    since, until = (datetime.fromisoformat(query[name][0]) for name in ("from", "to"))
    assert until - since == timedelta(minutes=minutes)
    here, _ = build_compared_ranges(since, until, "before")
    assert (here.until - here.since) / 60 == minutes
