"""The loops of some kinds, made as the upkeep makes them."""

from collections.abc import Iterable

import redis

from queues.topology import NodeSpec, QueueSpec, Topology
from workers.control.loops import ensure_loops
from workers.control.parts.kind import PlantInventory
from workers.control.parts.operators import OWNERS
from workers.models import Loop
from workers.plants.plant import Snapshot

JOBS, PIPELINE, PARALLELISM = ("worker_rate",), ("flow", "balance", "shedding"), OWNERS
PLANT = ("rebalancing", "node_scaling")
NO_TOPOLOGY = Topology(1, {}, {})


def ensured(
    control: redis.Redis, laws: Iterable[str], topology: Topology = NO_TOPOLOGY, snapshot: Snapshot | None = None
) -> list[Loop]:
    """The active loops of these laws."""
    return ensure_loops(PlantInventory(topology, control, snapshot), laws)


def jobs_topology(**points: dict[str, int]) -> Topology:
    """Nodes n1 and n2; queues of jobs with these points by node, and one of the pipeline beside them."""
    nodes = {name: NodeSpec(name, f"redis://{name}:6379/0") for name in ("n1", "n2")}
    queues = {name: QueueSpec(name, "jobs", held, events_per_worker=300) for name, held in points.items()}
    queues["telemetry"] = QueueSpec("telemetry", "pipeline", {"n1": 1000})
    return Topology(4, nodes, queues)
