"""The levels of a ladder on the plant: which are offered, what their loops can still do, and what enabling one does."""

from datetime import UTC, datetime, timedelta

import pytest

from common.stored_document import encode_document
from queues import keys
from queues.topology import QueueSpec, Topology
from tests.workers.loops import ensured
from tests.workers.snapshots import snapshot_of
from workers.control.engine import tick_due
from workers.control.kinds import ladder
from workers.control.parts.level_loops import assess_level
from workers.models import LedgerEntry, Loop
from workers.plants.steered import PublishedPlant
from workers.snapshot.control_record import control_record

NOW = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)
TOTALS = {"nodes": 3, "nodes_in_use": 2, "worker_slots": 4, "workers_busy": 2}
QUEUES = {"alert": {"kind": "jobs"}, "telemetry": {"kind": "pipeline"}}
SHEDDABLE = {"performance": {"queues": ["telemetry"], "patterns": {"rises": {"sheddable": True}}}}


def loop(law, mode="auto", relief=None, age=1.0, **target):
    return {"law": law, "mode": mode, "relief": relief, "at": 100.0 - age, "target": target}


PLANT_LOOPS = {
    "rebalancing": loop("rebalancing"),
    "node_scaling": loop("node_scaling", "advise"),
    "worker_rate/alert/n1": loop("worker_rate", queue="alert", node="n1"),
    "concurrency/jobs@here": loop("concurrency", "advise", host="jobs@here"),
    "parallelism_joint/performance": loop("parallelism_joint", application="performance"),
}


def seen(loops=None, **more):
    document = {"at": 100.0, "queues": QUEUES, "totals": TOTALS, "pipeline": {"applications": SHEDDABLE}}
    return snapshot_of({**document, "loops": {**PLANT_LOOPS, **(loops or {})}, **more})


def offered(queue, snapshot):
    return {level for level, status in ladder.assess_levels(queue, snapshot).items() if not status.unavailable}


def test_only_levels_that_can_help_a_queue_are_offered():
    with_loops = {"rebalance", "workers", "nodes"}
    assert offered("alert", seen()) == with_loops
    assert offered("telemetry", seen()) == {*with_loops, "shed"}
    single = {**TOTALS, "nodes": 1, "nodes_in_use": 1}
    assert offered("alert", seen(totals=single)) == {"workers"}
    assert offered("alert", snapshot_of({"queues": QUEUES})) == set(), "without loops"


@pytest.mark.parametrize("producer", ["api", "publish", "shop", "host"])
def test_throttling_is_offered_where_a_producer_can_wait_and_complex_events_can_not(producer):
    for name, is_offered in ((producer, True), ("pipeline-performance", False)):
        snapshot = seen(producers={name: {"queues": {"alert": 5.0}}})
        assert ("throttle" in offered("alert", snapshot)) is is_offered
        assert "throttle" not in offered("telemetry", snapshot)


def test_shedding_is_offered_while_a_loop_may_drop_events_of_a_pattern():
    kept = {"performance": {"queues": ["telemetry"], "patterns": {"rises": {"sheddable": False}}}}
    assert "shed" not in offered("telemetry", seen(pipeline={"applications": kept}))
    for mode, is_offered in (("auto", True), ("manual", True), ("hold", False), ("advise", False)):
        shedding = {"shedding/performance": loop("shedding", mode, application="performance")}
        assert ("shed" in offered("telemetry", seen(shedding))) is is_offered


@pytest.mark.parametrize(("mode", "what"), [("advise", "approve its plan"), ("hold", "end the hold")])
def test_advice_that_would_help_is_named_and_a_loop_without_any_is_exhausted_at_once(mode, what):
    status = assess_level("nodes", "alert", seen({"node_scaling": loop("node_scaling", mode, "use n3")}))
    assert not status.exhausted
    assert status.advice == f"node scaling would use n3, but is {'on' if mode == 'hold' else 'in'} {mode}: {what}"
    assert assess_level("nodes", "alert", seen({"node_scaling": loop("node_scaling", mode)})).exhausted
    moving = [{"id": 1, "state": "running"}]
    auto = {"node_scaling": loop("node_scaling")}
    assert assess_level("nodes", "alert", seen(auto)).exhausted
    assert not assess_level("nodes", "alert", seen(auto, plans=moving)).exhausted, "its nodes are on the way"


def test_more_workers_help_while_a_slot_is_free_and_more_processes_otherwise():
    starts = {"worker_rate/alert/n1": loop("worker_rate", "auto", "start 1 worker", queue="alert", node="n1")}
    assert not assess_level("workers", "alert", seen(starts)).exhausted
    full = {**TOTALS, "workers_busy": 4}
    assert assess_level("workers", "alert", seen(starts, totals=full)).exhausted
    more = {"concurrency/jobs@here": loop("concurrency", "advise", "set threads to 4", host="jobs@here")}
    advice = "concurrency would set threads to 4, but is in advise: set it to auto"
    assert assess_level("workers", "alert", seen({**starts, **more}, totals=full)).advice == advice
    assert assess_level("workers", "alert", seen({**starts, **more})).advice == ""
    assert assess_level("workers", "telemetry", seen({**starts, **more})).exhausted
    deeds = [{"law": "parallelism_joint", "entry": 1, "at": 90.0, "verdict": "checking"}]
    assert not assess_level("workers", "telemetry", seen(deeds=deeds)).exhausted, "its effect is not known yet"


def test_advice_for_tasks_that_another_loop_sets_is_not_waited_for():
    advice = loop("parallelism_queueing", "advise", "set tasks of 1 operator", application="performance")
    for mode, is_advised in (("auto", False), ("advise", True)):
        joint = loop("parallelism_joint", mode, application="performance")
        snapshot = seen({"parallelism_queueing/performance": advice, "parallelism_joint/performance": joint})
        assert bool(assess_level("workers", "telemetry", snapshot).advice) is is_advised


def test_an_old_decision_is_no_proof_that_a_loop_can_not_help_until_its_level_is_enabled():
    old = {"rebalancing": loop("rebalancing", age=14.0)}

    def exhausted(mode, rung):
        on_it = {"law": "ladder", "mode": mode, "target": {"queue": "alert"}, "terms": {"rung": rung}}
        return assess_level("rebalance", "alert", seen({**old, "ladder/alert": on_it})).exhausted

    assert [exhausted("auto", rung) for rung in (0, 1)] == [False, True]
    assert exhausted("advise", 0), "a ladder that advises enables no level"


@pytest.mark.django_db
def test_enabling_a_level_makes_its_loops_decide_at_once_and_waives_their_cool_down(control):
    queues = {"alert": QueueSpec("alert", "jobs", {"n1": 1000})}
    ensured(control, ["ladder", "rebalancing", "node_scaling"], Topology(1, {}, queues))
    Loop.objects.filter(law="ladder").update(mode=Loop.Mode.AUTO)
    cooling = {"mode": "auto", "guard": {"acted_at_seconds": NOW.timestamp() - 5}}
    Loop.objects.exclude(law="ladder").update(mode=Loop.Mode.AUTO, ticked_at=NOW, at_rest=True, state=cooling)
    document = {
        "at": NOW.timestamp(),
        "queues": {"alert": {"kind": "jobs", "in_per_second": 40.0, "out_per_second": 10.0, "wait_seconds": 60.0}},
        "totals": TOTALS,
    }

    def tick(seconds):
        now = NOW + timedelta(seconds=seconds)
        document.update({"at": now.timestamp(), "loops": control_record(now).loops})
        control.set(keys.SNAPSHOT, encode_document(document))
        tick_due(PublishedPlant(control, now.timestamp), now, control, laws=("ladder",))
        return LedgerEntry.objects.latest("pk")

    assert tick(1).action == {"rung": 1}
    asked, other = Loop.objects.get(law="rebalancing"), Loop.objects.get(law="node_scaling")
    assert (asked.ticked_at, asked.at_rest, asked.state["guard"]["acted_at_seconds"]) == (None, False, None)
    assert (other.ticked_at, other.state) == (NOW, cooling)
    Loop.objects.filter(law="rebalancing").update(ticked_at=NOW)
    assert tick(6).action == {"rung": 3}, "there is nothing to move, and no loop starts workers"
    assert Loop.objects.get(law="rebalancing").ticked_at == NOW
    assert Loop.objects.get(law="node_scaling").ticked_at is None


def observed(rung, closed, in_per_second, inserted, before):
    """The ladder's observation of `alert` after 5 s in which this many events were inserted."""
    on_it = {"law": "ladder", "mode": "auto", "target": {"queue": "alert"}}
    document = {
        "at": 105.0,
        "queues": {
            "alert": {
                "kind": "jobs",
                "in_per_second": in_per_second,
                "out_per_second": 40.0,
                "wait_seconds": 60.0,
                "containers": {"n1": {"inserted_events": inserted}},
            }
        },
        "producers": {"shop": {"queues": {"alert": in_per_second}}},
        "loops": {"ladder/alert": {**on_it, "terms": {"rung": rung, "closed_share": closed}}},
        "totals": TOTALS,
    }
    return ladder.measure_target({"queue": "alert"}, snapshot_of(document), before, 105.0)


def test_arrivals_are_counted_over_a_whole_cycle_of_throttling():
    """Producers offer 100 events/s and wait for 60 % of each 5 s. The last 3 s see mostly the open part."""
    first = observed(4, 0.6, 67.0, 1_000, None)
    assert first.observation["came_per_second"] == 67.0, "nothing to compare with"
    second = observed(4, 0.6, 67.0, 1_200, {**first.counters, "at": 100.0})
    assert second.observation["came_per_second"] == 40.0
    assert second.observation["demand_per_second"] == pytest.approx(100.0)
    late = observed(4, 0.6, 67.0, 1_200, {**first.counters, "at": 5.0})
    assert late.observation["came_per_second"] == 67.0, "the last decision is too long ago"


def test_arrivals_are_the_offered_load_once_events_are_shed():
    """The estimate would grow without end: closing more does not make producers wait that hold back no more."""
    found = observed(5, 0.9, 100.0, 1_500, {"inserted@n1": 1_000.0, "at": 100.0}).observation
    assert (found["came_per_second"], found["demand_per_second"]) == (100.0, 100.0)
