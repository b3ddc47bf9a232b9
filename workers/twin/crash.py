"""The shipped run of the scenario `crash`: the publishers' client, and the loops that move points.

The publishers use the real client with simulated connections. A node that stops doesn't respond, so
the first flush to it waits for the client's timeout. A person has set node scaling to auto, and keeps all nodes in use,
as in the scenario. Recovery doesn't run in the twin: on a plant it restores the points first, after ten seconds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import redis

from common.errors import NodeUnavailable
from controllers.rebalancing.law import LAW as REBALANCING
from controllers.rebalancing.node_scaling import LAW as NODE_SCALING
from controllers.simulation import crash
from controllers.simulation.crash import BLOCK_EVENTS, CAPACITY_PER_SECOND, NODES, RATES, SECONDS
from controllers.simulation.scenario import Floats, ScenarioOutcome, resample
from queues.events.block import EncodedBlock
from queues.publishing.client import TIMEOUT_SECONDS, Client, PublishResult
from queues.segments.segment import Segment
from queues.topology import Capacity, NodeSpec, QueueSpec, Topology
from workers.models import Loop
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the client and the loops for twenty minutes; nothing is random."""
    plant = build_plant()
    twin = Twin(
        plant,
        [REBALANCING.name, NODE_SCALING.name],
        modes={NODE_SCALING.name: Loop.Mode.AUTO},
        parameters={NODE_SCALING.name: {"minimum_containers": NODES}},
    )
    dead, at, until = f"n{settings['node']}", int(settings["at"]), int(settings["restore"])
    total = sum(RATES.values())
    rates = np.full(SECONDS, total) if trace is None else total * resample(trace, SECONDS)
    client, published, tried = SimulatedClient(plant), 0, np.zeros(SECONDS)
    before, diverted = count_points(plant, dead), None
    for second in range(SECONDS):
        plant.nodes[dead].silent = at <= second < until
        client.begin_second()
        for queue, rate in RATES.items():
            per_second = float(rates[second]) * rate / total / BLOCK_EVENTS
            count = math.floor((second + 1) * per_second) - math.floor(second * per_second)
            blocks = [EncodedBlock(f"{queue}-{second}-{index}", BLOCK_EVENTS, 0, b"") for index in range(count)]
            published += count * BLOCK_EVENTS
            client.publish_blocks(queue, blocks)
        tried[second] = client.tried.get(dead, 0)
        if diverted is None and client.waited_seconds:
            diverted = second - at + client.waited_seconds
        twin.pass_time()
    metrics = {
        "events_lost": published - client.stored,
        "seconds_to_divert": round(diverted or 0.0, 3),
        "points_restored": count_points(plant, dead) - before,
    }
    return ScenarioOutcome(metrics, {"tried_at_node_per_second": tried}, 1.0)


def build_plant() -> SimulatedPlant:
    """Return the plant of the scenario."""
    allocation, capacity = crash.build_initial_plant(), Capacity(CAPACITY_PER_SECOND)
    queues = {
        name: QueueSpec(
            name, "jobs", {allocation.nodes[node]: points for node, points in held.items()}, minimum_containers=minimum
        )
        for name, held, minimum in zip(allocation.queues, allocation.points, allocation.minimum, strict=True)
    }
    return SimulatedPlant(Topology(1, {name: NodeSpec(name, "", capacity) for name in allocation.nodes}, queues))


def count_points(plant: SimulatedPlant, dead: str) -> int:
    """Return the points on the other nodes."""
    queues = plant.topology.queues.values()
    return sum(points for queue in queues for node, points in queue.points.items() if node != dead)


class SimulatedClient(Client):
    """The publishers' client on the simulated plant: it chooses, sends, backs off, and reroutes as the real one.

    stored: events. tried: the events of this second by the node to which they were sent. waited_seconds: how long this
    second's flushes have waited for nodes that don't answer.
    """

    def __init__(self, plant: SimulatedPlant) -> None:
        self.plant, self.stored = plant, 0
        super().__init__("redis://simulated", clock=plant.clock, monotonic=plant.clock)
        self.begin_second()

    def begin_second(self) -> None:
        self.tried: dict[str, int] = {}
        self.waited_seconds = 0.0

    def get_topology(self, fresh: bool = False) -> Topology:
        return self.plant.topology

    def admit(self, queue: str) -> QueueSpec:
        return self.plant.topology.queue(queue)

    def wait_while_throttled(self, queue: str) -> None:
        """Do nothing: no queue is throttled."""

    def count_stored(self, queue: str, published: PublishResult) -> None:
        self.stored += published.events

    def get_segment(self, queue: str, node: str) -> Segment:
        return cast(Segment, _SimulatedSegment(self, queue, node))

    def _begin(self) -> None:
        super()._begin()
        self._senders = _ImmediateExecutor()

    def _get_connection(self, name: str, syncs: bool = False) -> redis.Redis:
        return cast(redis.Redis, _SimulatedConnection(self.plant, name))


class _ImmediateExecutor(ThreadPoolExecutor):
    """Runs what is submitted at once, so that a run repeats exactly."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@dataclass(frozen=True)
class _SimulatedConnection:
    plant: SimulatedPlant
    node: str

    def ping(self) -> None:
        if self.plant.nodes[self.node].silent:
            raise redis.TimeoutError(f"{self.node} is down")


@dataclass(frozen=True)
class _SimulatedSegment:
    client: SimulatedClient
    queue: str
    node: str

    def publish(self, blocks: Sequence[EncodedBlock]) -> None:
        """Store the blocks, which workers remove at once."""
        events = sum(block.events for block in blocks)
        self.client.tried[self.node] = self.client.tried.get(self.node, 0) + events
        if self.client.plant.nodes[self.node].silent:
            self.client.waited_seconds += TIMEOUT_SECONDS
            raise NodeUnavailable(f"{self.node} is down")
        container = self.client.plant.container(self.queue, self.node)
        container.insert(events, self.client.plant.clock())
        container.remove(events)


SHIPPED = ShippedRun(crash.SCENARIO, run)
