"""One schedule: producers, consumers, and transfers at work while hosts lose power, and the account of every event.

The parts are the real ones: the client, segments, routes between nodes, and dead letters. An event is lost if its
publish was acknowledged, and it was never handled, and it is neither waiting nor a dead letter at the end.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import redis

from bench.durability.power import PowerNode, PowerServer
from common.errors import WeirError
from queues import keys
from queues.durability import REPLICATED
from queues.nodes.file_sync import EVERY_SECONDS
from queues.nodes.replication import LOST_DATA
from queues.points import share
from queues.publishing.client import Client
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import ClaimedBlock, Segment
from queues.topology import QueueSpec, Topology
from workers.placement.transfer import Route

CALL_EVENTS, MAX_CALLS = 8, 10
MAX_BEAT_SECONDS = 0.5  # of an agent, which takes a second
CLIENT_TIMEOUT_SECONDS, NODE_TIMEOUT_SECONDS = 2.0, 2.0
DRAIN_SECONDS = 30.0
UNAVAILABLE = (WeirError, redis.RedisError, OSError)


@dataclass
class EventAccount:
    """The fate of the events. acknowledged: event ID → monotonic time of the acknowledgment."""

    acknowledged: dict[str, float] = field(default_factory=dict)
    handled: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)  # waiting or dead letters at the end
    deliveries: int = 0
    moved_blocks: int = 0
    moved_letters: int = 0
    lost_bytes: int = 0
    lost_disks: int = 0
    promotions: int = 0
    lost_power_at: list[float] = field(default_factory=list)

    def list_lost(self) -> list[str]:
        """Return the acknowledged events that are nowhere."""
        return sorted(self.acknowledged.keys() - self.handled - self.kept)


@dataclass
class PowerSchedule:
    """A schedule on running servers. work_seconds: from its start to the power loss, and after it."""

    nodes: list[PowerNode]
    control_url: str
    durability: str
    seed: int
    work_seconds: float
    account: EventAccount = field(default_factory=EventAccount)

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)
        self._queue = f"q{self.seed}"
        names = [node.name for node in self.nodes]
        self._spec = QueueSpec(self._queue, "jobs", share(names), minimum_containers=1, durability=self.durability)
        self._hosts = _place_on_hosts(self.nodes)
        self._stop, self._setting = threading.Event(), threading.Lock()
        self._faults: list[BaseException] = []

    def run(self) -> EventAccount:
        """Run the schedule, and return the account. Raises what a part raised other than an unavailable server."""
        self._project()
        self._await_servers()
        consumers = (self._consume, self._consume)
        parts = (self._publish, *consumers, self._transfer, self._keep_servers_set, self._sync_files)
        seeds = [self._chance.random() for _ in parts]
        threads = [
            threading.Thread(target=self._guard, args=(part, Random(seed)), daemon=True)
            for part, seed in zip(parts, seeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            # A second loss may strike a server that was started and doesn't sync yet.
            for _ in range(self._chance.choice((1, 2, 3))):
                self._stop.wait(self._chance.uniform(0.1, 1.0) * self.work_seconds)
                self._lose_power()
            self._stop.wait(self._chance.uniform(0.2, 0.6) * self.work_seconds)
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._faults:
            raise self._faults[0]
        self._drain()
        return self.account

    def _guard(self, part: Callable[[Random], None], chance: Random) -> None:
        try:
            part(chance)
        except Exception as error:
            self._faults.append(error)
            self._stop.set()

    @property
    def _topology(self) -> Topology:
        revision = 10 * self.seed + sum(node.promotions for node in self.nodes)
        return Topology(revision, {node.name: node.spec for node in self.nodes}, {self._queue: self._spec})

    def _project(self) -> None:
        with redis.Redis.from_url(self.control_url) as control:
            control.set(keys.TOPOLOGY, self._topology.to_json())

    def _lose_power(self) -> None:
        """Let random hosts lose power at the same moment, and start them again in random order.

        If all nodes are replicated, one host may lose its disk, or stay off until its nodes' replicas are promoted.
        """
        struck = self._chance.sample(self._hosts, self._chance.randint(1, len(self._hosts)))
        has_copies = self.durability == REPLICATED and not any(node.problem for node in self.nodes)
        fate = self._chance.choice(("disk", "disk", "off", "")) if has_copies else ""
        with self._setting:
            for server in (server for host in struck for server in host):
                server.kill()
            # What was replicated before the loss may not be so until the servers are set again.
            for node in self.nodes:
                node.problem = "a host has lost power"
        self.account.lost_power_at.append(time.monotonic())
        for host in struck:
            for server in host:
                self.account.lost_bytes += server.lose_unsynced_writes(self._chance)
        if fate == "disk":
            self.account.lost_disks += 1
            for server in struck[0]:
                server.lose_disk()
        for host in struck[1:]:
            for server in host:
                server.start()
        if fate == "off":
            self._promote(server.name for server in struck[0])
        for server in struck[0]:
            server.start()
        if fate == "disk":
            self._promote(server.name for server in struck[0])

    def _promote(self, lost_servers: Iterable[str]) -> None:
        """Do what recovery does with nodes whose primary is lost, except its wait of ten seconds."""
        lost = set(lost_servers)
        for node in self.nodes:
            if node.servers[node.promotions % 2].name in lost and node.recover():
                self.account.promotions += 1
        self._project()

    def _publish(self, chance: Random) -> None:
        """Publish until each call is acknowledged. New clients don't know which servers have failed."""
        number = 0
        while not self._stop.is_set():
            with Client(self.control_url, "bench", timeout_seconds=CLIENT_TIMEOUT_SECONDS) as client:
                for _ in range(chance.randint(1, MAX_CALLS)):
                    ids = [f"{self.seed}-{number + place}" for place in range(chance.randint(1, CALL_EVENTS))]
                    number += len(ids)
                    self._publish_call(client, ids)

    def _publish_call(self, client: Client, ids: list[str]) -> None:
        blocks = client.build_blocks([{"id": event_id, "type": "t", "value": 1.0} for event_id in ids])
        while not self._stop.is_set():
            with suppress(*UNAVAILABLE):
                client.publish_blocks(self._queue, blocks)
                self.account.acknowledged |= dict.fromkeys(ids, time.monotonic())
                return
            self._stop.wait(0.01)

    def _consume(self, chance: Random) -> None:
        worker, claims = f"w{chance.random()}", 0
        with self._connect() as segments:
            # Slower than the producer, so that events wait when a host loses power.
            while not self._stop.wait(chance.uniform(0.0, 0.1)):
                claims += 1
                segment = segments.choose(chance)
                with suppress(*UNAVAILABLE):
                    for block in segment.claim(f"{worker}-{claims}", chance.randint(1, 40), 0.1):
                        self._handle(segment, block, f"{worker}-{claims}", chance)

    def _handle(self, segment: Segment, block: ClaimedBlock, worker: str, chance: Random) -> None:
        """Handle a block, or fail in one of the ways in which workers fail."""
        self.account.deliveries += 1
        fate = chance.random()
        if fate < 0.6:
            self.account.handled.update(block.block().get_event_ids().to_pylist())
            segment.acknowledge([block.entry_id])
        elif fate < 0.75:
            rows = [(block.block().build_explicit_batch(), "poison")]
            segment.move_to_dead_letters(block, worker, rows)
        elif fate < 0.9:
            segment.retry(block, worker, chance.uniform(0.0, 0.1))

    def _transfer(self, chance: Random) -> None:
        """Move blocks and dead letters between nodes, and requeue dead letters."""
        with self._connect() as segments:
            while not self._stop.wait(chance.uniform(0.0, 0.02)):
                names = list(segments.names)
                source = chance.choice(names)
                targets = {name: segments.get(name) for name in names if name != source}
                route = Route(source, segments.get(source), targets, dict.fromkeys(targets, 500))
                with suppress(*UNAVAILABLE):
                    self.account.moved_blocks += route.run(50_000, most=chance.randint(1, 10)).blocks
                    self.account.moved_letters += route.move_letters(50_000, most=chance.randint(1, 5)).letters
                    letters = DeadLetters(segments.choose(chance))
                    letters.requeue({letter.dead_id: letter.digest for letter in letters.read(2)})

    def _keep_servers_set(self, chance: Random) -> None:
        """Do what agents do each second, sooner after a start."""
        while not self._stop.wait(chance.uniform(0.05, MAX_BEAT_SECONDS)):
            for node in self.nodes:
                with self._setting, suppress(*UNAVAILABLE):
                    node.align(self._spec)

    def _sync_files(self, _chance: Random) -> None:
        """Do what the launcher does each second."""
        while not self._stop.wait(EVERY_SECONDS):
            for server in (server for node in self.nodes for server in node.servers):
                with suppress(OSError):
                    server.sync_files()

    def _drain(self) -> None:
        """Handle everything that is left, and empty the servers."""
        self._await_servers()
        deadline = time.monotonic() + DRAIN_SECONDS
        with self._connect() as segments:
            for segment in map(segments.get, segments.names):
                segment.stay(segments.names)
                while segment.measure()["length_blocks"]:
                    _check(deadline, f"schedule {self.seed}: blocks stay in {self._queue}")
                    for block in segment.claim("last", 10_000, 0.0):
                        self.account.kept.update(block.block().get_event_ids().to_pylist())
                        segment.acknowledge([block.entry_id])
                for letter in DeadLetters(segment).read(1_000_000):
                    self.account.kept.update(letter.batch.column(0).to_pylist())
                segment.node.delete(*keys.list_queue_keys(self._queue))

    def _await_servers(self) -> None:
        """Wait until the nodes accept events of the queue."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while True:
            for node in self.nodes:
                with suppress(*UNAVAILABLE):
                    node.align(self._spec)
                if node.problem == LOST_DATA and node.recover():  # again, as recovery does each second
                    self.account.promotions += 1
                    self._project()
            if not any(node.problem for node in self.nodes):
                return
            _check(deadline, f"schedule {self.seed}: {[node.problem for node in self.nodes]}")

    def _connect(self) -> "Segments":
        return Segments(self)

    def get_place(self, node: str) -> tuple[str, str, str]:
        """Return the URL, the queue, and the durability of a segment now."""
        topology = self._topology
        return topology.nodes[node].url, self._queue, topology.get_durability(self._queue, node)


class Segments:
    """The queue's segments, with connections of one thread. Use it as a context."""

    def __init__(self, schedule: PowerSchedule) -> None:
        self._schedule = schedule
        self.names = [node.name for node in schedule.nodes]
        self._connections: dict[str, redis.Redis] = {}

    def __enter__(self) -> "Segments":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def get(self, node: str) -> Segment:
        """Return the segment on a node's present primary."""
        url, queue, durability = self._schedule.get_place(node)
        if url not in self._connections:
            timeouts = {"socket_timeout": NODE_TIMEOUT_SECONDS, "socket_connect_timeout": NODE_TIMEOUT_SECONDS}
            self._connections[url] = redis.Redis.from_url(url, retry=None, **timeouts)
        return Segment(self._connections[url], queue, durability)

    def choose(self, chance: Random) -> Segment:
        return self.get(chance.choice(self.names))


def _place_on_hosts(nodes: list[PowerNode]) -> list[list[PowerServer]]:
    """Return the servers of each host: the first one of a node, and the second one of the next node."""
    following = nodes[1:] + nodes[:1]
    return [[node.servers[0], *other.servers[1:]] for node, other in zip(nodes, following, strict=True)]


def _check(deadline: float, problem: str) -> None:
    """Raise `TimeoutError` after the deadline."""
    if time.monotonic() > deadline:
        raise TimeoutError(problem)
    time.sleep(0.01)


def find_oldest_lost_seconds(account: EventAccount) -> float:
    """Return the greatest time between an acknowledgement and the next power loss, of all lost events; 0.0 if none."""
    ages = [
        min(at - account.acknowledged[event] for at in account.lost_power_at if at >= account.acknowledged[event])
        for event in account.list_lost()
    ]
    return max(ages, default=0.0)
