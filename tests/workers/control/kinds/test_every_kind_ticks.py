"""Each kind of loop ticks on a plant with one of everything: calm, overloaded, overloaded with budgets
spent, and calm again. An error in any sensor, law or actuator shows here, within about a second.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from controllers.shedding.ladder import LEVELS
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.console.conftest import sample_snapshot
from tests.workers.snapshots import snapshot_of
from workers.control import engine
from workers.control.kinds.registry import KINDS
from workers.control.loops import ensure_loops
from workers.control.parts.kind import PlantInventory
from workers.documents.hosts import ReportedHost
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.foreign import adapters
from workers.plants.memory import MemoryPlant

START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
TOPOLOGY = Topology(
    1,
    {"n1": NodeSpec("n1", "redis://n1:6379/0")},
    {"alert": QueueSpec("alert", "jobs", {"n1": 1000}), "telemetry": QueueSpec("telemetry", "pipeline", {"n1": 1000})},
)
BUDGETS = {
    "loss": {"target": 0.999, "window_days": 30, "kind": "application", "unit": "events", "pays_for": "shed"},
    "open": {"target": 0.999, "window_days": 30, "kind": "queue", "pays_for": "throttle"},
}
CALM, OVERLOAD = 0.5, 3.0
LEFT = 3_600.0  # of an error budget, events or s: one a second for an hour
# (load, share of the error budgets that is left)
PHASES = ((CALM, 1.0), *[(OVERLOAD, 1.0)] * 2, (OVERLOAD, 0.0), (CALM, 0.0))
TICK_SECONDS = 6.0
POOL = "celery@one"
# What these do needs real nodes (tests/workers/placement), or days of history (test_parallelism_loops).
ONLY_DECIDE = {"rebalancing", "node_scaling", "parallelism_forecast"}


class OneOfEverything(PlantInventory):
    """An application, a worker host, a queue of each kind, a foreign plant, an app with a pool."""

    applications = ("performance",)
    hosts = {"jobs@here": ReportedHost(role="jobs", slots=2, at=0.0)}
    plants = {"east": adapters.list_kinds()["flink"], "shop": adapters.list_kinds()["celery"]}
    fair_queues = ("alert",)


class ShownPlant(MemoryPlant):
    """Shows the snapshot that it is given, and keeps what is ordered."""

    def __init__(self) -> None:
        operators = {"performance/hosts": 2, "performance/sites": 2}
        super().__init__(START.timestamp, [("alert", "n1"), ("telemetry", "n1")], operators)
        self.shown = Snapshot()
        self.hosts = {"jobs@here": self.hosts["jobs@memory"]}

    def observe(self) -> Snapshot:
        return self.shown


def shop_at(seconds: float, load: float) -> dict[str, Any]:
    """An attached app of one pool, whose two processes work 10 tasks a second each at most."""
    came = 20.0 * load
    measures = {"inputs": 5 * came, "executions": 5 * min(came, 20.0), "service_seconds": 0.1}
    task = {**measures, "latency_seconds": 0.0, "utilisation": min(1.0, load)}
    queue = {"outputs": 10 * came}
    operators = {
        "queue celery": MeasuredOperator("queue celery", "source", 1, 1, 1, "a queue", tasks=(queue,)),
        POOL: MeasuredOperator(POOL, "operator", 2, 1, 100, tasks=(task, task)),
    }
    link = Link("queue celery", POOL, max(0.0, load - 1.0) * seconds)
    topology = MeasuredTopology("shop", START.timestamp() + seconds, 10.0, operators, (link,))
    done = {"since": 1.0, "seq": 10 * round(seconds), "recent_seconds": [0.05] * 40, "full_seconds": seconds}
    row = {"kind": "celery", "state": "seen", "topology": topology.to_document()}
    return {**row, "completions": {POOL: {**done, "per_second": 20.0}}}


def plant_at(plant: ShownPlant, now: datetime, load: float, left_share: float) -> Snapshot:
    """`load` times as much comes as can be worked off; beyond 1 what waits grows."""
    found: dict[str, Any] = sample_snapshot()
    seconds = (now - START).total_seconds()
    late_seconds = max(0.0, load - 1.0) * seconds
    for row in found["queues"].values():
        row |= {
            "in_per_second": 30.0 * load,
            "out_per_second": 30.0 * min(1.0, load),
            "wait_seconds": late_seconds,
            "clearing_seconds": late_seconds,
        }
        waiting = 10_000 if load > 1 else 12
        row["containers"]["n1"] |= {"waiting_events": waiting, "inserted_events": 1_000 + waiting}
    found["queues"]["alert"] |= {"ordinary_weight": 1_000.0, "active_keys": 20}
    done = {"seq": round(seconds), "recent_seconds": [0.1] * 30, "full_seconds": seconds, "per_second": 10.0}
    found["hosts"] = {"jobs@here": {**plant.hosts["jobs@here"], "done": done}}
    application = found["pipeline"]["applications"]["performance"]
    application["patterns"]["load-rises"] |= {"seconds": 0.045, "out_per_second": 4.0}
    application["result_queue"]["used_bytes"] = 0
    application["patterns"]["outage"]["types"] = {"load-rises": 4.0}
    found["producers"]["api"] = {"in_per_second": 50.0, "queues": {"alert": 50.0, "telemetry": 50.0}}
    found["plants"] = {
        "east": {"kind": "flink", "state": "seen", "topology": plant.get_topology().to_document()},
        "shop": shop_at(seconds, load),
    }
    found["objectives"] = {
        name: {**row, "left": LEFT * left_share, "left_share": left_share} for name, row in BUDGETS.items()
    }
    # What the shedding law asks for: the ladder of what the application reads is on its last level. What a ladder asks
    # for: a loop that can help its queue.
    worker_rate = {"id": 2, "law": "worker_rate", "mode": "auto", "target": {"queue": "alert", "node": "n1"}}
    found["loops"] = {
        "worker_rate/alert/n1": {**worker_rate, "at": now.timestamp(), "relief": "start 3 workers"},
        "ladder/telemetry": {
            "id": 1,
            "law": "ladder",
            "mode": "auto",
            "target": {"queue": "telemetry"},
            "terms": {"rung": len(LEVELS) if load > 1 else 0},
        },
    }
    return snapshot_of({**found, "at": now.timestamp()})


def ticks(control: redis.Redis) -> dict[str, list[LedgerEntry]]:
    """Law → what its loops decided; those of our own plant on auto."""
    plant, now = ShownPlant(), START
    plant.shown = plant_at(plant, now, CALM, 1.0)
    for loop in ensure_loops(OneOfEverything(TOPOLOGY, control, plant.shown)):
        if "plant" not in loop.target:
            Loop.objects.filter(pk=loop.pk).update(mode=Loop.Mode.AUTO)
    entries: dict[str, list[LedgerEntry]] = {name: [] for name in KINDS}
    for load, left_share in PHASES:
        now += timedelta(seconds=TICK_SECONDS)
        plant.shown = plant_at(plant, now, load, left_share)
        for loop in Loop.objects.all():
            entry = engine.tick(loop, plant, now, control)
            assert entry is not None, loop.name
            entries[loop.law].append(entry)
    return entries


@pytest.mark.django_db
def test_every_kind_of_loop_decides_on_a_valid_measurement_and_carries_out_what_it_decides(control):
    found = ticks(control)
    every = [entry for entries in found.values() for entry in entries]
    assert [entry.error for entry in every if entry.error] == []
    of_shop = [entry for entry in every if entry.loop.target.get("plant") == "shop"]
    assert {entry.observation["unfit"] for entry in of_shop} == {None}
    assert {entry.loop.law for entry in of_shop} >= {"concurrency", "parallelism_joint", "worker_rate"}
    own = [entry for entry in every if "plant" not in entry.loop.target]
    assert {entry.observation["unfit"] for entry in own} == {None}
    acted = {entry.loop.law for entry in own if entry.action is not None and entry.applied}
    assert acted == KINDS.keys() - ONLY_DECIDE
    assert {entry.limited_by for entry in found["shedding"]} >= {"error budget"}
