"""Planned windows as people and programs use them: planned, imported, ended, and overridden, with the audit log."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.core.exceptions import PermissionDenied

from common.errors import BadInput
from console.accounts import access
from console.accounts.access import build_user_actor
from console.actions import loops, windows
from console.models import AuditEntry
from controllers.worker_rate.law import LAW as WORKER_RATE
from queues.models import Node, Queue
from tests.workers.windows.test_calendars import EVENT, MOVED, calendar
from workers.models import Loop, Override
from workers.steering.overrides import Expiry
from workers.steering.scope import Scope
from workers.windows import occurrences
from workers.windows.models import PlannedWindow

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
FIELDS = {"name": "Patches", "kind": "maintenance", "scope": ["queue/alert"], "start": "2026-03-22T02:00"}
FIELDS |= {"time_zone": "Europe/Berlin", "minutes": 120, "rrule": "FREQ=WEEKLY;BYDAY=SU"}
ACTIVE = {**FIELDS, "start": "2026-03-20T12:30", "rrule": ""}  # in Berlin: since 11:30 UTC
FREEZE = {**ACTIVE, "name": "Year end", "kind": "freeze"}


@pytest.fixture
def actors(people):
    Queue.objects.create(name="alert", kind="jobs")
    Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    return {role: build_user_actor(person) for role, person in people.items()}


@pytest.fixture
def clock(monkeypatch):
    """The clock of the authorization, which a test moves."""
    moved = SimpleNamespace(now=NOW)
    monkeypatch.setattr(access, "timezone", SimpleNamespace(now=lambda: moved.now))
    return moved


@pytest.fixture
def loop(actors, clock):
    return Loop.objects.create(
        name=f"{WORKER_RATE.name}/alert/n1", law=WORKER_RATE.name, target={"queue": "alert", "node": "n1"}
    )


def noted() -> list[str]:
    return list(AuditEntry.objects.order_by("sequence").values_list("action", flat=True))


def override(actor, loop):
    return loops.override(actor, Scope(loop), {"upper_limit": 5}, reason="a test", now=NOW, expiry=Expiry(minutes=5))


def test_a_window_is_planned_with_an_audit_entry(actors):
    made = windows.plan(actors["operator"], FIELDS, reason="Security patches", now=NOW)
    entry = AuditEntry.objects.get(action="window.set")
    assert (entry.actor, entry.target, entry.reason) == ("operator", "maintenance Patches", "Security patches")
    assert entry.after["rrule"] == "FREQ=WEEKLY;BYDAY=SU"
    assert occurrences.list_next(made, NOW, 1)[0].starts_at == datetime(2026, 3, 22, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": ["queue/none"]}, "scope"),
        ({"scope": []}, "scope"),
        ({"scope": ["n1"]}, "scope"),
        ({"start": "2026-03-01T02:00", "rrule": ""}, "start"),
        ({"start": "Sunday"}, "start"),
        ({"minutes": 0}, "minutes"),
        ({"kind": "holiday"}, "kind"),
        ({"kind": "silence", "scope": []}, "expected"),
        ({"kind": "freeze", "expected": [{"label": "queue", "is": "=", "value": "alert"}]}, "expected"),
        ({"expected": [{"label": "mood", "is": "=", "value": "good"}]}, "expected[0].label"),
        ({"color": "red"}, "color"),
    ],
)
def test_a_wrong_window_is_rejected_and_its_field_named(change, field, actors):
    with pytest.raises(BadInput) as refused:
        windows.plan(actors["administrator"], {**FIELDS, **change}, reason="a test", now=NOW)
    assert refused.value.field == field and not PlannedWindow.objects.exists() and noted() == []


def test_only_administrators_plan_and_end_change_freezes(actors):
    with pytest.raises(PermissionDenied):
        windows.plan(actors["operator"], FREEZE, reason="a test", now=NOW)
    made = windows.plan(actors["administrator"], FREEZE, reason="a test", now=NOW)
    with pytest.raises(PermissionDenied):
        windows.end(actors["operator"], made, reason="a test", now=NOW)


def test_a_single_occurrence_is_canceled_and_an_active_one_is_ended_or_extended(actors):
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    windows.end_occurrence(actors["operator"], made, "2026-03-22T02:00:00", reason="moved", now=NOW)
    made.refresh_from_db()
    first = occurrences.list_next(made, NOW, 1)[0]
    assert first.local_start == "2026-03-29T02:00:00"
    during = first.starts_at + timedelta(minutes=30)
    until = windows.extend_occurrence(actors["operator"], made, first.local_start, Expiry(minutes=30), now=during)
    assert until == first.ends_at + timedelta(minutes=30)
    made.refresh_from_db()
    windows.end_occurrence(actors["operator"], made, first.local_start, reason="done", now=during)
    made.refresh_from_db()
    assert occurrences.list_active(during, [made]) == []
    assert occurrences.list_next(made, during, 1)[0].local_start == "2026-04-05T02:00:00"
    assert noted() == ["window.set", "window.end", "window.extend", "window.end"]
    with pytest.raises(BadInput, match="is not the start of a current"):
        windows.end_occurrence(actors["operator"], made, first.local_start, reason="again", now=during)


@pytest.mark.parametrize("wrong", ["Sunday", "2026-03-23T02:00:00", "9999-12-31T23:59:59", "2026-03-22T02:00:00+01:00"])
def test_an_occurrence_that_the_window_does_not_have_is_rejected(wrong, actors):
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    with pytest.raises(BadInput) as refused:
        windows.end_occurrence(actors["operator"], made, wrong, reason="a test", now=NOW)
    assert refused.value.field == "occurrence"


def test_a_window_ends_with_all_later_occurrences(actors):
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    assert windows.end(actors["operator"], made, reason="a test", now=NOW)
    made.refresh_from_db()
    assert occurrences.list_next(made, NOW, 1) == []
    assert not windows.end(actors["operator"], made, reason="a test", now=NOW)


def test_during_a_freeze_a_change_in_its_scope_is_refused_with_its_name_and_end(actors, loop, clock):
    windows.plan(actors["administrator"], FREEZE, reason="Closing the books", now=NOW)
    for role in ("operator", "administrator"):
        with pytest.raises(PermissionDenied, match=r"Closing the books.*until 2026-03-20 13:30"):
            override(actors[role], loop)
    assert not Override.objects.exists()
    clock.now = NOW + timedelta(hours=2)
    assert override(actors["operator"], loop)


def test_a_freeze_leaves_other_subjects_alone(actors, loop):
    Queue.objects.create(name="other", kind="jobs")
    windows.plan(actors["administrator"], {**FREEZE, "scope": ["queue/other"]}, reason="a test", now=NOW)
    assert override(actors["operator"], loop)


def test_a_manual_change_can_be_ended_during_a_freeze(actors, loop):
    made = override(actors["operator"], loop)[0]
    windows.plan(actors["administrator"], FREEZE, reason="a test", now=NOW)
    assert loops.end_override(actors["operator"], made, now=NOW, control=None)


def test_an_administrator_overrides_a_freeze_for_some_minutes_with_a_reason(actors, loop, clock):
    freeze = windows.plan(actors["administrator"], FREEZE, reason="a test", now=NOW)
    with pytest.raises(PermissionDenied):
        windows.override_freeze(actors["operator"], freeze, minutes=15, reason="an incident", now=NOW)
    with pytest.raises(BadInput, match="reason"):
        windows.override_freeze(actors["administrator"], freeze, minutes=15, reason=" ", now=NOW)
    windows.override_freeze(actors["administrator"], freeze, minutes=15, reason="an incident", now=NOW)
    assert override(actors["administrator"], loop)
    with pytest.raises(PermissionDenied):
        override(actors["operator"], loop)
    clock.now = NOW + timedelta(minutes=15)
    with pytest.raises(PermissionDenied):
        override(actors["administrator"], loop)
    assert AuditEntry.objects.get(action="freeze.override").reason == "an incident"


def test_a_calendar_is_previewed_and_imported_once(actors):
    shared = {"kind": "maintenance", "scope": ["queue/alert"], "loop_mode": "hold"}
    past = EVENT.replace("UID:a", "UID:p").replace("202603", "202601").replace(";UNTIL=20260426T235959Z", ";COUNT=1")
    found = windows.preview_import(actors["operator"], calendar(EVENT, MOVED, past), shared, now=NOW)
    assert [row.event.name for row in found.importable] == ["Security patches", "Security patches after Easter"]
    assert not PlannedWindow.objects.exists()
    events = [row.event for row in found.importable]
    made = windows.import_windows(actors["operator"], events, shared, reason="a test", now=NOW)
    assert [window.loop_mode for window in made] == ["hold", "hold"]
    starts = [row.local_start[:10] for row in occurrences.list_next(made[0], NOW, 9)]
    assert starts == ["2026-03-22", "2026-03-29", "2026-04-19", "2026-04-26"]
    again = windows.preview_import(actors["operator"], calendar(EVENT), shared, now=NOW)
    assert again.windows[0].error == windows.ALREADY_IMPORTED


def change(actor, window, now=NOW, version=None, **fields):
    version = window.version if version is None else version
    return windows.change(actor, window, fields, version=version, reason="a test", now=now)


def test_a_change_applies_from_now_on_and_past_occurrences_stay_as_they_were(actors):
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    later = datetime(2026, 3, 25, 12, tzinfo=UTC)
    changed = change(actors["operator"], made, later, minutes=30, start="2026-03-22T05:00")
    everything = list(PlannedWindow.objects.all())
    rows = occurrences.list_all_between(everything, NOW, later + timedelta(days=7))
    lengths = {row.local_start: (row.ends_at - row.starts_at) // timedelta(minutes=1) for row in rows}
    assert lengths == {"2026-03-22T02:00:00": 120, "2026-03-29T05:00:00": 30}
    assert (changed.pk, changed.version, changed.scope) == (made.pk, 2, ["queue/alert"])
    entry = AuditEntry.objects.get(action="window.change")
    assert (entry.before["minutes"], entry.after["minutes"], entry.reason) == (120, 30, "a test")


def test_an_active_occurrence_continues_with_the_new_values_and_its_own_end(actors):
    made = windows.plan(actors["operator"], ACTIVE, reason="a test", now=NOW)
    windows.extend_occurrence(actors["operator"], made, "2026-03-20T12:30:00", Expiry(minutes=30), now=NOW)
    during = NOW + timedelta(minutes=10)
    changed = change(actors["operator"], made, during, scope=["node/n1"], loop_mode="hold")
    [active] = occurrences.list_active(during)
    assert (active.window, active.ends_at) == (changed, datetime(2026, 3, 20, 14, tzinfo=UTC))
    [former] = changed.former_versions.all()
    [before] = occurrences.list_between(former, NOW, during)
    assert (before.ends_at, active.valid_since) == (during, during)
    assert (former.scope, former.version) == (["queue/alert"], 1)


def test_an_active_occurrence_ends_if_its_new_end_has_passed(actors):
    made = windows.plan(actors["operator"], {**FIELDS, **ACTIVE, "rrule": "FREQ=DAILY"}, reason="a test", now=NOW)
    change(actors["operator"], made, NOW + timedelta(minutes=10), minutes=5)
    assert occurrences.list_active(NOW + timedelta(minutes=10)) == []


def test_a_canceled_occurrence_stays_canceled_at_another_time_of_its_day(actors):
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    windows.end_occurrence(actors["operator"], made, "2026-03-22T02:00:00", reason="moved", now=NOW)
    changed = change(actors["operator"], made, start="2026-03-22T03:30")
    assert occurrences.list_next(changed, NOW, 1)[0].local_start == "2026-03-29T03:30:00"


def test_of_two_changes_of_one_version_the_second_is_rejected_and_names_the_first(actors):
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    change(actors["administrator"], made, name="Kernel")
    with pytest.raises(BadInput, match=r"version 2 was saved by administrator"):
        change(actors["operator"], made, name="Firmware")
    made.refresh_from_db()
    assert (made.name, made.version, made.former_versions.count()) == ("Kernel", 2, 1)


def test_a_rejected_change_leaves_the_window_and_its_version(actors):
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    for wrong in ({"rrule": "FREQ=HOURLY"}, {"start": "2026-01-01T02:00", "rrule": ""}, {"scope": ["queue/none"]}):
        with pytest.raises(BadInput):
            change(actors["operator"], made, **wrong)
    made.refresh_from_db()
    assert (made.version, made.rule, PlannedWindow.objects.count()) == (1, FIELDS["rrule"], 1)


def test_only_administrators_change_freezes_and_turn_windows_into_freezes(actors):
    freeze = windows.plan(actors["administrator"], FREEZE, reason="a test", now=NOW)
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    for window, fields in ((freeze, {"minutes": 5}), (freeze, {"kind": "maintenance"}), (made, {"kind": "freeze"})):
        with pytest.raises(PermissionDenied):
            change(actors["operator"], window, **fields)
    assert not windows.may_change(actors["operator"], freeze) and windows.may_change(actors["operator"], made)
    assert windows.may_change(actors["administrator"], freeze) and not windows.may_change(actors["viewer"], made)


def test_a_window_that_has_ended_is_not_changed(actors):
    made = windows.plan(actors["operator"], FIELDS, reason="a test", now=NOW)
    windows.end(actors["operator"], made, reason="a test", now=NOW)
    with pytest.raises(BadInput, match="has ended"):
        change(actors["operator"], made, minutes=5)
