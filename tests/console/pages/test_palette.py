"""The palette: pages, subjects, plans, alerts and actions by name, as far as one may."""

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.urls import resolve
from django.utils import timezone

from console import palette
from console.accounts.access import Actor
from queues.models import Node, Queue
from tests.workers.snapshots import snapshot_of
from workers.models import Loop, Plan, Task
from workers.plants.models import RegisteredPlant
from workers.retries.models import RetryPlan

pytestmark = pytest.mark.django_db
SNAPSHOT = snapshot_of(
    {
        "hosts": {"jobs@here": {"role": "jobs"}},
        "pipeline": {"applications": {"performance": {}}},
        "plants": {"east": {"kind": "flink", "state": "seen"}},
    }
)


@pytest.fixture(autouse=True)
def subjects():
    Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    Queue.objects.create(name="orders", kind="jobs")
    Loop.objects.create(name="worker_rate/orders/n1", law="worker_rate", target={"queue": "orders", "node": "n1"})
    Task.objects.create(name="nightly", job="retention")
    later = timezone.now() + timedelta(minutes=5)
    values = {"kind": "hand", "reason": "a test", "moves": [], "base": {}, "base_revision": 1, "expires_at": later}
    for number in range(1, 60):
        Plan.objects.create(title=f"Move {number}", hash=f"{number:064}", **values)


def found(text, role="operator"):
    return [(each.kind, each.label) for each in palette.search(Actor("ada", role), SNAPSHOT, text).entries]


@pytest.mark.parametrize(
    "text, first",
    [
        ("hold", ("action", "Hold loop worker rate orders n1")),
        ("plan 5", ("plan", "Plan 5: Move 5")),
        ("silence", ("page", "Silences")),
        ("worker_rate/orders", ("loop", "worker rate orders n1")),
        ("jobs@here", ("worker host", "jobs@here")),
        ("performance", ("application", "performance")),
        ("east", ("plant", "east")),
        ("pause orders", ("action", "Pause queue orders")),
        ("nightly", ("task", "nightly")),
        ("n1", ("node", "n1")),
        ("orders", ("queue", "orders")),
        ("time", ("page", "Timeline")),
    ],
)
def test_what_one_types_is_found_first(text, first):
    assert found(text)[0] == first


def test_retry_plans_and_what_one_does_with_them_are_found():
    later = timezone.now() + timedelta(minutes=5)
    values = {"plant": "shop", "items": b"", "min_rate": 1.0, "max_rate": 9.0, "expires_at": later}
    plan = RetryPlan.objects.create(query="state:failed", total=2_000, **values)
    label = f"Retry plan {plan.pk}: 2,000 tasks of shop"
    assert found(f"retry plan {plan.pk}")[0] == ("plan", label)
    assert found("retry failed")[0] == ("action", "Retry failed tasks…")
    assert ("action", "Approve a retry plan") in found("approve retry")
    Plan.objects.all().delete()
    assert ("plan", label) in found("")
    RetryPlan.objects.update(state="done")
    assert ("plan", label) not in found("")


def test_who_is_limited_to_some_queues_is_offered_what_is_about_them():
    Queue.objects.create(name="returns", kind="jobs")
    Loop.objects.create(name="rebalancing", law="rebalancing")
    ada = Actor("ada", "operator", queues=frozenset({"orders"}))
    offered = {each.label for each in palette.list_entries(ada, SNAPSHOT) if each.kind == "action"}
    assert {"Pause queue orders", "Hold loop worker rate orders n1", "Silence alerts…"} <= offered
    refused = {"Pause queue returns", "Hold loop rebalancing", "Rebalance now…", "Change an alert rule"}
    refused |= {"Drain node n1", "Drain worker host jobs@here"}
    assert not refused & offered
    everything = palette.list_entries(Actor("ada", "operator"), SNAPSHOT)
    assert refused <= {each.label for each in everything}
    limited = palette.list_entries(Actor("eve", "administrator", queues=frozenset({"orders"})), SNAPSHOT)
    pages = {each.label for each in limited if each.kind == "page"}
    assert "Audit" in pages and not {"Processes", "People and access"} & pages


def test_a_job_on_a_typed_subject_is_an_entry_of_its_own():
    for text in ("pause orders", "override orders n1", "hold orders n1", "retry orders", "cap orders", "drain n1"):
        assert found(text)[0][0] == "action", text


def test_an_action_is_there_for_who_may_do_it():
    assert not [label for kind, label in found("hold", "viewer") if kind == "action"]
    assert found("restart a process") == [] and found("restart a process", "administrator")
    assert ("page", "Audit") not in found("audit") and ("page", "Audit") in found("audit", "administrator")
    assert found("orders", "viewer"), "subjects are for everybody who may see the plant"


def test_without_words_there_are_the_jobs_what_waits_for_somebody_and_the_pages():
    kinds = list(dict.fromkeys(kind for kind, _ in found("")))
    assert kinds == ["action", "plan", "page"] and ("page", "Overview") in found("")


MAIN_JOBS = ("Override", "Hold", "Pause", "Drain", "Rebalance", "Approve", "Acknowledge", "Cap", "Set tasks")
MAIN_JOBS += ("Retry dead letters", "Retry failed tasks")


def test_every_main_job_is_listed_at_once_and_reached_with_one_more_choice():
    jobs = {entry.label: entry for entry in palette.search(Actor("ada", "operator"), SNAPSHOT, "").entries}
    for word in MAIN_JOBS:
        [job] = [entry for label, entry in jobs.items() if label.startswith(word)]
        assert job.group == "Jobs"
        if job.narrow and word != "Acknowledge":  # no alert is open here
            assert found(job.narrow)[0][0] == "action", job


def test_what_the_open_incident_suggests_comes_first_and_leads_to_it():
    action = {"action": "queue.pause", "subject": "queue/orders", "words": "Pause consumption of orders",
              "effect": "Frees both slots in 36 s. Events of orders wait."}  # fmt: skip
    finding = {"subject": "queue/orders", "severity": "critical", "sign": "TOOBUSY", "sentence": "It holds all slots.",
               "actions": [action], "incident": 18}  # fmt: skip
    health = {"state": "TOOBUSY", "sentence": "It holds all slots.", "findings": [finding]}
    seen = snapshot_of({"health": health})
    url = "/alerts/18/#action-queue-pause-queue-orders-"  # the page opens the form
    for text in ("", "orders", "pause"):
        first = palette.search(Actor("ada", "operator"), seen, text).entries[0]
        assert (first.group, first.label, first.url) == ("Suggested: incident 18", action["words"], url)
        assert first.about == "Frees both slots in 36 s"
    assert palette.search(Actor("eve", "viewer"), seen, "").entries[0].group != "Suggested: incident 18"


def test_every_entry_leads_to_an_address_of_the_console():
    for entry in palette.list_entries(Actor("ada", "administrator"), SNAPSHOT):
        assert resolve(urlsplit(entry.url).path), entry
        assert entry.kind in palette.KINDS


def test_the_api_gives_the_best_and_says_how_many_there_are(browsers, control):
    answer = browsers["operator"].get("/api/v1/palette?text=plan").json()
    assert len(answer["results"]) == palette.MAX_FOUND < answer["total"]
    refused = browsers["operator"].get(f"/api/v1/palette?text={'x' * 101}")
    assert refused.status_code == 422 and "text" in refused.json()["errors"]


def test_actions_at_attached_plants_are_found_by_those_who_may_do_them():
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://10.0.0.7")
    RegisteredPlant.objects.create(name="events", kind="kafka", url="kafka://10.0.0.7")
    for text in ("View messages of shop", "Start a task of shop", "Revoke tasks of shop", "Reset offsets of events"):
        assert ("action", text) in found(text)
        assert ("action", text) not in found(text, "viewer")
