"""The node agent: `python -m queues.nodes.agent NAME` samples a node every second.

The agent sends the node's heartbeat to the control server. It needs REDIS_URL (the control server) in the environment.
Its node's URL, capacity, and thresholds come from the topology. A node whose server does not answer sends no heartbeat;
it becomes OFFLINE when heartbeats are missing.
"""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType

import redis

from common import environment as variables
from common import logs, own_process
from common.errors import BadInput, WeirError
from common.files import keep_private
from common.own_process import raise_open_file_limit, wait_seconds
from common.stored_document import BadDocument, convert
from queues import keys
from queues.control import connection as control_connection
from queues.nodes.addresses import add_login
from queues.nodes.heartbeat import ContainerCounters, Heartbeat, UtilizationByPart
from queues.nodes.measures import CommandTime, WaitingAges, compute_time_shares
from queues.nodes.node_state import NodeState, StateThresholds, smooth, step
from queues.nodes.replication import ReplicaPair
from queues.nodes.write_sync import WriteSync
from queues.segments.gauge import GROUP, SCRIPTS, Gauge, read_gauges
from queues.topology import KnownTopology, NodeSpec, QueueSpec, Topology

TIMEOUT_SECONDS = 0.4
SWEEP_EVERY_BEATS = 60
SWEEP_IDLE_MS = 60_000

log = logging.getLogger("weir.agent")


@dataclass(frozen=True)
class NodeSample:
    """A node's cumulative server CPU time, memory, and the gauges of its segments, at a monotonic instant."""

    at_seconds: float
    cpu_seconds: float
    memory_bytes: int
    maxmemory_bytes: int
    containers: dict[str, Gauge]
    commands: CommandTime = field(default_factory=CommandTime)

    @property
    def inserted_events(self) -> int:
        return sum(int(gauge["inserted_events"] or 0) for gauge in self.containers.values())


def compute_utilization_by_part(before: NodeSample | None, now: NodeSample, spec: NodeSpec) -> UtilizationByPart:
    """Return the utilization by part. Rates need two samples; a counter that went back (a new server) counts as 0."""
    limit = min(filter(None, (now.maxmemory_bytes, spec.capacity.memory_bytes)))
    memory = now.memory_bytes / limit
    if before is None or now.at_seconds <= before.at_seconds:
        return UtilizationByPart(0.0, memory, 0.0)
    elapsed = now.at_seconds - before.at_seconds
    cpu = max(0.0, now.cpu_seconds - before.cpu_seconds) / elapsed
    events = max(0, now.inserted_events - before.inserted_events) / elapsed
    return UtilizationByPart(cpu, memory, events / spec.capacity.events_per_second)


def count_missing_blocks(gauge: Gauge) -> int:
    """Return how many blocks a segment has lost: those inserted and not removed that are not there.

    Each change of the segment changes its counters in the same step, so a crash loses both. A block is missing without
    them if its part of the server's file was damaged.
    """
    return max(0, int(gauge["inserted_blocks"]) - int(gauge["removed_blocks"]) - int(gauge["length_blocks"]))


@dataclass(frozen=True)
class DroppedBlocks:
    """Blocks that the server had counted before it restarted, and does not know any more: the end of its file is lost.

    inserted: queue → blocks at the last beat. at_seconds: when the last ones were dropped (s since 1970).
    """

    inserted: Mapping[str, int] = field(default_factory=dict)
    blocks: int = 0
    at_seconds: float | None = None

    @classmethod
    def resume(cls, last: Heartbeat) -> "DroppedBlocks":
        """Continue from the last heartbeat of an earlier agent."""
        inserted = {queue: row.inserted_blocks or 0 for queue, row in last.containers.items()}
        return cls(inserted, last.dropped_blocks, last.dropped_at)

    def update(self, containers: Mapping[str, Gauge], now_seconds: float) -> "DroppedBlocks":
        """Return the value after a beat. A server that has counted nothing is new, and has dropped nothing."""
        inserted = {queue: int(gauge["inserted_blocks"]) for queue, gauge in containers.items()}
        dropped = sum(max(0, count - inserted.get(queue, count)) for queue, count in self.inserted.items())
        if dropped and any(inserted.values()):
            return DroppedBlocks(inserted, self.blocks + dropped, round(now_seconds, 3))
        return DroppedBlocks(inserted, self.blocks, self.at_seconds)


class Agent:
    """Samples one node and sends heartbeats.

    `beat` does the work of one second and raises for no unavailable server.
    """

    def __init__(
        self,
        name: str,
        control: redis.Redis,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._control = control
        self._clock, self._monotonic = clock, monotonic
        self._known = KnownTopology()
        self._node: redis.Redis | None = None
        self._spec: NodeSpec | None = None
        self._before: NodeSample | None = None
        self._state = NodeState()
        self._server_time: dict[str, float] = {}
        self._seq: int | None = None
        self._dropped = DroppedBlocks()
        self._ahead_seconds = 0.0
        self._ages = WaitingAges()
        self._beats = 0
        self._last_error = ""
        self._write_sync, self._pair, self._durability_problem = WriteSync(), ReplicaPair(), ""

    def beat(self) -> Heartbeat | None:
        """Sample the node and send the heartbeat. Returns what was sent, or None (the log says why, once)."""
        try:
            topology = self._known.read(self._control.get(keys.TOPOLOGY))
            spec = topology.get_node(self.name)
            held = [topology.queues[name] for name in topology.on_node(self.name)]
            problem = self._align_pair(spec, held)  # before the sample: a replica runs no scripts
            now = self._sample(spec, list(topology.queues))
            self._report_durability(problem or self._sync_writes(held))
            heartbeat = self._build_heartbeat(topology, now)
            self._send(heartbeat)
        except (redis.RedisError, OSError, WeirError) as error:
            self._say(f"heartbeat not sent: {error}")
            return None
        self._say("")
        return heartbeat

    def _align_pair(self, spec: NodeSpec, queues: list[QueueSpec]) -> str:
        """Make the servers of a node with a replica what the topology says; return why it isn't replicated, or ""."""
        try:
            return self._pair.align(spec, queues) if spec.replica_url else ""
        except redis.RedisError as error:
            return f"the servers can't be set ({error})"

    def _sync_writes(self, queues: list[QueueSpec]) -> str:
        """Let the server sync each write while a durable queue has a container here; return why it can't, or ""."""
        assert self._node is not None
        try:
            return self._write_sync.align(self._node, queues)
        except redis.ResponseError as error:
            return f"the server can't be set ({error})"

    def _report_durability(self, problem: str) -> None:
        """Log why events of durable queues are rejected, when it starts and when it ends."""
        if problem and problem != self._durability_problem:
            log.warning("%s: events of durable queues are rejected: %s", self.name, problem)
        if self._durability_problem and not problem:
            log.warning("%s: events of durable queues are accepted again", self.name)
        self._durability_problem = problem

    def _send(self, heartbeat: Heartbeat) -> None:
        """Send the heartbeat, followed by a query for its delay at the control server."""
        with self._control.pipeline(transaction=False) as pipe:
            pipe.hset(keys.HEARTBEATS, self.name, heartbeat.to_json())
            pipe.time()
            _, (seconds, microseconds) = pipe.execute()
        self._ahead_seconds = round(heartbeat.at - seconds - microseconds / 1e6, 3)

    def close(self) -> None:
        if self._node is not None:
            self._node.close()

    def _sample(self, spec: NodeSpec, queues: list[str]) -> NodeSample:
        if self._node is None or self._spec is None or self._spec.url != spec.url:
            self.close()
            self._node = connect(add_login(spec.url))
            self._before = None
            self._write_sync = WriteSync()
        self._spec = spec
        node = self._node
        about = {**node.info("memory"), **node.info("cpu")}
        commands = CommandTime.parse(node.info("commandstats"))
        sample = NodeSample(
            at_seconds=self._monotonic(),
            cpu_seconds=about["used_cpu_sys"] + about["used_cpu_user"],
            memory_bytes=about["used_memory"],
            maxmemory_bytes=about["maxmemory"],
            containers=self._read_aged_gauges(node, queues),
            commands=commands,
        )
        self._beats += 1
        if self._beats % SWEEP_EVERY_BEATS == 0:
            script = node.register_script(SCRIPTS["sweep"])
            for queue in queues:
                script(keys=keys.list_queue_keys(queue), args=[GROUP, SWEEP_IDLE_MS])
        return sample

    def _read_aged_gauges(self, node: redis.Redis, queues: list[str]) -> dict[str, Gauge]:
        gauges, now = read_gauges(node, queues), self._monotonic()
        return {
            queue: {**gauge, "oldest_seconds": self._ages.observe(queue, gauge, now)} for queue, gauge in gauges.items()
        }

    def _build_heartbeat(self, topology: Topology, now: NodeSample) -> Heartbeat:
        spec, held = topology.get_node(self.name), topology.on_node(self.name)
        utilised = compute_utilization_by_part(self._before, now, spec)
        raw = max(utilised.cpu, utilised.memory, utilised.events)
        thresholds = StateThresholds(busy=spec.busy, toobusy=spec.toobusy)
        self._state = step(self._state, raw, topology.has_points(self.name), thresholds)
        self._server_time = self._attribute_cpu_time(now, utilised.cpu, thresholds.alpha)
        self._before = now
        self._seq = self._compute_next_seq()
        self._dropped = self._dropped.update(now.containers, self._clock())
        damaged_at, damage = max(
            ((gauge["damaged_at"], gauge["damage"]) for gauge in now.containers.values() if gauge["damaged_at"]),
            default=(None, ""),
        )
        # A queue that was moved away is still shown while it has waiting events or dead letters here.
        shown = {
            queue: {**gauge, "server_time_share": self._server_time.get(queue)}
            for queue, gauge in now.containers.items()
            if queue in held or gauge["length_blocks"] or gauge["dead_letters"]
        }
        return Heartbeat(
            node=self.name,
            seq=self._seq,
            at=round(self._clock(), 3),
            state=self._state.state,
            utilisation=self._state.utilisation,
            raw=raw,
            parts=utilised,
            memory_bytes=now.memory_bytes,
            ahead_seconds=self._ahead_seconds,
            damaged_blocks=sum(gauge["damaged_blocks"] for gauge in now.containers.values()),
            unchecked_blocks=sum(gauge["unchecked_blocks"] for gauge in now.containers.values()),
            missing_blocks=sum(count_missing_blocks(gauge) for gauge in now.containers.values()),
            damage=damage,
            damaged_at=damaged_at,
            dropped_blocks=self._dropped.blocks,
            dropped_at=self._dropped.at_seconds,
            durability_problem=self._durability_problem,
            containers={queue: convert(ContainerCounters, gauge, queue) for queue, gauge in shown.items()},
        )

    def _attribute_cpu_time(self, now: NodeSample, cpu: float, alpha: float) -> dict[str, float]:
        """Return the server's time by queue, smoothed like the utilization; empty before the second sample."""
        if self._before is None:
            return {}
        before = self._before
        newest = compute_time_shares(before.containers, now.containers, before.commands, now.commands, cpu)
        return {queue: round(smooth(share, self._server_time.get(queue), alpha), 6) for queue, share in newest.items()}

    def _compute_next_seq(self) -> int:
        """Return the next number after the last agent's, and resume from its last heartbeat.

        After a restart, the number changes and never repeats.
        """
        if self._seq is None:
            last = self._control.hget(keys.HEARTBEATS, self.name)
            try:
                heartbeat = Heartbeat.from_json(last) if last else None
            except BadDocument:
                heartbeat = None
            if heartbeat is None:
                return 1
            self._dropped = DroppedBlocks.resume(heartbeat)
            return heartbeat.seq + 1
        return self._seq + 1

    def _say(self, last_error: str) -> None:
        """Log an error when it starts and when it ends, not every second."""
        if last_error and not self._last_error:
            log.warning("%s: %s", self.name, last_error)
        if self._last_error and not last_error:
            log.warning("%s: heartbeats are being sent again", self.name)
        self._last_error = last_error


def connect(url: str) -> redis.Redis:
    """Return a client that times out before the next beat is due. Raises `BadInput` that names REDIS_URL."""
    # If a heartbeat is lost with a primary, the next one follows.
    return control_connection.connect(
        url, acknowledged=False, retry=None, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
    )


def run(agent: Agent, stop: threading.Event, after_beat: Callable[[], None] = lambda: None) -> None:
    """Beat on each full second until a stop is requested. after_beat: called after each beat."""
    last = time.monotonic() - 1.0
    while not stop.wait(wait_seconds(time.time(), time.monotonic() - last)):
        last = time.monotonic()
        agent.beat()
        after_beat()


def main(arguments: list[str]) -> int:
    keep_private()
    raise_open_file_limit()
    logs.configure_logging()
    if len(arguments) != 1 or not variables.REDIS_URL.is_set():
        log.error("usage: REDIS_URL=redis://host:port/0 python -m queues.nodes.agent NODE")
        return 2
    own_process.watch()
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        agent = Agent(arguments[0], connect(variables.REDIS_URL.get_text()))
    except BadInput as error:
        log.error("%s", error)
        return 2
    run(agent, stop, own_process.touch)
    agent.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
