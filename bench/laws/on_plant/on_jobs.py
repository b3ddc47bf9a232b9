"""Disturbances of jobs queues: a burst (worker rate), another bottleneck (concurrency), and a lost node (placement)."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import redis

from bench.laws.on_plant.disturbed_plant import HANDLER, DisturbedPlant, Snapshot
from bench.laws.on_plant.metrics import Comparison, PublishedBlock, compute_divert_seconds, count_growth, sum_samples
from common.errors import WeirError
from queues import keys
from queues.events.block import BlockIds, cut, from_events
from queues.publishing.client import Client
from queues.publishing.splitter import Splitter
from queues.segments.segment import Segment
from queues.topology import Topology

MAX_PER_SECOND, EVENTS_PER_WORKER = 1_000.0, 50
EMPTY_SECONDS, BACKLOG_EVENTS = 120.0, 100_000
WAITING = {"seconds": 0.01}  # per event, of the handler that only waits
NODE, FROZEN_SECONDS, RESTORED_SECONDS = "n2", 15.0, 60.0
PULL_SECONDS, TIMEOUT_SECONDS, BLOCK_EVENTS, BLOCKS_PER_SECOND = 5.0, 0.5, 10, 20


def measure_burst(plant: DisturbedPlant, seconds: float) -> list[Comparison]:
    """Send one sine wave of arrivals (Houtman, 4.2.2) with the law's forecast, then with the thesis' manager.

    waiting_5s_post: the sum of the queue length every 5 s. worker_runs: the workers that started.
    """
    queue = "burst"
    plant.ask(
        f"queues/{queue}/create",
        kind="jobs",
        handler="emulate",
        handler_options={"seconds": 0.0001},
        events_per_worker=EVENTS_PER_WORKER,
    )
    waiting, runs = [], []
    for values in ({}, {"method": "thesis"}):
        with plant.override("worker_rate", values, queue=queue):
            wait_until_worked_off(plant, queue, EVENTS_PER_WORKER)
            before = count_workers(plant.snapshot() or {}, queue)
            with plant.publish(queue, lambda at: MAX_PER_SECOND * (1 - math.cos(2 * math.pi * at / seconds)) / 2):
                samples = plant.sample(seconds, lambda snapshot: get_waiting_events(snapshot, queue))
            waiting.append(sum_samples(samples))
            wait_until_worked_off(plant, queue, EVENTS_PER_WORKER)
            runs.append(count_growth(before, count_workers(plant.snapshot() or {}, queue)))
    return [Comparison("burst_waiting_5s_post", *waiting), Comparison("burst_worker_runs", *runs)]


def measure_bottleneck(plant: DisturbedPlant, seconds: float) -> list[Comparison]:
    """Replace a waiting handler by a computing one (Tang), with a fixed pool, then with the law's pool.

    The metric is the throughput in the last two thirds of each part, while work waits.
    """
    queue, size = "bottleneck", 100
    plant.ask(f"queues/{queue}/create", kind="jobs", handler="emulate", handler_options=WAITING, events_per_worker=size)
    rates: dict[str, list[float]] = {"waiting": [], "computing": []}
    for mode in ("advise", "auto"):
        with plant.use_mode(["concurrency"], mode):
            for part, handler in (("waiting", "emulate"), ("computing", f"python:{HANDLER}.compute")):
                plant.set_handler(queue, handler, **(WAITING if part == "waiting" else {}))
                with Client(plant.control_url(), producer="bench") as client:
                    client.publish(queue, [{"type": "work"}] * BACKLOG_EVENTS)
                removed = plant.sample(seconds, lambda snapshot: count_removed(snapshot, queue))
                first = len(removed) // 3
                rates[part].append((removed[-1] - removed[first]) / (len(removed) - 1 - first))
            plant.set_handler(queue, "noop")
            wait_until_worked_off(plant, queue, size)
    return [
        Comparison(f"bottleneck_{part}_per_second", law, fixed, is_higher_better=True)
        for part, (fixed, law) in rates.items()
    ]


def measure_lost_node(plant: DisturbedPlant, seconds: float) -> list[Comparison]:
    """Freeze a node's server (Houtman, B.1.3.2) while Weir's client and the thesis' publisher send events.

    events_lost: events that were published but not stored. seconds_to_divert: time from the failure until the last lost
    event, or the longest time that an event took to be stored. points_restored: the queue's points on the other nodes,
    at most a minute later.
    """
    queue = "lost-node"
    plant.ask(f"queues/{queue}/create", kind="jobs", handler="noop")
    snapshot = plant.wait_until(lambda seen: get_containers(seen, queue), EMPTY_SECONDS, f"{queue} is observed")
    before = count_points(snapshot, queue)
    server = plant.node_server(NODE)
    with open_publishers(plant, queue) as publishers:
        time.sleep(1.5 * PULL_SECONDS)  # halfway between two pulls, as on average
        frozen_at = time.monotonic()
        server.send_signal(signal.SIGSTOP)
        try:
            time.sleep(max(FROZEN_SECONDS, seconds / 2))
            lost = [BLOCK_EVENTS * sum(not block.stored for block in publisher.blocks) for publisher in publishers]
            diverted = [compute_divert_seconds(publisher.blocks, frozen_at) for publisher in publishers]
            deadline, restored = time.monotonic() + RESTORED_SECONDS, 0.0
            while restored == 0.0 and time.monotonic() < deadline:
                restored = count_points(plant.snapshot() or {}, queue) - before
                time.sleep(1.0)
        finally:
            server.send_signal(signal.SIGCONT)
    return [
        Comparison("lost_node_events_lost", *lost),
        Comparison("lost_node_seconds_to_divert", *diverted),
        Comparison("lost_node_points_restored", restored, 0.0, is_higher_better=True),
    ]


@dataclass
class SteadyPublisher:
    """Publishes blocks at a constant rate in a thread; `send` stores one, or raises.

    blocks: when each began, when it ended, and whether it was stored.
    """

    send: Callable[[pa.RecordBatch], object]
    blocks: list[PublishedBlock] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        due = time.monotonic()
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            due += 1 / BLOCKS_PER_SECOND
            began = time.monotonic()
            try:
                self.send(from_events([{"type": "steady"}] * BLOCK_EVENTS, int(time.time() * 1e6)))
                stored = True
            except (WeirError, redis.RedisError):
                stored = False
            self.blocks.append(PublishedBlock(began, time.monotonic(), stored))


@contextmanager
def open_publishers(plant: DisturbedPlant, queue: str) -> Iterator[Sequence[SteadyPublisher]]:
    """Publish to a queue with Weir's client and with the thesis' load balancer until the context exits."""
    topology = Topology.from_json(plant.control.get(keys.TOPOLOGY))
    with ExitStack() as stack:
        client = stack.enter_context(Client(plant.control_url(), producer="bench"))
        balancer = PullingBalancer(topology, queue)
        stack.callback(balancer.close)
        publishers = [
            SteadyPublisher(lambda batch: client.publish(queue, batch) and None),
            SteadyPublisher(balancer.send),
        ]
        for publisher in publishers:
            thread = threading.Thread(target=publisher.run, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(publisher.ended.set)
        yield publishers


class PullingBalancer:
    """The load balancer of the thesis: it asks the nodes every five seconds, and sends each block once."""

    def __init__(self, topology: Topology, queue: str) -> None:
        points = topology.queue(queue).live_points
        timeouts = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
        self._nodes = {name: redis.Redis.from_url(topology.get_node(name).url, **timeouts) for name in points}
        self._segments = {name: Segment(node, queue) for name, node in self._nodes.items()}
        self._splitter, self._ids, self._pulled_at = Splitter(points), BlockIds(), -math.inf

    def send(self, batch: pa.RecordBatch) -> None:
        if time.monotonic() - self._pulled_at >= PULL_SECONDS:
            self._pull()
        self._segments[self._splitter.pick_container()].publish(cut(batch, self._ids))

    def _pull(self) -> None:
        self._pulled_at = time.monotonic()
        for name, node in self._nodes.items():
            try:
                node.ping()
                self._splitter.admit(name)
            except redis.RedisError:
                self._splitter.exclude(name)

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()


def wait_until_worked_off(plant: DisturbedPlant, queue: str, events_per_worker: int) -> None:
    """Wait until no container has enough events for a full worker. The remaining events may wait for more."""

    def is_worked_off(snapshot: Snapshot) -> bool:
        rows = get_containers(snapshot, queue).values()
        return bool(rows) and all((row["waiting_events"] or 0) < events_per_worker for row in rows)

    plant.wait_until(is_worked_off, EMPTY_SECONDS, f"{queue} is worked off")


def get_containers(snapshot: Snapshot, queue: str) -> Mapping[str, Mapping[str, float | None]]:
    rows: Mapping[str, Mapping[str, float | None]] = snapshot.get("queues", {}).get(queue, {}).get("containers", {})
    return rows


def get_waiting_events(snapshot: Snapshot, queue: str) -> float:
    return sum(row["waiting_events"] or 0 for row in get_containers(snapshot, queue).values())


def count_removed(snapshot: Snapshot, queue: str) -> float:
    return sum(row["removed_events"] or 0 for row in get_containers(snapshot, queue).values())


def count_workers(snapshot: Snapshot, queue: str) -> dict[str, float]:
    """Return the workers that have started, by node."""
    return {name: row["workers_started"] or 0 for name, row in get_containers(snapshot, queue).items()}


def count_points(snapshot: Snapshot, queue: str) -> float:
    """Return the queue's points on nodes other than the frozen node."""
    return sum(row["points"] or 0 for name, row in get_containers(snapshot, queue).items() if name != NODE)
