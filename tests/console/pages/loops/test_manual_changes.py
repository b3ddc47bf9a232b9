"""The page of manual changes: each is ended, extended, and explained in one list."""

import json
from datetime import timedelta

import orjson
import pytest
from django.utils import timezone

from console.embedded.seeding import seed
from console.models import AuditEntry
from queues import keys, pausing, projection
from queues.models import Node
from tests.console.rows import an_alert
from tests.console.rows import held as hold_value
from tests.workers.windows.samples import plan_window
from workers.alerts.lifecycle.models import Silence
from workers.models import Loop, Override
from workers.pipeline.declaration.declared import Orders
from workers.plants import holding
from workers.snapshot.local import LocalPlant
from workers.steering import enforcing, overrides

pytestmark = pytest.mark.django_db
JSON = {"Accept": "application/json"}


@pytest.fixture
def plant(control, settings):
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:1/1"})


def observe(control):
    snapshot = LocalPlant(control).observe()
    control.set(keys.SNAPSHOT, snapshot.to_json())
    return snapshot.hands


def end(browser, key, **posted):
    return browser.post("/manual-changes/end", {"key": key, "reason": "done", **posted}, headers=JSON)


def silence(user):
    matchers = [{"label": "queue", "is": "=", "value": "alert"}]
    return Silence.objects.create(
        matchers=matchers, reason="known", owner=user, expires_at=timezone.now() + timedelta(hours=1)
    )


def put_all_in_force(control, operator):
    now = timezone.now()
    hold_value(operator, "consumption", "paused", queue="alert", control=control)
    hold_value(operator, "cordoned", "cordoned", node=Node.objects.get(name="n2"), control=control)
    loop = Loop.objects.create(name="ladder/alert", law="ladder", target={"queue": "alert"})
    hold_value(operator, "cap", "throttle", loop=loop)
    hold_value(operator, "mode", "hold", loop=loop)
    holding.hold(control, "main", "operator", now.timestamp(), 60, reason="load test", after={"performance": 3})
    Orders(control).stop("performance", "operator", "a new disk")
    silence(operator)
    an_alert(snoozed_until=now + timedelta(hours=1), snoozed_by=operator)
    Node.objects.filter(name="n1").update(drained=True)  # by an earlier version
    projection.project(control, enforcing.get_node_thresholds(now))


def test_every_kind_is_in_the_list_and_the_strip_counts_the_same(plant, browsers, people, control):
    put_all_in_force(control, people["operator"])
    changes = observe(control)
    kinds = sorted(change.kind for change in changes)
    assert kinds == ["cap", "cordon", "drain", "hold", "pause", "silence", "snooze", "stop", "tasks"]
    answer = browsers["viewer"].get("/manual-changes/")
    page = " ".join(answer.content.decode().split())
    assert all(change.title in page for change in changes)
    assert f'<b>{len(changes)}</b> <span class="wide">manual changes</span>' in page
    assert "End now" not in page  # a viewer changes nothing


@pytest.mark.parametrize("kind", ["cap", "cordon", "drain", "hold", "pause", "silence", "snooze", "tasks"])
def test_each_is_ended_from_the_list_with_a_reason_in_the_audit_log(kind, plant, browsers, people, control):
    put_all_in_force(control, people["operator"])
    (change,) = [row for row in observe(control) if row.kind == kind]
    answer = end(browsers["operator"], change.key, anyway="yes")
    assert answer.status_code == 200, answer.content
    assert kind not in {row.kind for row in observe(control)}
    noted = AuditEntry.objects.order_by("-pk")[0]
    assert (noted.actor, noted.reason) == ("operator", "done")
    assert change.title in browsers["operator"].get("/manual-changes/").content.decode() or kind in ("snooze", "drain")


def test_only_administrators_are_offered_the_end_of_a_change_freeze(plant, browsers, control):
    now = timezone.now()
    start = f"{now - timedelta(minutes=5):%Y-%m-%dT%H:%M}"
    plan_window(now, kind="freeze", scope=["plant/main"], start=start, time_zone="UTC", rrule="")
    (change,) = observe(control)
    pages = {
        role: browsers[role].get("/manual-changes/").content.decode()
        for role in ("viewer", "operator", "administrator")
    }
    offered = {role for role, page in pages.items() if f'name="key" value="{change.key}"' in page}
    assert offered == {"administrator"}
    assert "Ending this change requires the administrator role." in pages["operator"]
    assert end(browsers["operator"], change.key).status_code == 403
    assert end(browsers["administrator"], change.key).status_code == 200


def test_a_viewer_ends_nothing(plant, browsers, people, control):
    put_all_in_force(control, people["operator"])
    before = observe(control)
    assert {end(browsers["viewer"], change.key).status_code for change in before} == {403}
    assert [change.key for change in observe(control)] == [change.key for change in before]


def test_an_end_that_would_hurt_needs_a_second_word(plant, browsers, people, control):
    hold_value(people["operator"], "consumption", "paused", queue="alert", control=control)
    (change,) = observe(control)
    snapshot = orjson.loads(control.get(keys.SNAPSHOT))
    snapshot["hands"][0]["warning"] = "alert takes all slots again."
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    refused = end(browsers["operator"], change.key)
    assert refused.status_code == 422 and "takes all slots" in json.dumps(refused.json())
    assert pausing.load_pauses(control, ["alert"], "consumption")
    page = " ".join(browsers["operator"].get("/manual-changes/").content.decode().split())
    assert "alert takes all slots again." in page and "End anyway" in page
    assert end(browsers["operator"], change.key, anyway="yes").status_code == 200
    assert not pausing.load_pauses(control, ["alert"], "consumption")


def test_a_change_without_an_end_gets_one(plant, browsers, people, control):
    node = Node.objects.get(name="n2")
    hold_value(people["operator"], "cordoned", "cordoned", node=node, minutes=None, endless=True, control=control)
    (change,) = observe(control)
    assert change.until is None and change.remind_at is not None
    posted = {"key": change.key, "minutes": "30"}
    assert browsers["operator"].post("/manual-changes/extend", posted, headers=JSON).status_code == 200
    held = Override.objects.get()
    overrides.expire_due(held.expires_at + timedelta(seconds=1), control)
    assert not Node.objects.get(name="n2").cordoned


@pytest.mark.parametrize("kind", ["cap", "hold", "pause", "silence", "snooze", "tasks"])
def test_each_change_with_an_end_is_extended_from_the_list(kind, plant, browsers, people, control):
    put_all_in_force(control, people["operator"])
    (change,) = [row for row in observe(control) if row.kind == kind]
    posted = {"key": change.key, "minutes": "10"}
    assert browsers["viewer"].post("/manual-changes/extend", posted, headers=JSON).status_code == 403
    answer = browsers["operator"].post("/manual-changes/extend", posted, headers=JSON)
    assert answer.status_code == 200, answer.content
    (later,) = [row for row in observe(control) if row.key == change.key]
    assert later.until == pytest.approx(change.until + 600, abs=2)
    assert (later.owner, later.reason, later.value) == (change.owner, change.reason, change.value)
    assert AuditEntry.objects.latest("pk").actor == "operator"


def test_only_extensions_that_its_kind_allows_are_offered(plant, browsers, people, control):
    put_all_in_force(control, people["operator"])
    observe(control)
    rows = browsers["operator"].get("/manual-changes/").context["changes"]
    offered = {row.change.kind: [choice.minutes for choice in row.extensions] for row in rows}
    assert offered["tasks"] == [10, 30] and offered["silence"] == [10, 30, 120, 480, 1440]
    assert offered["snooze"] == [10, 30, 120, 480], "a snooze lasts a day at most"
    assert offered["stop"] == [] and offered["cordon"]
    answer = browsers["operator"].post("/manual-changes/extend", {"key": "tasks/main", "minutes": "90"}, headers=JSON)
    assert answer.status_code == 422 and "60 minutes from now" in answer.content.decode()
    for key in ("stop/performance", "node/n1/drained", "silence/99", "snooze/99", "tasks/main2", "criterion/a/b"):
        posted = {"key": key, "minutes": "10"}
        assert browsers["operator"].post("/manual-changes/extend", posted, headers=JSON).status_code == 422


@pytest.mark.parametrize(
    "key", ["", "override/x", "override/9999", "node/n9/drained", "valve/3", "silence/77", "cap/../x", "stop/none"]
)
def test_an_unknown_change_is_refused_by_name(key, plant, browsers):
    assert end(browsers["operator"], key).status_code == 422


def test_changes_are_filtered_by_kind_and_user(plant, browsers, people, control):
    put_all_in_force(control, people["operator"])
    observe(control)

    def shown(browser, query):
        return [row.change.kind for row in browser.get(f"/manual-changes/?{query}").context["changes"]]

    assert shown(browsers["operator"], "kind=pause") == ["pause"]
    assert "pause" in shown(browsers["operator"], "who=mine")
    assert shown(browsers["administrator"], "who=mine") == []


def test_what_ended_in_the_last_day_says_who_ended_it(plant, browsers, people, control):
    row = hold_value(people["operator"], "consumption", "paused", queue="alert", control=control)
    overrides.end(row, by=people["administrator"], now=timezone.now(), control=control)
    old = hold_value(people["operator"], "intake", "paused", queue="alert", control=control)
    Override.objects.filter(pk=old.pk).update(ended_at=timezone.now() - timedelta(days=2))
    (ended,) = browsers["viewer"].get("/manual-changes/").context["ended"]
    assert (ended.title, ended.was, ended.value, ended.by) == (
        "Consumption of alert", "open", "paused", "administrator",
    )  # fmt: skip


def test_the_changes_are_copied_as_commands_that_make_them_again(plant, browsers, people, control):
    hold_value(people["operator"], "consumption", "paused", queue="alert", control=control, reason="it's slow")
    observe(control)
    commands = browsers["operator"].get("/manual-changes/").context["commands"]
    assert commands == (
        """manage.py weir queues alert pause --part consumption --reason 'it'"'"'s slow' --minutes 30"""
    )


def test_the_old_address_leads_to_the_list(browsers):
    assert browsers["viewer"].get("/overrides/").headers["Location"] == "/manual-changes/"


def test_the_api_lists_and_ends_them(plant, browsers, people, control, secrets):
    hold_value(people["operator"], "consumption", "paused", queue="alert", control=control)
    observe(control)
    headers = {"authorization": f"Bearer {secrets['operator']}"}
    (row,) = browsers["anonymous"].get("/api/v1/manual-changes", headers=headers).json()["changes"]
    longer = {"key": row["key"], "minutes": 30}
    post = {"content_type": "application/json", "headers": headers}
    assert browsers["anonymous"].post("/api/v1/manual-changes/extend", longer, **post).status_code == 200
    assert Override.objects.get().expires_at > timezone.now() + timedelta(minutes=50)
    body = {"key": row["key"], "reason": "fixed"}
    answer = browsers["anonymous"].post("/api/v1/manual-changes/end", body, **post)
    assert answer.json() == {"key": row["key"], "ended": True}
    assert not pausing.load_pauses(control, ["alert"], "consumption")
