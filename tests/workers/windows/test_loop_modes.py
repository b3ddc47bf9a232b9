"""Loops in the scope of a window advise or hold during its occurrences, and say why."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from console.display.loops import describe
from controllers.worker_rate.law import LAW as WORKER_RATE
from tests.workers.windows.samples import plan_window
from workers.control import tick
from workers.documents.snapshot import NOTHING_SEEN
from workers.models import Loop
from workers.snapshot.control_record import control_record
from workers.snapshot.manual_changes import ManualRecords, list_manual_changes
from workers.steering import overrides
from workers.steering.overrides import set_override

pytestmark = pytest.mark.django_db
BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
DURING = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # on the day of the clock change, until 03:00 UTC
AFTER = datetime(2026, 3, 29, 3, tzinfo=UTC)


@pytest.fixture
def loop(db):
    target = {"queue": "alert", "node": "n1"}
    return Loop.objects.create(name=f"{WORKER_RATE.name}/alert/n1", law=WORKER_RATE.name, target=target)


def mode_at(loop, now):
    return overrides.get_effective_mode(loop, overrides.list_for_loop(loop, now), now)


def reason_at(loop, now):
    in_force = overrides.list_for_loop(loop, now)
    setting = tick.resolve_setting(loop, in_force, NOTHING_SEEN, now)
    return setting.format_reason("Start 3 workers.", in_force, now)


def test_a_loop_holds_during_the_window_and_says_until_when(loop):
    plan_window(BEFORE, loop_mode="hold")
    assert [mode_at(loop, now) for now in (BEFORE, DURING, AFTER)] == ["auto", "hold", "auto"]
    assert "planned window Patches until 2026-03-29 03:00 UTC" in reason_at(loop, DURING)
    assert reason_at(loop, AFTER) == "Start 3 workers."


def test_a_loop_that_advises_says_why(loop):
    plan_window(BEFORE, loop_mode="advise")
    assert mode_at(loop, DURING) == "advise"
    assert "planned window Patches" in reason_at(loop, DURING)


@pytest.mark.parametrize(
    ("scope", "mode"),
    [
        (["queue/alert"], "hold"),
        (["plant/main"], "hold"),
        (["node/n2", "queue/telemetry"], "auto"),
        (["plant/shop"], "auto"),
    ],
)
def test_only_loops_in_the_scope_hold(scope, mode, loop):
    plan_window(BEFORE, loop_mode="hold", scope=scope)
    assert mode_at(loop, DURING) == mode


def test_a_loop_of_an_attached_plant_is_in_the_scope_of_that_plant_alone():
    attached = Loop.objects.create(name="x", law=WORKER_RATE.name, target={"plant": "shop", "operator": "pay"})
    plan_window(BEFORE, loop_mode="hold", scope=["plant/main"])
    assert mode_at(attached, DURING) == "auto"
    plan_window(BEFORE, loop_mode="hold", scope=["plant/shop"])
    assert mode_at(attached, DURING) == "hold"


def test_a_mode_that_a_person_sets_during_the_window_replaces_that_of_the_window(loop):
    plan_window(BEFORE, loop_mode="hold")
    person = User.objects.get(username="desk-1")
    made = {"name": "mode", "value": "auto", "owner": person, "reason": "an incident", "loop": loop}
    set_override(**made, now=DURING, minutes=10)
    assert mode_at(loop, DURING + timedelta(minutes=1)) == "auto"
    assert mode_at(loop, DURING + timedelta(minutes=11)) == "hold"


def test_the_snapshot_shows_the_mode_and_the_window_and_no_stored_override(loop):
    window = plan_window(BEFORE, loop_mode="hold")
    record = control_record(DURING)
    assert record.loops[loop.name].mode == "hold" and record.overrides == []
    status = record.windows[0]
    assert (status.id, status.active, status.ends_at) == (window.pk, True, AFTER.timestamp())
    shown = describe(loop, overrides.list_for_loop(loop, DURING), DURING)
    assert (shown.mode, shown.overrides, shown.window.window) == ("hold", [], window)


def test_a_window_is_in_the_snapshot_from_an_hour_before_it_begins():
    plan_window(BEFORE)
    start = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert control_record(start - timedelta(minutes=61)).windows == []
    coming = control_record(start - timedelta(minutes=25)).windows[0]
    assert (coming.active, coming.starts_at) == (False, start.timestamp())
    assert control_record(AFTER).windows == []


def test_an_active_window_is_a_manual_change():
    plan_window(BEFORE, loop_mode="hold")
    windows = control_record(DURING).windows
    (change,) = list_manual_changes(type(NOTHING_SEEN)(windows=windows), ManualRecords())
    assert (change.kind, change.title, change.value) == ("planned window", "Maintenance Patches", "node n1")
    assert change.effect == "no alert silenced; loops on hold" and change.until == AFTER.timestamp()
