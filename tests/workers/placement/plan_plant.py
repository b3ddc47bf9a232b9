"""A database, real servers and agents for tests of plans; what waits and what is loaded is up to the test."""

from datetime import UTC, datetime
from itertools import count

import redis

from common.stored_document import convert_to_plain
from queues import points, projection
from queues.events.block import decode
from queues.models import Container, Node, Queue
from queues.nodes.agent import Agent
from queues.segments.segment import Segment
from queues.topology import Topology
from tests.queues.samples import blocks_of
from tests.servers import Server
from tests.workers.snapshots import snapshot_of
from workers.control import engine
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Plan
from workers.placement import execution
from workers.snapshot.local import LocalPlant

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
QUEUES = (("alert", "jobs"), ("process", "jobs"), ("telemetry", "pipeline"))


class Plant:
    """Nodes n1 to n3 on real servers, three queues over all of them, and agents that beat when told to."""

    def __init__(self, control: redis.Redis, servers: dict[str, Server]) -> None:
        self.control, self.servers = control, servers
        self._seconds = count(5_000)
        self.wall_seconds = NOW.timestamp()
        for name, server in servers.items():
            Node.objects.create(name=name, url=server.url, capacity_events_per_second=1_000.0)
        share = points.share(list(servers))
        for name, kind in QUEUES:
            queue = Queue.objects.create(name=name, kind=kind, handler="noop")
            for node in Node.objects.all():
                Container.objects.create(queue=queue, node=node, points=share[node.name])
        projection.project(control)
        self._monotonic = 5_000.0
        self.plant = LocalPlant(control, lambda: self.wall_seconds, lambda: self._monotonic)
        self.agents = {name: Agent(name, control, monotonic=lambda: self._monotonic) for name in servers}

    def close(self) -> None:
        for agent in self.agents.values():
            agent.close()

    def pass_seconds(self, seconds: float = 1.0, silent: tuple[str, ...] = ()) -> Snapshot:
        """Time goes on; every agent that is not silent beats each second; the snapshot at the end."""
        whole = max(1, round(seconds))
        for _ in range(whole):
            self._monotonic += seconds / whole
            self.wall_seconds += seconds / whole
            for name, agent in self.agents.items():
                if name not in silent:
                    agent.beat()
            snapshot = self.plant.observe()
        return snapshot

    def flow(self, seconds: int, per_second: float = 1_100.0, silent: tuple[str, ...] = ()) -> Snapshot:
        """Events come to `alert` by its points."""
        for _ in range(seconds):
            for node, count_of_points in self.points().items():
                if node not in silent:
                    self.segment("alert", node).publish(blocks_of(round(per_second * count_of_points / 1000), 512))
            snapshot = self.pass_seconds(1, silent)
        return snapshot

    def tick(self, law: str) -> LedgerEntry | None:
        return engine.tick(Loop.objects.get(law=law), self.plant, self.now, self.control)

    def execute(self) -> list[Plan]:
        return execution.advance_all(self.control, self.now)

    def ids(self, queue: str = "alert") -> dict[str, list[str]]:
        """The ids of the events on each node."""
        return {
            node: sorted(
                name
                for _, block_id, data, _ in self.segment(queue, node).read("0-0", "+")
                for name in decode(block_id, data).get_event_ids().to_pylist()
            )
            for node in self.servers
        }

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.wall_seconds, UTC)

    def segment(self, queue: str, node: str) -> Segment:
        return Segment(self.servers[node].client(), queue)

    def topology(self) -> Topology:
        return projection.read_database()

    def points(self, queue: str = "alert") -> dict[str, int]:
        return self.topology().queue(queue).live_points


def loaded(snapshot: Snapshot, loads: dict[str, dict[str, float]]) -> Snapshot:
    """The snapshot with {queue: {node: load}} as measured, and the nodes' utilisation as their sum."""
    document = convert_to_plain(snapshot)
    for queue, rows in loads.items():
        for node, load in rows.items():
            document["queues"][queue]["containers"][node]["load"] = load
    for name, node in document["nodes"].items():
        each = (queue["containers"].get(name, {}).get("load") for queue in document["queues"].values())
        node["utilisation"] = sum(load or 0.0 for load in each)
        if node["state"] not in ("OFFLINE", None):
            level = "BUSY" if node["utilisation"] >= node["busy"] else "NORMAL"
            node["state"] = "TOOBUSY" if node["utilisation"] >= node["toobusy"] else level
    return snapshot_of(document)
