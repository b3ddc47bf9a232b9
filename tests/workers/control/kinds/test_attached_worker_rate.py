"""Loops of worker rate at an attached plant: one a pool, workers that stay, in advise first."""

import pytest

from common.errors import BadInput
from controllers import catalog
from controllers.framework.law import check_parameters
from tests.workers.control.kinds.pooled_app import ONE, PLANT, PooledApp
from workers.control.kinds.worker_rate import collect_readings, is_at_rest, measure_target
from workers.control.ledger import ledger
from workers.control.loops import compute_desired
from workers.control.parts.attached_pools import build_loop_name
from workers.models import Loop
from workers.steering import overrides

pytestmark = pytest.mark.django_db
LAW = "worker_rate"
TARGET = {"plant": PLANT, "operator": ONE}
NAME = build_loop_name(LAW, PLANT, ONE)


@pytest.fixture
def app(control, monkeypatch):
    return PooledApp(control, monkeypatch, one=2)


def auto(app):
    app.ensured(LAW)
    Loop.objects.update(mode="auto")


def test_each_pool_has_a_loop_that_advises_with_workers_that_stay_in_the_range_of_its_plant(app):
    (loop,) = app.ensured(LAW)
    assert (loop.name, loop.mode, loop.target) == (NAME, "advise", TARGET)
    law = catalog.get_law(LAW)
    read = catalog.read_parameters(law, loop.parameters)
    check_parameters(law, read)
    assert (read["workers"], read["life_seconds"], read["max_wait_seconds"]) == ("permanent", 5.0, 1.0)
    assert (loop.guard["minimum"], loop.guard["maximum"]) == (1.0, 16.0)
    assert "cooldown_seconds" not in loop.guard


def test_on_auto_the_pool_follows_what_comes_and_what_waits(app):
    auto(app)
    entries = app.ticks(LAW, 5, 9.0)
    assert app.tasks[ONE] == 9 and app.orders() == {ONE: 9}
    assert entries[-1].action is None and compute_desired(entries[-1].loop, app.now).values == {"start": 9.0}
    entries += app.ticks(LAW, 1, 9.0, waits_seconds=4.0)
    assert app.tasks[ONE] >= 14
    entries += app.ticks(LAW, 8, 1.0)
    assert app.tasks[ONE] <= 2
    assert [entry.error for entry in entries if entry.error] == []
    assert all(ledger.replay(entry).same for entry in entries)


def test_a_large_pool_that_is_short_grows_however_long_its_loop_has_only_advised(app):
    app.tasks[ONE] = 70
    app.ensured(LAW)
    app.ticks(LAW, 3, 70 * 0.85 / 0.8)
    Loop.objects.update(mode="auto", guard={"minimum": 1.0, "maximum": 100.0})
    entries = app.ticks(LAW, 2, 100.0)
    assert entries[-1].action == {"start": app.tasks[ONE]} and app.tasks[ONE] > 85, entries[-1].reason


def test_a_pool_that_gets_smaller_only_as_processes_are_idle_is_asked_again_until_it_is(app):
    auto(app)
    app.ticks(LAW, 4, 9.0)
    app.is_idle = False
    pending = {"at": 1.0, "by": "loop", "state": "pending"}
    for _ in range(3):
        app.ticks(LAW, 1, 1.0)
        app.row = {"orders": {ONE: {**pending, "tasks": app.ordered[-1][ONE], "now": 9}}}
    assert app.tasks[ONE] == 9 and len(app.ordered) >= 3
    assert measure_target(TARGET, app.snapshot(), None, app.now.timestamp()).observation["running"] == 9
    app.is_idle = True
    app.ticks(LAW, 2, 1.0)
    assert app.tasks[ONE] <= 2


def test_what_was_removed_is_what_came_less_what_the_queue_grew_by(app):
    app.load(4.0, waits_seconds=1.0)
    first = measure_target(TARGET, app.snapshot(), None, app.now.timestamp())
    assert (first.observation["queue_length"], first.observation["removed"]) == (4.0, 20.0)
    app.load(4.0, waits_seconds=3.0)
    later = measure_target(TARGET, app.snapshot(), first.counters, app.now.timestamp())
    assert (later.observation["queue_length"], later.observation["removed"]) == (12.0, 12.0)


def test_what_a_load_has_left_is_worked_off_though_nothing_comes_any_more(app):
    auto(app)
    app.load(8.0)
    app.waiting = 100.0
    app.tick(5.0, LAW)
    app.load(0.0, waits_seconds=60.0)
    app.measures["executions"], app.waiting = 12.0, 112.0
    entries = [app.tick(5.0, LAW)[0] for _ in range(2)]
    assert entries[-1].observation["queue_length"] == 112.0
    assert "112 events wait" in entries[-1].reason and app.tasks[ONE] > 2


def test_a_pool_without_work_is_at_rest_once_it_is_as_small_as_it_gets(app):
    app.load(0.0)
    assert not is_at_rest(TARGET, app.snapshot())
    app.tasks[ONE] = 1
    app.load(0.0)
    assert is_at_rest(TARGET, app.snapshot())
    assert collect_readings(TARGET, app.snapshot()) == {"queue_length": 0.0, "tasks": 1, "node_state": None}
    app.load(0.5)
    assert not is_at_rest(TARGET, app.snapshot())


def test_it_and_the_loop_of_concurrency_of_one_pool_never_act_both(app, user):
    app.ensured(LAW, "concurrency")
    said = {"owner": user, "reason": "a try", "now": app.now, "minutes": 5}
    names = (NAME, build_loop_name("concurrency", PLANT, ONE))
    first, second = (Loop.objects.get(name=name) for name in names)
    overrides.set_override(loop=first, name="mode", value="auto", **said)
    with pytest.raises(BadInput, match=f"set {NAME} to advise first"):
        overrides.set_override(loop=second, name="mode", value="auto", **said)
    Loop.objects.update(mode="auto")
    for _ in range(2):
        app.load(9.0)
        entries = {entry.loop.law: entry for entry in app.tick(5.0, LAW, "concurrency")}
    assert f"loop {names[1]} (mode auto) already controls" in entries[LAW].reason
