"""The general loop, on the plant in memory, with a real database and a real control server."""

from dataclasses import replace
from datetime import timedelta

import pytest

from common.stored_document import replace_fields
from controllers.framework.guard import ObservationQuality
from tests.workers.control.conftest import START
from tests.workers.loops import JOBS, ensured, jobs_topology
from tests.workers.snapshots import snapshot_of
from workers.control import engine
from workers.control import tick as ticks
from workers.control.kinds import worker_rate
from workers.control.kinds.worker_rate import INTERVAL_SECONDS
from workers.control.ledger import ledger
from workers.documents.queues import PauseStatus
from workers.models import LedgerEntry, Loop, Override
from workers.steering import overrides

pytestmark = pytest.mark.django_db


def override(loop, owner, clock, name, value, minutes=30):
    return Override.objects.create(
        loop=loop,
        name=name,
        value=value,
        owner=owner,
        reason="A test.",
        created_at=clock.now,
        expires_at=clock.now + timedelta(minutes=minutes),
    )


def fresh(loop):
    return Loop.objects.get(pk=loop.pk)


def tick(loop, plant, clock, control, seconds=5.0):
    entry = engine.tick(fresh(loop), plant, clock.now, control)
    clock.pass_seconds(seconds)
    return entry


def submitted(plant, node="n1"):
    return plant.observe().queues["alert"].containers[node].waiting_to_run


def test_a_tick_starts_workers_and_records_all_of_it(loop, plant, clock, control):
    plant.put("alert", "n1", 1_200)
    entry = tick(loop, plant, clock, control)
    entry.refresh_from_db()
    assert submitted(plant) == 2
    assert (entry.action, entry.applied, entry.error) == ({"start": 2}, True, "")
    assert (entry.mode, entry.raw, entry.guarded) == ("auto", 2.0, 2.0)
    assert entry.observation["queue_length"] == 1_200
    assert entry.reason.startswith("Start 2 workers: the queue of 1,200 events is over the limit of 500")
    assert entry.verdict == "checking"
    assert entry.at == START
    assert fresh(loop).state["law"]["rate"] == pytest.approx(1.2)


def test_state_and_counters_go_on_from_tick_to_tick(loop, plant, clock, control):
    plant.put("alert", "n1", 1_200)
    tick(loop, plant, clock, control)
    plant.run("alert", "n1", 100)
    entry = tick(loop, plant, clock, control)
    assert entry.observation["removed"] == 200
    assert entry.observation["started"] == 2
    assert fresh(loop).state["law"]["history"] == [1_200, 1_000]


def test_a_loop_whose_stored_state_is_not_valid_begins_anew_and_says_so(loop, plant, clock, control, caplog):
    Loop.objects.filter(pk=loop.pk).update(state={"law": {"rate": "fast"}, "sensor": None})
    loop.refresh_from_db()
    entry = engine.tick(loop, plant, clock.pass_seconds(5), control)
    assert entry is not None and entry.state_before["law"]["history"] == []
    assert "starts with an empty state: the stored state is invalid (state.rate: must be" in caplog.text


def test_a_counter_that_was_reset_counts_from_zero_again(loop, plant, clock, control):
    plant.put("alert", "n1", 1_200)
    tick(loop, plant, clock, control)
    plant.run("alert", "n1", 100)
    tick(loop, plant, clock, control)
    plant.reset_counters("alert", "n1")
    plant.put("alert", "n1", 50)
    ran = plant.run("alert", "n1", 5)
    assert ran > 0
    assert tick(loop, plant, clock, control).observation["removed"] == 5 * ran


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({"state": "OFFLINE", "age_seconds": 4.0}, "node n1 is OFFLINE"),
        ({"stale": True, "age_seconds": 2.2}, "node n1 has missed two heartbeats"),
        ({"age_seconds": None}, "has not reported yet"),
        ({"age_seconds": 3.5}, "3.5 s old"),
    ],
)
def test_no_loop_acts_on_a_node_that_is_not_heard(loop, plant, clock, control, report, why):
    plant.put("alert", "n1", 1_200)
    plant.set_node("n1", **report)
    entry = tick(loop, plant, clock, control)
    assert (entry.action, entry.limited_by) == (None, "stale measurement")
    assert why in entry.reason
    assert submitted(plant) == 0
    assert fresh(loop).state["law"]["history"] == []


@pytest.mark.parametrize(("drained", "idle"), [(["a", "b"], "host a is drained, host b is drained"), (["a"], None)])
def test_no_worker_is_started_while_every_worker_host_is_drained(drained, idle):
    """What nobody takes expires, and each start would be judged as one without effect."""
    hosts = {name: {"role": "jobs", "drained": name in drained} for name in ("a", "b")}
    queues = {"alert": {"kind": "jobs", "containers": {"n1": {"waiting_events": 1_200}}}}
    nodes = {"n1": {"state": "NORMAL", "age_seconds": 0.1}}
    seen = snapshot_of({"at": 10.0, "hosts": hosts, "queues": queues, "nodes": nodes})
    assert worker_rate.measure_target({"queue": "alert", "node": "n1"}, seen, None, 10.0).measured.idle == idle


def test_no_worker_is_started_while_no_host_has_a_required_capability():
    hosts = {"a": {"role": "jobs", "capabilities": ["zone-a"]}}
    queues = {"alert": {"kind": "jobs", "requirements": ["gpu"], "containers": {"n1": {"waiting_events": 1_200}}}}
    nodes = {"n1": {"state": "NORMAL", "age_seconds": 0.1}}
    seen = snapshot_of({"at": 10.0, "hosts": hosts, "queues": queues, "nodes": nodes})
    idle = worker_rate.measure_target({"queue": "alert", "node": "n1"}, seen, None, 10.0).measured.idle
    assert idle == "no worker host of role jobs has gpu"


def test_no_loop_acts_on_a_snapshot_older_than_three_seconds(loop, plant, clock, control):
    plant.put("alert", "n1", 1_200)
    plant.clock = lambda: clock() - 3.1
    assert tick(loop, plant, clock, control).limited_by == "stale measurement"
    plant.clock = lambda: clock() - 2.0
    assert tick(loop, plant, clock, control).action == {"start": 2}


def test_advice_is_recorded_and_not_applied_and_the_law_goes_on(loop, plant, clock, control):
    Loop.objects.update(mode="advise")
    plant.put("alert", "n1", 1_200)
    entry = tick(loop, plant, clock, control)
    assert (entry.action, entry.applied, entry.verdict) == ({"start": 2}, False, "no action")
    assert entry.reason.startswith("Would start ") and "(advice only): " in entry.reason
    assert submitted(plant) == 0
    assert fresh(loop).state["law"]["history"] == [1_200]


def test_advice_uses_up_no_cost_cap_and_once_in_auto_workers_start(loop, plant, clock, control, monkeypatch):
    tuning = replace(worker_rate.KIND.tuning, unit_hours=lambda *_: 0.5)
    monkeypatch.setattr(ticks, "get_kind", lambda law: replace(worker_rate.KIND, tuning=tuning))
    monkeypatch.setattr(ticks.plant_settings, "get_setting_value", lambda name: 1.0)
    Loop.objects.update(mode="advise", guard={"cost_cap": 1.0})
    plant.put("alert", "n1", 1_200)
    assert [tick(loop, plant, clock, control).action for _ in range(5)] == [{"start": 2}] * 5
    Loop.objects.update(mode="auto")
    entry = tick(loop, plant, clock, control)
    assert (entry.action, entry.applied) == ({"start": 2}, True)
    assert "cost cap of 1 per h (1 spent" in tick(loop, plant, clock, control).reason


def test_a_hold_for_30_minutes_records_what_it_would_have_done_and_ends_by_itself(loop, plant, clock, control, owner):
    override(loop, owner, clock, "mode", "hold", minutes=30)
    plant.put("alert", "n1", 1_200)
    entry = tick(loop, plant, clock, control, seconds=1_795)
    assert (entry.mode, entry.action, entry.applied) == ("hold", {"start": 2}, False)
    assert "(on hold until 2026-01-05 03:30:00 UTC): " in entry.reason
    assert fresh(loop).state["law"]["history"] == []
    assert tick(loop, plant, clock, control).mode == "hold"
    assert submitted(plant) == 0
    resumed = tick(loop, plant, clock, control)
    assert (resumed.mode, resumed.applied) == ("auto", True)
    assert submitted(plant) == 2


def test_after_a_hold_the_loop_decides_at_once_on_what_is_there_now(loop, plant, clock, control, owner):
    """10 minutes of arrivals that nobody handled are a backlog, not the arrivals of one interval."""
    Loop.objects.update(parameters={"events_per_worker": 100}, interval_seconds=60.0)
    loop.refresh_from_db()
    tick(loop, plant, clock, control)
    held = override(loop, owner, clock, "mode", "hold", minutes=30)
    for _ in range(10):
        plant.put("alert", "n1", 600)
        tick(fresh(loop), plant, clock, control, seconds=60)
    assert submitted(plant) == 0
    overrides.end(held, by=owner, now=clock.now)
    (resumed,) = engine.tick_due(plant, clock.pass_seconds(1), control)
    assert (resumed.mode, resumed.applied) == ("auto", True)
    assert resumed.observation["queue_length"] == 6_000
    assert resumed.state_before["law"]["history"] == []
    assert ledger.replay(LedgerEntry.objects.get(pk=resumed.pk)).same
    assert engine.tick_due(plant, clock.pass_seconds(1), control) == []


def test_overrides_that_no_longer_fit_together_are_left_out_and_the_reason_says_so(loop, plant, clock, control, owner):
    Loop.objects.update(parameters={**loop.parameters, "maximum_rate": 10, "minimum_rate": 1})
    loop.refresh_from_db()
    override(loop, owner, clock, "maximum_rate", 60, minutes=1)
    override(loop, owner, clock, "minimum_rate", 30, minutes=5)
    assert tick(loop, plant, clock, control).parameters["minimum_rate"] == 30
    clock.pass_seconds(60)
    entry = tick(loop, plant, clock, control)
    assert (entry.parameters["minimum_rate"], entry.parameters["maximum_rate"]) == (1, 10)
    assert "contradict each other" in entry.reason and "minimum_rate" in entry.reason


def test_in_manual_a_person_says_how_many_workers_start(loop, plant, clock, control, owner):
    Loop.objects.update(mode="manual")
    plant.put("alert", "n1", 1_200)
    idle = tick(loop, plant, clock, control)
    assert idle.action is None
    assert "no value is set" in idle.reason
    override(loop, owner, clock, "start", 7)
    entry = tick(loop, plant, clock, control)
    assert (entry.action, entry.applied) == ({"start": 7}, True)
    assert entry.parameters["manual"] == {"start": 7}
    assert submitted(plant) == 7
    assert fresh(loop).state["law"]["history"] == []


def test_by_forecast_a_burst_gets_all_its_workers_once_and_a_toobusy_node_fewer(loop, plant, clock, control):
    Loop.objects.update(parameters={"events_per_worker": 100})
    plant.put("alert", "n1", 1_200)
    assert tick(loop, plant, clock, control).action == {"start": 12}
    assert tick(loop, plant, clock, control).action is None
    plant.run("alert", "n1", 100)
    plant.put("alert", "n1", 3_000)
    plant.set_node("n1", state="TOOBUSY")
    entry = tick(loop, plant, clock, control)
    assert (entry.observation["node_state"], entry.limited_by) == ("TOOBUSY", "node_state")
    assert 0 < entry.action["start"] < 12
    assert "the node is TOOBUSY" in entry.reason


def test_an_error_of_the_plant_is_in_the_entry_and_the_loop_goes_on(loop, plant, clock, control):
    plant.put("alert", "n1", 1_200)
    plant.error = ConnectionError("the broker is away")
    entry = LedgerEntry.objects.get(pk=tick(loop, plant, clock, control).pk)
    assert (entry.applied, entry.error) == (False, "ConnectionError: the broker is away")
    assert entry.verdict == "no action"
    plant.error = None
    assert tick(loop, plant, clock, control).applied
    assert submitted(plant) == 2


def test_the_loop_of_a_vanished_container_is_retired_with_its_ledger_and_returns_with_it(plant, clock, control):
    both = jobs_topology(alert={"n1": 500, "n2": 500})
    ensured(control, JOBS, both)
    retired = Loop.objects.get(name="worker_rate/alert/n2")
    tick(retired, plant, clock, control)
    active = ensured(control, JOBS, jobs_topology(alert={"n1": 1000}))
    assert [each.name for each in active] == ["worker_rate/alert/n1"]
    (entry,) = engine.tick_due(plant, clock.now, control)
    assert entry.loop.name == "worker_rate/alert/n1"
    assert retired.entries.count() == 1
    assert {each.pk for each in ensured(control, JOBS, both)} >= {retired.pk}


def test_a_queues_changed_events_per_worker_reaches_its_loops_and_keeps_the_rest(control):
    before = jobs_topology(alert={"n1": 1000})
    ensured(control, JOBS, before)
    Loop.objects.update(parameters={"events_per_worker": 300, "upper_limit": 70})
    queues = {**before.queues, "alert": replace(before.queues["alert"], events_per_worker=900)}
    (loop,) = ensured(control, JOBS, replace(before, queues=queues))
    assert loop.parameters == {"events_per_worker": 900, "upper_limit": 70}


def test_loops_behind_a_slow_one_see_the_plant_and_what_people_set_as_they_are_then(
    plant, clock, control, owner, monkeypatch
):
    ensured(control, JOBS, jobs_topology(alert={"n1": 500, "n2": 500}))

    passed, tick_loops = [0.0], engine.tick_loops

    def tick_slowly(*arguments):
        entries = tick_loops(*arguments)
        if len(passed) == 1:
            passed.append(5.0)
            plant.put("alert", "n2", 10)
            override(Loop.objects.get(name="worker_rate/alert/n2"), owner, clock, "mode", "hold")
        return entries

    monkeypatch.setattr(engine, "TOGETHER", 1)
    monkeypatch.setattr(engine, "tick_loops", tick_slowly)
    entries = engine.tick_due(plant, clock.now, control, lambda: passed[-1])
    assert [each.observation["queue_length"] for each in entries] == [0, 10]
    assert [each.mode for each in entries] == ["auto", "hold"]
    assert entries[1].at - entries[0].at == timedelta(seconds=5)


def test_one_broken_loop_stops_no_other(plant, clock, control, caplog):
    ensured(control, JOBS, jobs_topology(alert={"n1": 500, "n2": 500}))
    Loop.objects.filter(name="worker_rate/alert/n1").update(parameters={"upper_limit": -1})
    entries = engine.tick_due(plant, clock.now, control)
    assert [each.loop.name for each in entries] == ["worker_rate/alert/n2"]
    assert "parameters.upper_limit" in caplog.text


def test_a_worker_for_events_that_would_wait_too_long_is_sent_ahead_of_other_queues(plant, clock, control):
    ensured(control, JOBS, jobs_topology(alert={"n1": 1000}))
    plant.put("alert", "n1", 10)
    (entry,) = engine.tick_due(plant, clock.now, control)
    while entry.action is None and clock.now < START + timedelta(seconds=4):
        (entry,) = engine.tick_due(plant, clock.pass_seconds(INTERVAL_SECONDS), control)
    assert entry.action == {"start": 1}
    assert plant.ahead == [f"e{entry.pk}-0"]


def test_a_tick_that_is_late_says_so_in_the_ledger(loop, plant, clock, control):
    every = loop.interval_seconds
    for seconds, late in ((0, None), (every, None), (every + 40, 40.0)):
        loop.refresh_from_db()
        entry = engine.tick(loop, plant, clock.pass_seconds(seconds), control)
        assert entry.observation.get("late_seconds") == late
    assert ledger.replay(entry).same


def test_a_loop_of_a_paused_queue_holds_says_so_and_goes_on_afterwards(loop, plant, clock, control, monkeypatch):
    tick(loop, plant, clock, control)
    state = fresh(loop).state["law"]
    plant.put("alert", "n1", 1_200)
    snapshot = plant.observe()
    pause = PauseStatus(part="consumption", override=1, until=START.timestamp() + 60, by="ada")
    queues = {name: replace_fields(row, pauses=[pause]) for name, row in snapshot.queues.items()}
    with monkeypatch.context() as paused:
        paused.setattr(plant, "observe", lambda: replace_fields(snapshot, queues=queues))
        entry = tick(loop, plant, clock, control)
    assert (entry.mode, entry.applied) == ("hold", False)
    assert "on hold, consumption of alert is paused until 03:01:00 UTC" in entry.reason
    assert submitted(plant) == 0 and fresh(loop).state["law"] == state
    entry = tick(loop, plant, clock, control)
    assert (entry.mode, entry.applied) == ("auto", True) and submitted(plant) > 0


def test_a_loop_goes_on_where_another_plant_says_something_with_a_nul(loop, plant, clock, control, monkeypatch):
    entry = tick(loop, plant, clock, control)
    ledger.fail(entry, "PlantConfused: shop answers 400: a\0b")
    monkeypatch.setattr(worker_rate, "_check_measurement", lambda *_: ObservationQuality(1.0, "shop answers 400: a\0b"))
    held = tick(loop, plant, clock, control)
    entry.refresh_from_db(), held.refresh_from_db()
    assert entry.error == "PlantConfused: shop answers 400: a\ufffdb"
    assert "shop answers 400: a\ufffdb" in held.reason
