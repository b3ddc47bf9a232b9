"""Alerts on pages and over the API: acknowledged, silenced with a preview; rules changed, receivers tried."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.access import NOBODY
from console.display.subject_pages import page_of
from console.incidents.changes import IncidentChange
from console.models import AuditEntry
from console.pages.alerts.incident_changes import shown_changes
from queues import keys
from queues.models import Queue
from tests.console.page_form import form_of
from tests.console.pipeline_sample import DECLARATION
from tests.workers.alerts.checks import lost, queue, rule, the_alert
from tests.workers.snapshots import snapshot_of
from workers.alerts.conditions.evidence import Evidence
from workers.alerts.delivery import outbox
from workers.alerts.evaluation import evaluator
from workers.alerts.lifecycle.models import Alert, AlertRule, Delivery, Message, Receiver, Silence
from workers.models import LedgerEntry, Loop, Override, Plan
from workers.pipeline.declaration.declared import Declarations, Declared
from workers.steering.overrides import MAXIMUM_REASON_LENGTH

pytestmark = pytest.mark.django_db
REASON = {"reason": "a calm night"}
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def operator(browsers) -> Client:
    return browsers["operator"]


@pytest.fixture
def alert(db, stored_snapshot) -> Alert:
    """A lost node, seen just now by the real evaluator."""
    rule()
    look()
    return the_alert()


def look(seconds: float = 0.0, snapshot: Any = None) -> None:
    now = timezone.now().timestamp() + seconds
    evaluator.check(Evidence(now=now, snapshot=snapshot_of(lost() if snapshot is None else snapshot)), 1)


def fetch(browser: Client, address: str, posted: dict[str, Any] | None = None) -> Any:
    """As forms.js posts."""
    return browser.post(address, posted or {}, headers={"accept": "application/json"})


def audited() -> list[tuple[str, str, str]]:
    return [(each.actor, each.action, each.target) for each in AuditEntry.objects.order_by("id")]


def matcher(value: str = "n1", label: str = "node", operator: str = "=") -> dict[str, Any]:
    return {"matcher-label": label, "matcher-is": operator, "matcher-value": value}


def test_an_open_alert_stands_on_its_page_with_what_it_means(operator, alert):
    page = operator.get("/alerts/").content.decode()
    assert "Node n1 is lost" in page and "has not reported for 14 s" in page
    assert "It holds 1,000 points" in page and "Acknowledge" in page
    assert operator.get(f"/alerts/{alert.pk}/").context["alert"].id == alert.pk
    assert operator.get("/alerts/999/").status_code == 404


def test_many_of_one_rule_are_folded_and_hide_no_other(operator, stored_snapshot):
    rule()
    rule("queue-behind", condition="queue_wait", title="{queue} behind", threshold=30, clear_threshold=15)
    look(snapshot={**lost(), "queues": {f"q{at}": queue(99, nodes=()) for at in range(30)}})
    shown = operator.get("/alerts/").context["incidents"]
    assert [row.alert.rule_name for row in shown].count("queue-behind") == 4
    assert sum(len(row.more) for row in shown) == 26
    assert "and 26 more of queue-behind" in operator.get("/alerts/").content.decode()


def test_an_alert_that_never_fired_has_no_page(operator, alert):
    Alert.objects.filter(pk=alert.pk).update(fired_at=None, state="pending")
    assert operator.get(f"/alerts/{alert.pk}/").status_code == 404


def test_who_acknowledges_has_it_and_nobody_else_is_told(operator, alert):
    answer = fetch(operator, f"/alerts/{alert.pk}/acknowledge", {"note": "the host restarts"})
    assert answer.status_code == 200 and "Acknowledged until" in answer.json()["message"]
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by.username) == ("acknowledged", "operator")
    assert audited() == [("operator", "alert.acknowledge", f"alert {alert.pk}")]
    page = operator.get(f"/alerts/{alert.pk}/").content.decode()
    assert "Acknowledged by operator; fires again in" in page and "the host restarts" in page
    look(30)
    assert Delivery.objects.filter(kind="firing").count() == 1


def test_acknowledged_twice_by_a_double_submit_it_is_acknowledged(operator, alert):
    for _ in range(2):
        assert fetch(operator, f"/alerts/{alert.pk}/acknowledge").status_code == 200
    alert.refresh_from_db()
    assert alert.state == "acknowledged"


def test_an_acknowledgement_that_runs_out_calls_again(operator, alert):
    fetch(operator, f"/alerts/{alert.pk}/acknowledge")
    Alert.objects.filter(pk=alert.pk).update(acknowledged_until=timezone.now() - timedelta(seconds=1))
    look(5)
    look(6)
    alert.refresh_from_db()
    assert (alert.state, alert.round) == ("firing", 2)
    assert Delivery.objects.filter(kind="firing").count() == 2


def test_snoozed_it_tells_nobody_until_then(operator, alert):
    assert fetch(operator, f"/alerts/{alert.pk}/snooze", {"minutes": "15"}).status_code == 200
    alert.refresh_from_db()
    assert alert.snoozed_until is not None and alert.state == "firing"
    assert "Snoozed by operator" in operator.get(f"/alerts/{alert.pk}/").content.decode()


@pytest.mark.parametrize("minutes", ["", "0", "-5", "1441", "soon", "nan"])
def test_a_snooze_without_an_end_is_refused(minutes, operator, alert):
    answer = fetch(operator, f"/alerts/{alert.pk}/snooze", {"minutes": minutes})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["minutes"])
    assert audited() == []


def test_escalating_tells_the_next_step_and_says_when_nobody_is_left(operator, alert):
    Receiver.objects.create(name="second", channel="browser")
    steps = [{"after_minutes": 0, "receivers": ["desk"]}, {"after_minutes": 60, "receivers": ["second"]}]
    AlertRule.objects.update(escalation=steps)
    assert "second will be notified" in fetch(operator, f"/alerts/{alert.pk}/escalate").json()["message"]
    assert [each.receiver.name for each in Delivery.objects.order_by("pk")] == ["desk", "second"]
    alert.refresh_from_db()
    assert alert.announcement == "1.1"
    refused = fetch(operator, f"/alerts/{alert.pk}/escalate")
    assert "no further step" in refused.json()["errors"]["step"][0]


def test_what_is_over_cannot_be_acknowledged_but_noted(operator, alert):
    Alert.objects.update(state="resolved", resolved_at=timezone.now())
    for deed in ("acknowledge", "snooze", "escalate"):
        answer = fetch(operator, f"/alerts/{alert.pk}/{deed}", {"minutes": "5"})
        assert answer.status_code == 422 and "resolved already" in answer.json()["errors"]["alert"][0]
    assert fetch(operator, f"/alerts/{alert.pk}/note", {"note": "it was the switch"}).status_code == 200
    assert fetch(operator, f"/alerts/{alert.pk}/note", {"note": " "}).status_code == 422


def test_a_viewer_sees_and_his_forged_post_changes_nothing(browsers, alert):
    viewer = browsers["viewer"]
    page = viewer.get(f"/alerts/{alert.pk}/").content.decode()
    assert "Node n1 is lost" in page and "data-acknowledge" not in page
    for deed in ("acknowledge", "snooze", "escalate", "note"):
        assert fetch(viewer, f"/alerts/{alert.pk}/{deed}", {"minutes": "5", "note": "x"}).status_code == 403
    alert.refresh_from_db()
    assert alert.state == "firing"
    assert {action.partition(".")[0] for _, action, _ in audited()} == {"refused"}


def test_script_in_notes_and_names_is_text(operator, alert):
    fetch(operator, f"/alerts/{alert.pk}/note", {"note": SCRIPT})
    Alert.objects.filter(pk=alert.pk).update(title=SCRIPT, sentence=SCRIPT, labels={"producer": SCRIPT})
    for address in (
        f"/alerts/{alert.pk}/",
        "/alerts/",
        "/alerts/review/",
        f"/alerts/silences/?alert={alert.pk}",
    ):
        assert SCRIPT not in operator.get(address).content.decode(), address


def test_the_page_says_what_the_controllers_tried_and_whether_it_helped(operator, alert):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    other = Loop.objects.create(name="worker_rate/alert/n2", law="worker_rate", target={"node": "n2"})
    for each, verdict in ((loop, "effective"), (loop, "ineffective"), (other, "harmful")):
        entry = {"action": {"start": 3}, "verdict": verdict, "parameters": {}, "reason": "n1 is lost"}
        LedgerEntry.objects.create(loop=each, mode="auto", at=alert.began_at, **entry)
    response = operator.get(f"/alerts/{alert.pk}/").context["alert"].response
    assert response.outcome.words == "1 of 2 actions had an effect; 1 had no effect."
    assert {entry.loop.name for entry in response.entries} == {"rebalancing"}


def test_what_was_done_since_its_onset_comes_first_and_advice_is_no_action(operator, alert, secrets):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    entry = {"loop": loop, "action": {"start": 3}, "parameters": {}, "verdict": "effective"}
    for minutes, mode, reason in (
        (-4, "auto", "on a forecast"),
        (0, "auto", "at onset"),
        (1, "advise", "if"),
    ):
        at = alert.began_at + timedelta(minutes=minutes)
        LedgerEntry.objects.create(mode=mode, at=at, reason=reason, **entry)
    page = operator.get(f"/alerts/{alert.pk}/")
    response, text = page.context["alert"].response, page.content.decode()
    assert [each.reason for each in response.entries] == ["at onset", "on a forecast"]
    assert [each.reason for each in response.advice] == ["if"]
    assert response.outcome.words == "2 of 2 actions had an effect."
    assert text.index("at onset") < text.index("Before it began") < text.index("on a forecast")
    assert "Advice, not done: 1 decision of loops" in text
    headers = {"authorization": f"Bearer {secrets['viewer']}"}
    tried = Client().get(f"/api/v1/alerts/{alert.pk}", headers=headers).json()["tried"]
    assert (len(tried["entries"]), len(tried["advice"]), tried["actions"]) == (2, 1, 2)


def test_what_an_incident_explains_is_folded_below_it(operator, alert):
    rule("queue-behind", condition="queue_wait", title="{queue} behind", threshold=30, clear_threshold=15)
    look(2, {**lost(), "queues": {"alert": queue(99)}})
    page = operator.get("/alerts/")
    [incident] = page.context["incidents"]
    assert incident.alert == alert and [row.alert.title for row in incident.explained] == ["alert behind"]
    assert "explains 1 more alert" in page.content.decode()


def opened(condition: str, **labels: str) -> Alert:
    """An open alert of another condition, beside the one of the fixture."""
    made = Alert.objects.earliest("pk")
    made.pk, made.condition, made.labels, made.fingerprint = None, condition, labels, condition
    made.save()
    return made


def test_an_alert_offers_what_can_be_done_at_once_and_does_it(browsers, alert, stored_snapshot):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    blind = opened("loop_stale", loop="rebalancing")
    browser = browsers["operator"]
    [hold] = browser.get(f"/alerts/{blind.pk}/").context["alert"].quick_actions
    posted = {hold.name: hold.value, "minutes": "30", **REASON}
    assert fetch(browser, hold.url, posted).status_code == 200
    assert [(each.loop, each.value) for each in Override.objects.all()] == [(loop, "hold")]
    assert browsers["viewer"].get(f"/alerts/{blind.pk}/").context["alert"].quick_actions == []


@pytest.mark.parametrize(
    ("condition", "labels", "words"),
    [
        ("queue_wait", {"queue": "alert"}, ["Pause its intake for 30 min"]),
        ("dead_letters", {"queue": "alert"}, ["Pause its consumption for 30 min"]),
        ("queue_wait", {"queue": "gone"}, []),
        ("override_ending", {"override": "7", "loop": "rebalancing"}, ["End the override now"]),
        ("node_toobusy", {"node": "n1"}, ["Rebalance now"]),
        ("node_memory", {"node": "n1"}, []),
        ("node_lost", {"node": "n1"}, []),
    ],
)
def test_what_is_offered_fits_the_condition_and_what_is_there(condition, labels, words, operator, alert):
    found = opened(condition, **labels)
    details = operator.get(f"/alerts/{found.pk}/").context["alert"]
    assert [each.words for each in details.quick_actions] == words
    assert details.related_pages
    for page in details.related_pages:
        assert operator.get(page.url.partition("#")[0]).status_code == 200


def test_a_host_that_is_gone_is_linked_where_something_of_it_is_shown(operator, alert):
    found = opened("workers_missing", host="jobs@gone")
    pages = {
        each.words: each.url for each in operator.get(f"/alerts/{found.pk}/").context["alert"].related_pages
    }
    assert pages["Host jobs@gone"] == page_of("host", "jobs@gone") == "/workers/jobs@gone/"
    assert operator.get(pages["Host jobs@gone"]).status_code == 200
    assert [page_of(kind, "gone") for kind in ("node", "queue", "host")] == [
        "/nodes/",
        "/queues/",
        "/workers/",
    ]


def test_a_part_that_is_gone_is_linked_to_the_list_of_its_kind(db):
    change = IncidentChange(
        kind="part gone",
        at=timezone.now(),
        words="Host jobs@gone is gone",
        by="",
        ref="part:host/jobs@gone",
        steps=None,
        delay_seconds=1.0,
        weight=1.0,
    )
    (shown,) = shown_changes([change], NOBODY)
    assert shown.url == "/workers/"


@pytest.mark.parametrize(
    ("condition", "labels", "asked"),
    [
        ("queue_wait", {"queue": "alert"}, "queue=alert"),
        ("node_toobusy", {"node": "n1"}, "node=n1"),
        ("loop_stale", {"loop": "rebalancing"}, "loop={}"),
        ("loop_stale", {"loop": "gone"}, None),
        ("workers_saturated", {}, ""),
    ],
)
def test_the_chart_of_an_alert_shows_what_the_loops_did_that_steer_what_it_is_about(
    condition, labels, asked, operator, alert
):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    found = opened(condition, **labels)
    page = operator.get(f"/alerts/{found.pk}/")
    assert page.context["alert"].about == (asked and asked.format(loop.pk))
    if page.context["alert"].chart:
        assert (f'data-decisions="{asked}"' in page.content.decode()) == (asked is not None)


def test_what_is_done_already_is_offered_no_more(operator, alert, control):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    blind, late = opened("loop_stale", loop=loop.name), opened("queue_wait", queue="alert")
    pause = {"part": "intake", "override": 3}
    queues = {"alert": {"kind": "jobs", "pauses": [pause]}}
    held = {"rebalancing": {"law": "rebalancing", "mode": "hold"}}
    control.set(keys.SNAPSHOT, snapshot_of({**lost(), "queues": queues, "loops": held}).to_json())
    for each in (blind, late):
        assert operator.get(f"/alerts/{each.pk}/").context["alert"].quick_actions == []


def test_why_an_override_was_ended_stands_in_the_audit(operator, people, alert):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    fields = {"name": "mode", "value": "hold", "owner": people["operator"], "reason": "x"}
    held = Override.objects.create(loop=loop, expires_at=timezone.now() + timedelta(minutes=20), **fields)
    found = opened("override_ending", override=str(held.pk), loop=loop.name)
    [end] = operator.get(f"/alerts/{found.pk}/").context["alert"].quick_actions
    posted = {end.name: end.value, "minutes": "30", "reason": "it swings no more"}
    too_long = {**posted, "reason": "x" * (MAXIMUM_REASON_LENGTH + 1)}
    assert fetch(operator, end.url, too_long).status_code == 422
    assert fetch(operator, end.url, posted).status_code == 200
    assert AuditEntry.objects.get(action="override.end").reason == "it swings no more"


def test_a_host_that_was_the_last_to_work_is_let_work_again_from_the_alert(operator, people, alert, control):
    of_host = {"name": "work", "value": "draining", "host": "jobs@a", "reason": "x"}
    end = timezone.now() + timedelta(minutes=20)
    drain = Override.objects.create(expires_at=end, owner=people["operator"], **of_host)
    draining = {"part": "work", "override": drain.pk, "by": "operator", "reason": "x"}
    hosts = {"jobs@a": {"role": "jobs", "draining": draining}, "jobs@b": {"role": "jobs"}}
    control.set(keys.SNAPSHOT, snapshot_of({**lost(), "hosts": hosts}).to_json())
    found = opened("workers_missing")
    [end] = operator.get(f"/alerts/{found.pk}/").context["alert"].quick_actions
    assert end.words == "Let jobs@a work again"
    assert fetch(operator, end.url, {end.name: end.value, **REASON}).status_code == 200
    drain.refresh_from_db()
    assert drain.ended_at is not None


def test_processes_are_named_to_who_may_see_them(browsers, alert):
    found = opened("workers_missing")
    roles = ("operator", "administrator")
    related = {
        role: browsers[role].get(f"/alerts/{found.pk}/").context["alert"].related_pages for role in roles
    }
    assert [page.words for page in related["administrator"]] == ["Processes and their logs"]
    assert related["operator"] == []


def test_a_failed_pipeline_is_restarted_from_its_alert(operator, alert, control):
    Declarations(control).note_at_work(Declared("performance", 0, DECLARATION))
    for name, kind in (("telemetry", "pipeline"), ("alert", "jobs")):
        Queue.objects.create(name=name, kind=kind)
    failed = {"applications": {"performance": {"state": "failed"}, "other": {"state": "running"}}}
    control.set(keys.SNAPSHOT, snapshot_of({**lost(), "pipeline": failed}).to_json())
    found = opened("pipeline_down", pipeline="main")
    [restart] = operator.get(f"/alerts/{found.pk}/").context["alert"].quick_actions
    assert restart.words == "Restart performance"
    assert fetch(operator, restart.url, {restart.name: restart.value, **REASON}).status_code == 200
    assert ("operator", "pipeline.restart", "performance") in audited()


def test_the_page_names_the_plans_that_nobody_had_to_make(operator, alert):
    moves = [{"queue": "alert", "from": "n1", "to": "n2", "points": 334}]
    fields = {"kind": "restore", "reason": "n1 is lost", "base": {}, "base_revision": 1, "hash": "0" * 64}
    fields |= {"state": "done", "expires_at": alert.began_at, "created_at": alert.began_at}
    Plan.objects.create(title="Restore the points of n1", moves=moves, **fields)
    Plan.objects.create(title="Move n3", moves=[{**moves[0], "queue": "q", "from": "n3"}], **fields)
    page = operator.get(f"/alerts/{alert.pk}/").content.decode()
    assert "Restore the points of n1" in page and "Move n3" not in page


def test_a_silence_is_previewed_then_set_then_ended(operator, alert):
    posted = matcher("n*", operator="~")
    said = fetch(operator, "/alerts/silences/preview", posted).json()
    assert said["sentence"].startswith("It hides 1 open alert") and said["rows"][0]["title"] == alert.title
    assert not Silence.objects.exists()
    assert fetch(operator, "/alerts/silences/add", {**posted, **REASON, "minutes": "60"}).status_code == 200
    look(2)
    alert.refresh_from_db()
    assert alert.silence is not None
    assert "Node n1 is lost" in operator.get("/alerts/silences/").content.decode()
    silence = Silence.objects.get()
    assert fetch(operator, f"/alerts/silences/{silence.pk}/end").json()["message"] == "The silence has ended."
    assert "over already" in fetch(operator, f"/alerts/silences/{silence.pk}/end").json()["message"]
    assert [action for _, action, _ in audited()] == ["silence.set", "silence.end"]


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({**REASON, "minutes": "60"}, "matchers"),
        ({**matcher(), "minutes": "60"}, "reason"),
        ({**matcher(), **REASON}, "minutes"),
        ({**matcher(), **REASON, "minutes": "10081"}, "minutes"),
        ({**matcher(label="colour"), **REASON, "minutes": "60"}, "matchers[0].label"),
        ({**matcher(operator="<"), **REASON, "minutes": "60"}, "matchers[0].is"),
    ],
)
def test_a_silence_without_a_matcher_a_reason_or_an_end_is_refused(posted, field, operator, alert):
    answer = fetch(operator, "/alerts/silences/add", posted)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not Silence.objects.exists() and audited() == []


def rule_form(**changes: Any) -> dict[str, Any]:
    """The form of node-lost as its page fills it."""
    return {
        "name": "node-lost",
        "revision": "1",
        "title": "Node {node} is lost",
        "condition": "node_lost",
        "severity": "critical",
        "threshold": "20",
        "clear_threshold": "3",
        "for_seconds": "0",
        "keep_seconds": "10",
        "receivers-0": ["desk"],
        "after-0": "0",
        "enabled": "on",
        "group_by": ["rule"],
        **REASON,
        **changes,
    }


def test_a_rule_is_changed_and_the_audit_keeps_what_differs(operator, alert):
    assert fetch(operator, "/alerts/rules/change", rule_form()).status_code == 200
    assert AlertRule.objects.get().threshold == 20
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.before, entry.after) == (
        "alert_rule.change",
        {"threshold": 10.0},
        {"threshold": 20},
    )


def test_a_number_that_is_emptied_is_previewed_as_it_would_be_saved(operator, alert, plant_topology):
    rule = alert.rule
    AlertRule.objects.filter(pk=rule.pk).update(for_seconds=60)
    form = rule_form(revision=str(rule.revision), for_seconds="")
    said = fetch(operator, "/alerts/rules/preview", form).json()["sentence"]
    assert "for 60 s" in said
    assert fetch(operator, "/alerts/rules/change", form).status_code == 200
    assert AlertRule.objects.get(pk=rule.pk).for_seconds == 60


def test_a_rule_that_somebody_else_changed_meanwhile_is_refused(operator, alert):
    fetch(operator, "/alerts/rules/change", rule_form())
    answer = fetch(operator, "/alerts/rules/change", rule_form(threshold="30"))
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["revision"])
    assert AlertRule.objects.get().threshold == 20


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"threshold": "many"}, "threshold"),
        ({"threshold": "inf"}, "threshold"),
        ({"clear_threshold": "30"}, "clear_threshold"),
        ({"condition": "weather"}, "condition"),
        ({"severity": "grave"}, "severity"),
        ({"runbook": "javascript:alert(1)"}, "runbook"),
        ({"title": " "}, "title"),
        ({"receivers-0": ["nobody"]}, "escalation[0].receivers"),
        ({"receivers-1": ["desk"], "after-1": "0"}, "escalation"),
        ({"keep_seconds": "-1"}, "keep_seconds"),
        ({"reason": ""}, "reason"),
        ({"group_by": ["colour"]}, "group_by"),
        ({**matcher(" x ", label="colour")}, "matchers[0].label"),
        ({"name": "node-lost", "revision": ""}, "name"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_at_its_field(change, field, operator, alert):
    answer = fetch(operator, "/alerts/rules/change", rule_form(**change))
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert AlertRule.objects.get().revision == 1 and audited() == []


@pytest.mark.parametrize("name", ["mine", "node-lost", ""])
def test_a_new_rule_that_is_refused_without_scripts_is_typed_once(name, operator, alert):
    typed = {"title": "Orders behind", "threshold": "20", "clear_threshold": "many", "severity": "critical"}
    form = rule_form(name=name, revision="", **typed, **{"receivers-0": ["desk"]})
    answer = operator.post("/alerts/rules/change", form)
    assert answer.status_code == 422
    again = form_of(answer, "rule-form")
    assert (again["name"], again["title"], again["severity"]) == (name, "Orders behind", "critical")
    assert (again["threshold"], again.get("revision")) == ("20", None)
    assert answer.context["form"].steps[0].receivers == ["desk"]
    assert AlertRule.objects.count() == 1


@pytest.mark.parametrize("page", [1, 2])
def test_only_the_first_page_names_the_alert_that_was_resolved_last(page, operator, alert, monkeypatch):
    monkeypatch.setattr("console.pages.alerts.alerts.PER_PAGE", 1)
    Alert.objects.filter(pk=alert.pk).update(state=Alert.State.RESOLVED, resolved_at=timezone.now())
    other = opened("queue_wait", queue="alert")
    Alert.objects.filter(pk=other.pk).update(resolved_at=timezone.now() - timedelta(hours=3))
    text = operator.get(f"/alerts/?page={page}").content.decode()
    assert "No alert is open." in text and ("The latest was resolved" in text) == (page == 1)


def test_a_new_rule_is_opened_and_a_preview_changes_nothing(operator, alert, plant_topology):
    said = fetch(operator, "/alerts/rules/preview", rule_form(name="mine", revision="")).json()
    assert "node lost ≥ 20 s; clear below 3" in said["sentence"] and AlertRule.objects.count() == 1
    assert (
        "Threshold takes a number"
        in fetch(operator, "/alerts/rules/preview", rule_form(threshold="x")).json()["sentence"]
    )
    answer = fetch(operator, "/alerts/rules/change", rule_form(name="mine", revision=""))
    assert answer.json()["go"] == "/alerts/rules/mine/"
    for name in ("mine", "new"):
        assert operator.get(f"/alerts/rules/{name}/").status_code == 200
    assert operator.get("/alerts/rules/nobodys/").status_code == 404


def test_a_receiver_is_made_tested_and_kept_while_a_rule_names_it(browsers, alert):
    administrator = browsers["administrator"]
    form = {"name": "hook", "channel": "webhook", "url": "https://desk/hook", "enabled": "on", **REASON}
    assert fetch(administrator, "/alerts/receivers/change", form).status_code == 200
    hook = Receiver.objects.get(name="hook")
    assert fetch(administrator, f"/alerts/receivers/{hook.pk}/test").status_code == 200
    assert Message.objects.get().content["kind"] == "test"
    page = administrator.get("/alerts/receivers/").content.decode()
    assert "Test of a receiver" in page and "Key to verify its signatures" in page
    assert "Key to verify" not in browsers["operator"].get("/alerts/receivers/").content.decode()
    desk = Receiver.objects.get(name="desk")
    refused = fetch(administrator, f"/alerts/receivers/{desk.pk}/delete", REASON)
    assert "is named by node-lost" in refused.json()["errors"]["receiver"][0]
    assert fetch(administrator, f"/alerts/receivers/{hook.pk}/delete", REASON).status_code == 200
    assert not Receiver.objects.filter(name="hook").exists()


ADDRESS = "desk@example.org"


def test_a_new_receiver_does_not_take_the_place_of_another(browsers, alert):
    posted = {"name": "desk", "channel": "browser", "enabled": "on", **REASON}
    answer = fetch(browsers["administrator"], "/alerts/receivers/change", posted)
    assert answer.status_code == 422 and "is taken" in answer.json()["errors"]["name"][0]
    assert Receiver.objects.get(name="desk").channel == "email"


def test_a_receiver_that_somebody_changed_meanwhile_is_not_switched_on_again(browsers, alert):
    administrator = browsers["administrator"]
    form = form_of(administrator.get("/alerts/receivers/?edit=desk"), "/alerts/receivers/change")
    form |= {"addresses": ADDRESS, **REASON}
    assert fetch(administrator, "/alerts/receivers/change", form).status_code == 200
    assert not Receiver.objects.get(name="desk").enabled
    answer = fetch(administrator, "/alerts/receivers/change", {**form, "enabled": "on"})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["digest"])
    assert not Receiver.objects.get(name="desk").enabled


def test_a_receiver_keeps_over_the_api_what_a_body_leaves_out(browsers, alert):
    Receiver.objects.filter(name="desk").update(enabled=False, tells_resolved=False)

    def post(name, **body):
        given = {"channel": "email", "settings": {"addresses": [ADDRESS]}, **REASON, **body}
        return browsers["administrator"].post(
            f"/api/v1/receivers/{name}", given, content_type="application/json"
        )

    kept = post("desk").json()
    assert (kept["enabled"], kept["tells_resolved"], kept["gets_reports"]) == (False, False, False)
    assert post("desk", enabled=True, digest=kept["digest"]).json()["enabled"]
    assert list(post("desk", digest=kept["digest"]).json()["errors"]) == ["digest"]
    made = post("night").json()
    assert (made["enabled"], made["tells_resolved"], made["gets_reports"]) == (True, True, False)


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"channel": "email", "addresses": "not an address"}, "addresses"),
        ({"channel": "email", "addresses": ""}, "addresses"),
        ({"channel": "webhook", "url": "ftp://x"}, "url"),
        ({"channel": "webhook", "url": "https://me:secret@desk/"}, "url"),
        ({"channel": "webhook", "url": "https://desk/", "secret_environment": "a b"}, "secret_environment"),
        ({"channel": "pigeon"}, "channel"),
        ({"channel": "browser", "name": "a b"}, "name"),
    ],
)
def test_a_receiver_that_cannot_be_is_refused_at_its_field(form, field, browsers, alert):
    answer = fetch(browsers["administrator"], "/alerts/receivers/change", {"name": "mine", **REASON, **form})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert Receiver.objects.count() == 1


def test_the_review_says_what_fired_how_long_and_what_nobody_saw(operator, stored_snapshot):
    rule()
    look(-60)
    for seconds in (-57, -53, -50, -46):
        look(seconds, snapshot={**lost(), "nodes": {}})
    alert = the_alert()
    outbox.bundle(timezone.now() + timedelta(minutes=1))
    page = operator.get("/alerts/review/?hours=12")
    (row,) = page.context["found"]
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
    assert 3_595 < summary.open_seconds < 3_700, "what overlaps counts once"
    assert summary.sentence.startswith("2 incidents with 3 alerts; 1 is still open. The worst: ")


@pytest.mark.parametrize(
    "query", ["from=2026-01-02T00:00&to=2026-01-01T00:00", "from=yesterday", "from=2020-01-01T00:00"]
)
def test_a_review_of_no_time_says_what_it_takes(query, operator, alert):
    page = operator.get(f"/alerts/review/?{query}")
    assert page.status_code == 200 and page.context["errors"]


def test_a_time_without_alerts_says_so(operator, alert):
    page = operator.get("/alerts/review/?from=2026-01-01T00:00&to=2026-01-02T00:00").content.decode()
    assert "No alert fired." in page


def test_when_nobody_looks_after_alerts_the_page_says_so(operator, alert):
    assert "Alerts are not evaluated" not in operator.get("/alerts/").content.decode()
    look(-60)
    assert "Alerts are not evaluated since" in operator.get("/alerts/").content.decode()


def test_a_token_does_all_of_it_over_the_api(secrets, alert, plant_topology):
    def call(role: str, address: str, body: Any = None) -> Any:
        headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets[role]}"}
        if body is None:
            return Client().get(f"/api/v1{address}", **headers)
        return Client().post(f"/api/v1{address}", body, content_type="application/json", **headers)

    assert [each["id"] for each in call("viewer", "/alerts").json()["alerts"]] == [alert.pk]
    assert call("viewer", "/alerts?state=odd").status_code == 422
    shown = call("viewer", f"/alerts/{alert.pk}").json()
    assert shown["events"][0]["kind"] == "fired" and shown["situation"].startswith("Not acknowledged")
    answer = call("operator", f"/alerts/{alert.pk}/acknowledge", {"note": "mine"})
    assert answer.json()["state"] == "acknowledged"
    assert call("operator", f"/alerts/{alert.pk}/snooze", {"minutes": 0}).status_code == 422
    body = {"matchers": [{"label": "node", "is": "=", "value": "n1"}]}
    assert len(call("viewer", "/silences/preview", body).json()["open"]) == 1
    made = call("operator", "/silences", {**body, **REASON, "minutes": 5})
    assert made.status_code == 201
    assert call("operator", f"/silences/{made.json()['id']}/end", {}).json() == {"ended": True}
    assert (
        call(
            "operator", "/alert-rules/node-lost", {"fields": {"threshold": 12}, **REASON, "revision": 1}
        ).json()["revision"]
        == 2
    )
    assert call("operator", "/alert-rules/node-lost", {"fields": {"colour": 1}, **REASON}).status_code == 422
    assert call("viewer", "/alert-rules/node-lost/preview", {"fields": {"threshold": 99}}).status_code == 200
    assert call("administrator", "/receivers/desk/test", {}).json()["state"] == "waiting"
    assert (
        call("administrator", "/receivers/hook", {"channel": "browser", **REASON}).json()["channel"]
        == "browser"
    )
    assert call("administrator", "/receivers/hook/delete", REASON).json() == {"deleted": "hook"}
    assert call("viewer", "/alerts/review").json()["summary"]["alerts"] == 1
    assert audited()[0][0] == "token:of-operator"
