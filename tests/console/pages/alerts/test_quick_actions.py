"""What an alert offers at once: holds, pauses, ends and restarts, each where it fits."""

import signal
from datetime import timedelta

import pytest
from django.utils import timezone

from common.stored_document import replace_fields
from console.accounts.access import NOBODY
from console.connections import supervisor
from console.connections.supervisor import WORDS, ProcessRow
from console.display.states import find_subject_page
from console.incidents.change_rows import build_change_rows
from console.incidents.changes import IncidentChange
from console.incidents.quick_actions import build_quick_action
from console.models import AuditEntry
from queues import keys
from queues.models import Queue
from tests.console.page_form import audited, fetch
from tests.console.pages.alerts.checks import REASON, opened
from tests.console.pipeline_sample import DECLARATION
from tests.workers.alerts.checks import lost
from tests.workers.snapshots import snapshot_of
from workers.documents.loops import ManualChange
from workers.documents.states import SuggestedAction
from workers.models import Loop, Override
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.steering.overrides import MAXIMUM_REASON_LENGTH

pytestmark = pytest.mark.django_db


def test_an_alert_offers_what_can_be_done_at_once_and_does_it(browsers, alert, stored_snapshot):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    blind = opened("loop_stale", loop="rebalancing")
    browser = browsers["operator"]
    [hold] = browser.get(f"/alerts/{blind.pk}/").context["alert"].quick_actions
    posted = {**hold.fields, "minutes": "30", **REASON}
    assert fetch(browser, hold.url, posted).status_code == 200
    assert [(each.loop, each.value) for each in Override.objects.all()] == [(loop, "hold")]
    assert browsers["viewer"].get(f"/alerts/{blind.pk}/").context["alert"].quick_actions == []


@pytest.mark.parametrize(
    ("condition", "labels", "words"),
    [
        ("queue_wait", {"queue": "alert"}, ["Pause intake of alert"]),
        ("dead_letters", {"queue": "alert"}, ["Pause consumption of alert"]),
        ("queue_wait", {"queue": "gone"}, []),
        ("override_ending", {"override": "7", "loop": "rebalancing"}, ["End override"]),
        ("node_toobusy", {"node": "n1"}, ["Relieve busy nodes"]),
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
    pages = {each.words: each.url for each in operator.get(f"/alerts/{found.pk}/").context["alert"].related_pages}
    assert pages["Host jobs@gone"] == find_subject_page("host", "jobs@gone") == "/workers/jobs@gone/"
    assert operator.get(pages["Host jobs@gone"]).status_code == 200
    assert [find_subject_page(kind, "gone") for kind in ("node", "queue", "host")] == [
        "/nodes/",
        "/queues/",
        "/workers/",
    ]


def test_a_part_that_is_gone_is_linked_to_the_list_of_its_kind(db):
    change = IncidentChange(
        kind="part gone", at=timezone.now(), words="Host jobs@gone is gone", by="", ref="part:host/jobs@gone",
        steps=None, delay_seconds=1.0, weight=1.0,
    )  # fmt: skip
    (shown,) = build_change_rows([change], NOBODY)
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


@pytest.mark.parametrize(
    ("suggested", "address", "fields", "lasts"),
    [
        (("queue.pause", "queue/alert", "consumption"), "/queues/alert/pause", {"part": "consumption"}, True),
        (("override.end", "queue/late", "consumption"), "/overrides/4/end", {"end": "now"}, False),
        (("override.end", "host/jobs@idle", ""), "/overrides/5/end", {"end": "now"}, False),
        (("override.end", "override/9", ""), "/overrides/9/end", {"end": "now"}, False),
        (("loop.mode", "host/jobs@vm", "3"), "/loops/{}/mode", {"mode": "manual", "value": "3"}, True),
        (("loop.mode", "loop/concurrency/jobs@vm", "hold"), "/loops/{}/mode", {"mode": "hold"}, True),
        (("host.drain", "host/jobs@vm", ""), "/workers/jobs@vm/drain", {}, True),
        (("pipeline.steer", "application/shop", ""), "/pipeline/shop/order", {"order": "restart"}, False),
        (("pipeline.declare", "application/shop", "3"), "/pipeline/shop/declaration/?version=3", {}, False),
        (("plan.propose", "node/n1", ""), "/plans/rebalance", {"goal": "below-busy"}, False),
        (("plan.approve", "plan/6", ""), "/plans/6/", {}, False),
        (("node.use", "node/n1", ""), "/nodes/use", {"node": "n1", "use": "drain"}, False),
        (("dead_letters.requeue", "queue/alert", ""), "/dead-letters/?queue=alert", {}, False),
        (("task.cancel", "run/7", ""), "/runs/7/cancel", {}, False),
    ],
)
def test_each_suggested_action_is_a_form_with_its_effect(suggested, address, fields, lasts, db):
    loop = Loop.objects.create(name="concurrency/jobs@vm", law="concurrency", target={"host": "jobs@vm"})
    action, subject, value = suggested
    words = {"words": "Act now", "effect": "It helps."}
    made = build_quick_action(SuggestedAction(action=action, subject=subject, value=value, **words), PLANT, "why")
    assert (made.url, dict(made.fields)) == (address.format(loop.pk), fields)
    assert bool(made.ends) == lasts and (made.effect, made.reason) == ("It helps.", "why")


def test_an_end_that_would_hurt_says_so_in_its_form(db):
    change = ManualChange(key="override/4", kind="pause", of="queue/late", warning="It takes all slots again.")
    end = SuggestedAction(action="override.end", subject="override/4", words="End", effect="Consumption continues.")
    made = build_quick_action(end, replace_fields(PLANT, hands=[change]))
    assert (made.effect, made.warning) == ("Consumption continues.", "It takes all slots again.")


@pytest.mark.parametrize(
    "suggested",
    [
        ("queue.pause", "queue/late", "consumption"),
        ("queue.pause", "queue/gone", "intake"),
        ("loop.mode", "host/jobs@vm", "2"),
        ("loop.mode", "loop/gone", "hold"),
        ("host.drain", "host/jobs@idle", ""),
        ("node.use", "node/n2", "drain"),
        ("queue.define", "queue/alert", ""),
        ("process.restart", "process/observer", ""),
        ("user.manage", "user/ada", ""),
    ],
)
def test_an_action_that_is_done_or_impossible_has_no_button(suggested, db):
    Loop.objects.create(name="concurrency/jobs@vm", law="concurrency", target={"host": "jobs@vm"})
    action, subject, value = suggested
    assert build_quick_action(SuggestedAction(action=action, subject=subject, value=value, words="Act"), PLANT) is None


PLANT = snapshot_of(
    {
        "nodes": {"n1": {"state": "BUSY"}, "n2": {"state": "NORMAL", "drained": True}},
        "queues": {
            "alert": {"kind": "jobs"},
            "late": {"kind": "jobs", "pauses": [{"part": "consumption", "override": 4}]},
        },
        "hosts": {
            "jobs@vm": {"role": "jobs", "slots": 2},
            "jobs@idle": {"role": "jobs", "slots": 2, "drained": True, "draining": {"part": "work", "override": 5}},
        },
        "pipeline": {"applications": {"shop": {"state": "failed"}}},
        "runs": {"7": {"task": "retention", "state": "running"}},
    }
)


def test_an_alert_offers_the_actions_of_its_incident_first(operator, alert, control):
    late = opened("queue_wait", queue="alert")
    below = opened("queue_latency", queue="alert")
    below.fingerprint, below.under = "below", late
    below.save()
    pause = {"action": "queue.pause", "subject": "queue/slow", "value": "consumption", "words": "Pause slow"}
    finding = {
        "subject": "queue/slow", "severity": "critical", "sign": "TOOBUSY", "incident": late.pk,
        "sentence": "The handler of slow holds both slots.", "actions": [pause],
    }  # fmt: skip
    queues = {name: {"kind": "jobs"} for name in ("alert", "slow")}
    document = {**lost(), "queues": queues, "health": {"state": "TOOBUSY", "sentence": "", "findings": [finding]}}
    control.set(keys.SNAPSHOT, snapshot_of(document).to_json())
    for each in (late, below):
        [made] = operator.get(f"/alerts/{each.pk}/").context["alert"].quick_actions
        assert made.words == "Pause slow"
        assert made.reason == f"Incident {late.pk}: The handler of slow holds both slots"


@pytest.fixture
def supervised(monkeypatch):
    """A supervisor with these processes; returns what was restarted."""
    processes = {"agent-n1": "SUSPENDED", "n1": "RUNNING", "observer": "RUNNING", "beat": "FATAL"}
    rows = [
        ProcessRow(name, state, WORDS[state], None if state == "FATAL" else 7, 1.0, 0, None, "")
        for name, state in processes.items()
    ]
    killed = []
    monkeypatch.setattr(supervisor, "is_there", lambda: True)
    monkeypatch.setattr(supervisor, "list_processes", lambda: rows)
    monkeypatch.setattr("os.killpg", lambda pid, number: killed.append(number))
    return killed


def test_a_suspended_agent_is_killed_and_restarted_from_the_alert(administrator, browsers, alert, supervised):
    [restart] = administrator.get(f"/alerts/{alert.pk}/").context["alert"].quick_actions
    assert restart.words == "Restart agent-n1" and "kills and restarts it" in restart.effect
    answer = fetch(administrator, restart.url, {**restart.fields, **REASON})
    assert answer.json()["message"] == "The process agent-n1 was suspended; it was killed and is restarting."
    assert supervised == [signal.SIGKILL]
    assert AuditEntry.objects.get(action="process.restart").after == {"at_once": True}
    assert browsers["operator"].get(f"/alerts/{alert.pk}/").context["alert"].quick_actions == []


def test_a_process_that_did_not_start_is_started_and_one_that_may_hang_is_restarted(administrator, alert, supervised):
    for condition, words in (("loops_stopped", ["Start beat"]), ("observer_silent", ["Restart observer"])):
        found = opened(condition)
        made = administrator.get(f"/alerts/{found.pk}/").context["alert"].quick_actions
        assert [action.words for action in made] == words


def test_why_an_override_was_ended_stands_in_the_audit(operator, people, alert):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    fields = {"name": "mode", "value": "hold", "owner": people["operator"], "reason": "x"}
    held = Override.objects.create(loop=loop, expires_at=timezone.now() + timedelta(minutes=20), **fields)
    found = opened("override_ending", override=str(held.pk), loop=loop.name)
    [end] = operator.get(f"/alerts/{found.pk}/").context["alert"].quick_actions
    posted = {**end.fields, "reason": "it swings no more"}
    too_long = {**posted, "reason": "x" * (MAXIMUM_REASON_LENGTH + 1)}
    assert fetch(operator, end.url, too_long).status_code == 422
    assert fetch(operator, end.url, posted).status_code == 200
    assert AuditEntry.objects.get(action="override.end").reason == "it swings no more"


def test_a_failed_pipeline_is_restarted_from_its_alert(operator, alert, control):
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    for name, kind in (("telemetry", "pipeline"), ("alert", "jobs")):
        Queue.objects.create(name=name, kind=kind)
    failed = {"applications": {"performance": {"state": "failed"}, "other": {"state": "running"}}}
    control.set(keys.SNAPSHOT, snapshot_of({**lost(), "pipeline": failed}).to_json())
    found = opened("pipeline_down", pipeline="main")
    [restart] = operator.get(f"/alerts/{found.pk}/").context["alert"].quick_actions
    assert restart.words == "Restart performance"
    assert fetch(operator, restart.url, {**restart.fields, **REASON}).status_code == 200
    assert ("operator", "pipeline.restart", "performance") in audited()
