"""The palette: pages, subjects, plans, alerts and actions by name, as far as one may."""

from datetime import timedelta

import pytest
from django.urls import resolve
from django.utils import timezone

from console import navigation
from console.accounts.access import Actor
from queues.models import Node, Queue
from tests.workers.snapshots import snapshot_of
from workers.models import Loop, Plan, Task

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
    return [(each.kind, each.label) for each in navigation.search(Actor("ada", role), SNAPSHOT, text).entries]


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


def test_who_is_limited_to_some_queues_is_offered_what_is_about_them():
    Queue.objects.create(name="returns", kind="jobs")
    Loop.objects.create(name="rebalancing", law="rebalancing")
    ada = Actor("ada", "operator", queues=frozenset({"orders"}))
    offered = {each.label for each in navigation.list_entries(ada, SNAPSHOT) if each.kind == "action"}
    assert {"Pause queue orders", "Hold loop worker rate orders n1", "Silence alerts"} <= offered
    refused = {"Pause queue returns", "Hold loop rebalancing", "Balance all nodes", "Change an alert rule"}
    refused |= {"Drain or cordon node n1", "Drain worker host jobs@here"}
    assert not refused & offered
    everything = navigation.list_entries(Actor("ada", "operator"), SNAPSHOT)
    assert refused <= {each.label for each in everything}
    limited = navigation.list_entries(Actor("eve", "administrator", queues=frozenset({"orders"})), SNAPSHOT)
    pages = {each.label for each in limited if each.kind == "page"}
    assert "Audit log" in pages and not {"Processes", "Users and roles"} & pages


def test_an_action_is_there_for_who_may_do_it():
    assert not [label for kind, label in found("hold", "viewer") if kind == "action"]
    assert found("restart a process") == [] and found("restart a process", "administrator")
    assert ("page", "Audit log") not in found("audit") and ("page", "Audit log") in found("audit", "administrator")
    assert found("orders", "viewer"), "subjects are for everybody who may see the plant"


def test_without_words_there_are_pages_and_what_waits_for_somebody():
    first = found("")
    assert first[0][0] == "plan" and ("page", "Overview") in first


def test_every_entry_leads_to_an_address_of_the_console():
    for entry in navigation.list_entries(Actor("ada", "administrator"), SNAPSHOT):
        assert resolve(entry.url.partition("#")[0]), entry
        assert entry.kind in navigation.KINDS


def test_the_api_gives_the_best_and_says_how_many_there_are(browsers, control):
    answer = browsers["operator"].get("/api/v1/palette?text=plan").json()
    assert len(answer["results"]) == navigation.MAX_FOUND < answer["total"]
    refused = browsers["operator"].get(f"/api/v1/palette?text={'x' * 101}")
    assert refused.status_code == 422 and "text" in refused.json()["errors"]
