"""The loops of worker hosts: what they see, what they ask for, when they hold."""

import time
from datetime import timedelta

import orjson
import pytest

from common.errors import BadInput
from controllers import catalog
from queues import keys
from tests.workers.loops import ensured
from tests.workers.pool.pool_plant import HOST, Plant, host_report, station
from tests.workers.snapshots import snapshot_of
from workers.control import what_if
from workers.control.engine import tick_due
from workers.control.kinds.concurrency import MAX_PROCESSES, describe_probe, measure_target
from workers.control.ledger import ledger
from workers.documents.loops import LoopStatus
from workers.models import LedgerEntry, Loop
from workers.plants.steered import PublishedPlant
from workers.pool import orders
from workers.snapshot.control_record import control_record
from workers.steering import overrides

pytestmark = pytest.mark.django_db


@pytest.fixture
def plant(control):
    return Plant(control)


def test_each_host_that_handles_events_has_a_loop_that_advises_in_a_range(control, plant):
    control.hset(keys.HOSTS, "spark@here", orjson.dumps(host_report(role="spark")))
    (loop,) = ensured(control, ["concurrency"])
    assert (loop.name, loop.mode, loop.target) == (f"concurrency/{HOST}", "advise", {"host": HOST})
    read = catalog.read_parameters(catalog.get_law("concurrency"), loop.parameters)
    assert (read["start"], read["minimum"], read["maximum"]) == (2, 1, MAX_PROCESSES)
    control.hdel(keys.HOSTS, HOST)
    assert ensured(control, ["concurrency"]) == []
    assert "retired_at" in Loop.objects.get().target
    control.hset(keys.HOSTS, HOST, orjson.dumps(host_report()))
    assert [each.target for each in ensured(control, ["concurrency"])] == [{"host": HOST}]


def test_what_was_asked_for_is_kept_while_the_loop_is_alive_and_lapses_in_advise(control, plant):
    plant.put_on_auto(station(6))
    for _ in range(8):
        plant.work(station(6))
        plant.tick()
    key = keys.POOL.build(HOST)
    for mode, kept in (("auto", True), ("hold", True), ("advise", False)):
        plant.mode(mode)
        control.set(key, orjson.dumps({"threads": plant.rows[HOST]["slots"], "pid": 7}))
        plant.rows[HOST]["done"]["recent_seconds"] = []
        plant.tick()
        assert (control.ttl(key) > 0) is kept, "without a time to live nobody renewed it"


def test_a_pool_that_refuses_to_grow_is_reported_with_its_reason_and_taken_for_its_limit(control):
    plant = Plant(control, most=3)
    plant.put_on_auto(station(20))
    plant.rows[HOST]["trouble"] = "BlockingIOError: [Errno 11] Resource temporarily unavailable"
    entries = []
    for _ in range(25):
        plant.work(station(20))
        entries += plant.tick()
    refused = [entry for entry in entries if entry.limited_by == "pool"]
    assert refused and all("Errno 11" in entry.reason for entry in refused)
    assert Loop.objects.get().state["law"]["limit"] == 3
    assert 1 <= plant.order().threads <= 3


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (None, "is not reporting"),
        (host_report(age_seconds=None), "is not reporting"),
        (host_report(age_seconds=60.0), "old"),
        (host_report(resizable=False), "cannot add or remove processes"),
    ],
)
def test_a_host_that_can_not_be_measured_or_steered_is_held_with_the_reason(plant, row, words):
    plant.mode("auto")
    plant.rows = {} if row is None else {HOST: row}
    (entry,) = plant.tick()
    assert entry.action is None and words in entry.reason and plant.order() is None


@pytest.mark.parametrize(
    ("gaps", "words"), [([], "idle or stuck"), ([0.5], "one sample"), ([0.0, 0.0], "the same time")]
)
def test_too_little_to_decide_by_is_held_and_never_less_than_one_thread_is_asked_for(plant, gaps, words):
    plant.mode("auto")
    plant.rows[HOST]["done"] |= {"seq": len(gaps), "recent_seconds": gaps}
    (entry,) = plant.tick()
    assert entry.action is None and words in entry.reason


def test_no_sample_is_taken_twice_and_another_life_of_the_host_begins_anew():
    row = host_report(done={"seq": 5, "recent_seconds": [1.0, 2.0, 3.0], "full_seconds": 9.0, "per_second": 1.0})

    def snapshot():
        return snapshot_of({"at": 0.0, "hosts": {HOST: row}})

    first = measure_target({"host": HOST}, snapshot(), None, 0.0)
    assert first.observation["interdeparture_seconds"] == [1.0, 2.0, 3.0]
    again = measure_target({"host": HOST}, snapshot(), first.counters, 0.0)
    assert (again.observation["interdeparture_seconds"], again.observation["seconds"]) == ([], 0.0)
    row["done"] |= {"seq": 6, "recent_seconds": [2.0, 3.0, 4.0], "full_seconds": 13.0}
    later = measure_target({"host": HOST}, snapshot(), first.counters, 0.0)
    assert (later.observation["interdeparture_seconds"], later.observation["seconds"]) == ([4.0], 4.0)
    row["pid"] = 8
    anew = measure_target({"host": HOST}, snapshot(), first.counters, 0.0)
    assert anew.observation["interdeparture_seconds"] == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("queue", "waiting"),
    [
        ({"wait_seconds": 0.4}, False),
        ({"wait_seconds": 8.0}, True),
        ({"wait_seconds": 1.0, "waiting_events": 500, "trend": "rising"}, True),
        ({"wait_seconds": 8.0, "pauses": [{"part": "consumption", "override": 1}]}, False),
        ({"wait_seconds": 8.0, "kind": "pipeline"}, False),
    ],
)
def test_work_waits_while_a_queue_of_the_role_does_not_keep_up(queue, waiting):
    there = snapshot_of({"at": 9.0, "hosts": {HOST: host_report()}, "queues": {"orders": {"kind": "jobs", **queue}}})
    seen = measure_target({"host": HOST}, there, {"at": 4.0}, 9.0).observation
    assert (seen["waiting"], seen["elapsed_seconds"]) == (waiting, 5.0)


def test_the_size_that_is_tested_is_in_words():
    terms = {"threads": 1, "usual_threads": 2, "samples": 145, "needed_samples": 176, "undone_after_seconds": 31.0}
    row = LoopStatus(law="concurrency", mode="auto", terms=terms)
    words = "Testing 1 process instead of 2: 145 of 176 samples, undone in 31 s"
    assert describe_probe(row) == words
    assert describe_probe(LoopStatus(mode="advise", terms=terms)) == ""
    assert describe_probe(LoopStatus(mode="auto", terms={**terms, "threads": 2})) == ""


@pytest.mark.thorough
def test_hosts_leave_their_steady_state_together(control):
    hosts = ("jobs@a", "jobs@b", "jobs@c")
    plant = Plant(control, *hosts)
    plant.put_on_auto(station(6))
    Loop.objects.filter(name="concurrency/jobs@c").update(
        parameters={**Loop.objects.get(name="concurrency/jobs@c").parameters, "steady_seconds": 150.0}
    )
    phases = []
    for _ in range(60):
        plant.work(station(6))
        plant.tick()
        loops = control_record(plant.now).loops
        phases.append([loops[f"concurrency/{host}"].terms["phase"] for host in hosts])
    rests = [at for at, row in enumerate(phases) if row == ["steady"] * 3]
    left = next(at for at in range(rests[0], 60) if phases[at][2] != "steady")
    # The one whose time is over begins, the others a tick later; none does so twice.
    assert phases[left][:2] == ["steady", "steady"] and "steady" not in phases[left + 1]
    assert phases[-1] == ["steady"] * 3
    joined = LedgerEntry.objects.filter(loop__name="concurrency/jobs@a", reason__contains="another host")
    assert joined.count() == 1


def test_a_host_that_explores_for_the_first_time_knows_of_the_others_that_do():
    others = {"law": "concurrency", "mode": "auto", "terms": {"epoch": 0}}
    loops = {f"concurrency/jobs@{name}": {**others, "target": {"host": f"jobs@{name}"}} for name in "ab"}
    here = {"at": 0.0, "hosts": {HOST: host_report()}, "loops": loops}
    assert measure_target({"host": "jobs@a"}, snapshot_of(here), None, 0.0).observation["epoch"] == 0
    alone = {**here, "loops": {name: loop for name, loop in loops.items() if name.endswith("@a")}}
    assert not {"epoch", "mean_threads"} & {
        *measure_target({"host": "jobs@a"}, snapshot_of(alone), None, 0.0).observation
    }


def test_a_host_knows_what_the_hosts_that_are_steered_have_on_average():
    loop = {"law": "concurrency", "mode": "auto", "terms": {"epoch": 0}}
    loops = {name: {**loop, "target": {"host": f"jobs@{name}"}} for name in "abc"}
    loops["c"] |= {"mode": "advise"}
    slots = {"a": 4, "b": 8, "c": 30}
    hosts = {f"jobs@{name}": {**host_report(), "slots": count} for name, count in slots.items()}
    here = {"at": 0.0, "hosts": hosts, "loops": loops}
    assert measure_target({"host": "jobs@a"}, snapshot_of(here), None, 0.0).observation["mean_threads"] == 6.0
    assert "mean_threads" not in measure_target({"host": "jobs@c"}, snapshot_of(here), None, 0.0).observation


def test_a_person_sets_the_pool_by_hand_until_the_override_ends(plant, user):
    plant.put_on_auto(station(6))
    loop = Loop.objects.get()
    told = {"owner": user, "reason": "a slow evening", "now": plant.now, "loop": loop, "minutes": 1}
    overrides.set_override(name="mode", value="manual", **told)
    overrides.set_override(name="threads", value=3, **told)
    plant.tick()
    assert plant.order().threads == 3
    with pytest.raises(BadInput):
        overrides.set_override(name="threads", value=2.5, **told)
    plant.now += timedelta(minutes=2)
    for _ in range(2):
        plant.work(station(6))
        (entry,) = plant.tick()
    assert entry.mode == "auto" and plant.order().threads != 3


@pytest.mark.parametrize(("host", "threads"), [(HOST, 0), (HOST, 1_001), ("jobs@nowhere", 2), ("threads@x", 2)])
def test_an_order_that_can_not_be_followed_is_refused_and_leaves_none(control, plant, host, threads):
    control.hset(keys.HOSTS, "threads@x", orjson.dumps(host_report(resizable=False)))
    with pytest.raises(BadInput):
        orders.order(control, host, threads)
    assert plant.order(host) is None


def test_every_decision_can_be_replayed_and_what_if_without_a_change_decides_the_same(plant):
    plant.put_on_auto(station(6))
    for tick in range(16):
        plant.work(station(6))
        plant.tick()
        if tick == 10:
            plant.mode("hold")
        if tick == 12:
            plant.mode("auto")
    replays = [ledger.replay(entry) for entry in LedgerEntry.objects.all()]
    assert all(replay.same for replay in replays), [replay.differences for replay in replays]
    since, until = plant.now - timedelta(hours=1), plant.now + timedelta(seconds=1)
    again = what_if.rerun(Loop.objects.get(), {}, since, until, time.monotonic)
    assert (len(again.steps), again.differing, again.skipped) == (17, [], 0)
    other = what_if.rerun(Loop.objects.get(), {"method": "tcc"}, since, until, time.monotonic)
    assert other.differing


def test_a_hold_that_has_just_ended_is_no_reason_to_explore_anew(plant):
    """The snapshot that a tick reads is up to a second old, and may still show the hold."""
    plant.put_on_auto(station(6))
    for _ in range(30):
        plant.work(station(6))
        plant.tick()
    plant.mode("hold")
    plant.put_on_auto(station(6))
    plant.now += timedelta(seconds=1)
    published = PublishedPlant(plant.control, plant.now.timestamp)
    (entry,) = tick_due(published, plant.now, plant.control, laws=("concurrency",))
    assert (entry.mode, entry.observation["steered"]) == ("auto", True)
    for _ in range(3):
        plant.work(station(6))
        (entry,) = plant.tick()
        assert "controls the pool from now on" not in entry.reason
