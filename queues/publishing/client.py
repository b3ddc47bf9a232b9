"""The producer's client: events in, blocks out, over all containers of a queue.

    with Client("redis://127.0.0.1:6379/0", producer="shop") as client:
        client.publish("orders", [{"type": "ordered", "key": "17", "value": 3.5}])

What `publish` returns is stored. If a container fails or is full, its flush goes to another one under the same block
ids. The container is tried again with back-off, the first time within a second.

While the remedy ladder throttles a queue (`queues.throttling`), `publish` waits, before it starts and between flushes,
and checks every `THROTTLE_CHECK_SECONDS` whether it may continue. Code that must not wait, such as a coroutine, uses
`Client(..., when_throttled="raise")`: `publish` then raises `QueueThrottled` before anything is stored, and its caller
tries again after `retry_seconds`.
"""

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import redis

from common import errors
from queues import fairness, keys, pausing, throttling
from queues.control.connection import ConnectionOptions, connect
from queues.durability import DURABILITIES, MEMORY
from queues.events.block import BLOCK_EVENTS, BlockIds, EncodedBlock, cut, from_columns, from_events
from queues.nodes.addresses import add_login
from queues.publishing.lanes import LaneSplitter
from queues.publishing.producer_order import ProducerOrder
from queues.publishing.producers import ProducerReport
from queues.publishing.splitter import Splitter
from queues.segments.segment import Segment
from queues.topology import KnownTopology, QueueSpec, Topology

# Which nodes a publisher may use: a gate closes when a node fails; a probe opens it, with back-off.

FIRST_SECONDS = 0.5
MAX_SECONDS = 5.0


@dataclass
class Gate:
    """Closed until a probe succeeds; `probe_at` says when the next one is due, `seconds` the back-off."""

    is_closed: bool
    probe_at: float
    seconds: float


class Gates:
    """One gate per node.

    After a failure the first probe is due in 0.5 s, and the next after twice the time, up to 5 s.

    A probe that succeeds opens the gate, but only a stored flush resets the back-off: a full node answers every probe
    and rejects every flush.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._gates: dict[str, Gate] = {}
        self._lock = threading.Lock()

    def is_open(self, node: str) -> bool:
        """Return True if the node may be used."""
        gate = self._gates.get(node)
        return gate is None or not gate.is_closed

    def take_probe(self, node: str) -> bool:
        """Return True for one caller when a probe of a closed gate is due: it probes and reports the outcome."""
        if node not in self._gates:
            return False
        with self._lock:
            gate = self._gates.get(node)
            if gate is None or not gate.is_closed or self._monotonic() < gate.probe_at:
                return False
            self._back_off(gate)
            return True

    def record_failure(self, node: str) -> None:
        """Close the gate. Flushes that fail while it is closed already count as one failure."""
        with self._lock:
            gate = self._gates.setdefault(node, Gate(False, 0.0, 0.0))
            if not gate.is_closed:
                gate.is_closed = True
                self._back_off(gate)

    def record_probe_success(self, node: str) -> None:
        """Open the gate after a successful probe, and keep the back-off until something is stored."""
        with self._lock:
            if node in self._gates:
                self._gates[node].is_closed = False

    def record_success(self, node: str) -> None:
        """Record that a flush was stored: the node is healthy."""
        if node in self._gates:
            with self._lock:
                self._gates.pop(node, None)

    def _back_off(self, gate: Gate) -> None:
        gate.seconds = min(2 * gate.seconds, MAX_SECONDS) if gate.seconds else FIRST_SECONDS
        gate.probe_at = self._monotonic() + gate.seconds


FLUSH_BLOCKS = 32
# Small enough that a node stores one flush while the next ones are gathered.
FLUSH_BYTES = 2**20
# While a node syncs a flush of a durable queue, the next one grows up to this: each sync then stores more.
MAX_SYNC_BLOCKS, MAX_SYNC_BYTES = 4 * FLUSH_BLOCKS, 4 * FLUSH_BYTES
CHUNK_BLOCKS = 16
REFRESH_SECONDS = 1.0
# While a queue is throttled, and for some intervals of its ladder afterwards, the client checks the throttling more
# often. A check that is a second late would miss most of a short throttling.
THROTTLE_CHECK_SECONDS, THROTTLE_WATCH_SECONDS = 0.2, 15.0
WhenThrottled = Literal["wait", "raise", "ignore"]
TIMEOUT_SECONDS = 0.5
# Of queues whose flushes wait for a disk: longer than the wait itself (`queues.segments.synced_write`).
SYNC_TIMEOUT_SECONDS = 2.0
Events: TypeAlias = pa.RecordBatch | pa.Table | Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class PublishResult:
    """The result of storing events. `rerouted` counts events sent again to another container after the first failed.

    durability: of the queue, which says where the events are stored (`queues.durability`).
    """

    events: int = 0
    blocks: int = 0
    by_container: Mapping[str, int] = field(default_factory=dict)
    rerouted: int = 0
    durability: str = MEMORY

    def __add__(self, other: "PublishResult") -> "PublishResult":
        names = [*self.by_container, *(name for name in other.by_container if name not in self.by_container)]
        together = {n: self.by_container.get(n, 0) + other.by_container.get(n, 0) for n in names}
        return PublishResult(
            self.events + other.events,
            self.blocks + other.blocks,
            together,
            self.rerouted + other.rerouted,
            other.durability,
        )


class Client:
    """Publishes to queues by name. Thread-safe; one per process is enough, also for processes forked from it.

    Close it, or use it as a context. `clock` gives the time of events without one; `monotonic` paces back-off and
    refreshing. Each node is waited for at most `timeout_seconds` (TIMEOUT_SECONDS by default; at least
    SYNC_TIMEOUT_SECONDS for a durable queue), so a frozen node costs a publisher that time once. `when_throttled`: what
    `publish` does while its queue is throttled. `throttled_seconds` is the total time that callers have waited because
    of throttling.

    in_order: publish one call after the other, each with later event times than the previous call. Applications that
    declare this producer then don't wait for late events. Use each `producer` name in one process only.
    """

    def __init__(
        self,
        control_url: str,
        producer: str = "client",
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        timeout_seconds: float | None = None,
        when_throttled: WhenThrottled = "wait",
        in_order: bool = False,
    ) -> None:
        self.producer, self.throttled_seconds = producer, 0.0
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep
        self._when_throttled, self._in_order = when_throttled, in_order
        self._timeout_seconds = TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        # The counts there are cumulative: one that is lost with a primary is in the next report.
        self._control = connect(control_url, acknowledged=False, **_build_fail_fast_options(self._timeout_seconds))
        self.ids = BlockIds()
        self._known = KnownTopology()
        self._refreshed_at = -REFRESH_SECONDS
        self._published_to: tuple[str, ...] = ()
        self._paused: dict[str, pausing.Pause] = {}
        self._throttled_until: dict[str, float] = {}  # queue → by the monotonic clock
        self._throttle_seen_at = -math.inf
        self._fairness: dict[str, fairness.Fairness] = {}  # of fair queues
        self._lane_splitters: dict[str, LaneSplitter] = {}
        self._splitters: dict[str, Splitter] = {}
        self._nodes: dict[tuple[str, bool], tuple[str, redis.Redis]] = {}
        self._gates = Gates(monotonic)
        self._begin()

    def _begin(self) -> None:
        """Start what belongs to one process: its threads, and what they hold or have still to report."""
        self._lock = threading.RLock()
        self._senders = ThreadPoolExecutor(max_workers=8, thread_name_prefix="weir-flush")
        self._report = ProducerReport(self._control, self.producer, self._clock)
        self._orders: dict[str, ProducerOrder] = {}  # by queue
        self._process = os.getpid()  # last: from now on another thread continues with these

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Report the last counts and close every connection. Safe to call twice."""
        self._senders.shutdown(wait=True)
        self._report.close()
        for _, node in self._nodes.values():
            node.close()
        self._control.close()

    def get_topology(self, fresh: bool = False) -> Topology:
        """Return the topology, at most 1 s old; the last known one if the control server has none that is readable."""
        with self._lock:
            now = self._monotonic()
            watches = now - self._throttle_seen_at < THROTTLE_WATCH_SECONDS
            due = now - self._refreshed_at >= (THROTTLE_CHECK_SECONDS if watches else REFRESH_SECONDS)
            if self._known.latest is None or due or fresh:
                self._refresh()
            assert self._known.latest is not None
            return self._known.latest

    def publish(self, queue: str, events: Events) -> PublishResult:
        """Publish events: a batch or table with any of the schema's columns, or mappings.

        For the schema, see `queues.events.block`. Waits while the queue is throttled. Raises `UnknownQueue`,
        `QueuePaused`, `QueueThrottled` (if it must not wait), `MalformedEvent` (nothing was published), and
        `NoContainerAvailable` (`stored` says what was stored before).
        """
        self.admit(queue)
        if self._in_order:
            return self._publish_in_order(queue, lambda now_us: [self._build_batch(events, now_us)])
        return self.publish_batches(queue, [self._build_batch(events)])

    def publish_batches(self, queue: str, batches: Iterable[pa.RecordBatch]) -> PublishResult:
        """Publish batches of `SCHEMA`: the next one is made while the servers store the last."""
        if self._in_order:
            self.admit(queue)
            return self._publish_in_order(queue, lambda _: batches)
        return Publishing(self, self.admit(queue).name).run(batches)

    def publish_blocks(self, queue: str, blocks: Iterable[EncodedBlock]) -> PublishResult:
        """Publish ready-made blocks under their own ids, such as those of an outbox that is sent again."""
        return Publishing(self, self.admit(queue).name).run_blocks(blocks)

    def _publish_in_order(self, queue: str, build: Callable[[int], Iterable[pa.RecordBatch]]) -> PublishResult:
        """Publish a call after all earlier calls are stored. build: returns the batches, given the current time (µs).

        After an error, a new session begins, and the caller can publish the same events again.
        """
        with self._lock:
            order = self._orders.setdefault(queue, ProducerOrder(self._control, self.producer, queue, self._monotonic))
        with order.lock:
            before_us = order.newest_us
            batches = list(build(max(self._now_us(), before_us + 1)))
            blocks = order.number_blocks(batches)
            try:
                for batch in batches:
                    self.sample(queue, batch)
                order.register()
                return self.publish_blocks(queue, blocks)
            except BaseException:
                order.newest_us = before_us
                order.restart()
                raise

    def build_blocks(self, events: Events) -> list[EncodedBlock]:
        """Return events as blocks, for callers that retry until they are stored: they keep their ids.

        Raises `MalformedEvent`.
        """
        return cut(self._build_batch(events), self.ids)

    def admit(self, queue: str) -> QueueSpec:
        """Return the queue when it accepts events.

        Raises `UnknownQueue`, `QueueThrottled`, and `QueuePaused`, at most a second after a person has paused or
        resumed it.
        """
        if self._process != os.getpid():
            self._begin()
        spec = self.get_topology().queue(queue)
        self.wait_while_throttled(queue)
        if self._when_throttled == "raise" and (seconds := self.compute_throttled_seconds(queue)):
            raise errors.QueueThrottled(queue, math.ceil(seconds))
        with self._lock:
            self._watch_queue(queue)
            pause = self._paused.get(queue)
        if pause is not None:
            raise errors.QueuePaused(queue, pause.reason, pause.compute_left_seconds(self._clock()))
        return spec

    def compute_throttled_seconds(self, queue: str) -> float:
        """Return the remaining time of the queue's throttling, as of the last check; 0 if it is not throttled."""
        with self._lock:
            self._watch_queue(queue)
            self.get_topology()
            return max(0.0, self._throttled_until.get(queue, 0.0) - self._monotonic())

    def wait_while_throttled(self, queue: str) -> None:
        """Wait until the queue is no longer throttled, if this client is set to wait."""
        while self._when_throttled == "wait" and (left := self.compute_throttled_seconds(queue)):
            began = self._monotonic()
            self._sleep(min(left, THROTTLE_CHECK_SECONDS))
            self.throttled_seconds += self._monotonic() - began

    def count_rejected(self, queue: str, events: int) -> None:
        """Count events that were rejected before publishing, for the producer's figures."""
        self._report.add(queue, rejected=events)

    def sample(self, queue: str, batch: pa.RecordBatch) -> None:
        """Sample what is published, for the producer's figures."""
        if batch.num_rows:
            self._report.sample(queue, batch)

    def split_lanes(self, queue: str, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Return the events by lane: all in lane 0, unless the queue is a fair jobs queue with heavy keys."""
        with self._lock:
            fair = self._fairness.get(queue)
            if fair is None or self.get_topology().queue(queue).kind != "jobs":
                return [(0, batch)]
            splitter = self._lane_splitters.setdefault(queue, LaneSplitter(self._monotonic))
            return list(splitter.split(batch, fair.overrides))

    def get_segment(self, queue: str, node: str) -> Segment:
        durability = self.get_topology().get_durability(queue, node)
        return Segment(self._get_connection(node, DURABILITIES[durability].waits), queue, durability)

    def choose(self, queue: str, count: int, refused: frozenset[str] = frozenset()) -> list[str]:
        """Return the nodes of the next `count` blocks; fewer or none if no container may be tried."""
        spec = self.get_topology().queue(queue)
        with self._lock:
            splitter = self._splitters.get(spec.name)
            if splitter is None:
                splitter = self._splitters[spec.name] = Splitter(spec.points)
            splitter.set_points(spec.points)
            self._align(splitter, refused)
            if splitter.available:
                return splitter.sequence(count)
        # Every container has failed recently: it is better to try one early than to refuse to publish.
        hopeful = [name for name, points in spec.points.items() if points and name not in refused]
        return [hopeful[0]] * count if hopeful else []

    def launch(self, queue: str, node: str, blocks: Sequence[EncodedBlock]) -> Future[Exception | None]:
        """Call `send` in the background."""
        return self._senders.submit(self.send, queue, node, blocks)

    def send(self, queue: str, node: str, blocks: Sequence[EncodedBlock]) -> Exception | None:
        """Send one flush to one node, and return its outcome; a failure closes the node's gate."""
        try:
            self.get_segment(queue, node).publish(blocks)
        except (errors.NodeUnavailable, errors.NodeFull) as error:
            self._gates.record_failure(node)
            self._refreshed_at = -REFRESH_SECONDS
            return error
        self._gates.record_success(node)
        return None

    def count_stored(self, queue: str, published: PublishResult) -> None:
        """Count what was stored in the producer's figures."""
        self._report.add(queue, published.events, published.blocks, rerouted=published.rerouted)

    def _now_us(self) -> int:
        return round(self._clock() * 1_000_000)

    def _build_batch(self, events: Events, now_us: int | None = None) -> pa.RecordBatch:
        now_us = self._now_us() if now_us is None else now_us
        columnar = isinstance(events, pa.RecordBatch | pa.Table)
        return from_columns(events, now_us) if columnar else from_events(events, now_us)

    def _align(self, splitter: Splitter, refused: frozenset[str]) -> None:
        """Exclude nodes behind a closed gate, and admit those whose back-off is over."""
        for name in splitter.points:
            if self._gates.take_probe(name):
                self._senders.submit(self._probe, name)
            if name in refused or not self._gates.is_open(name):
                splitter.exclude(name)
            else:
                splitter.admit(name)

    def _probe(self, node: str) -> None:
        """Probe a failed node in the background: a frozen one delays no publisher."""
        try:
            self._get_connection(node).ping()
        except (redis.RedisError, OSError, errors.BadInput):
            return
        self._gates.record_probe_success(node)

    def _get_connection(self, name: str, syncs: bool = False) -> redis.Redis:
        """Return the node's connections. syncs: those whose writes wait for a disk, with a longer timeout."""
        url = self.get_topology().get_node(name).url
        with self._lock:
            known = self._nodes.get((name, syncs))
            if known is None or known[0] != url:
                seconds = max(self._timeout_seconds, SYNC_TIMEOUT_SECONDS) if syncs else self._timeout_seconds
                client = redis.Redis.from_url(add_login(url), **_build_fail_fast_options(seconds))
                known = self._nodes[name, syncs] = (url, client)
            return known[1]

    def _watch_queue(self, queue: str) -> None:
        """Include the pause and the throttling of a queue in all further reads."""
        if queue not in self._published_to:
            self._published_to += (queue,)
            self._refresh()

    def _refresh(self) -> None:
        """Read the topology, and the pauses and the throttling of the queues published to.

        The old values are kept if the control server is unavailable and there are old ones. The old topology is also
        kept if the new one can't be read.
        """
        try:
            names = pausing.build_pause_keys(self._published_to, pausing.INTAKE)
            pipe = self._control.pipeline(transaction=False)
            pipe.mget(keys.TOPOLOGY, *names)
            for name in throttling.build_throttle_keys(self._published_to):
                pipe.pttl(name)
            for queue in self._published_to:
                pipe.hgetall(keys.FAIRNESS.build(queue))
            (text, *pauses), *rest = pipe.execute()
            left_ms, fair = rest[: len(self._published_to)], rest[len(self._published_to) :]
        except (redis.RedisError, OSError) as error:
            self._refreshed_at = self._monotonic()
            # The control server is unavailable: a pause then ends by our own clock.
            self._paused = {n: pause for n, pause in self._paused.items() if self._clock() < pause.until}
            if self._known.latest is None:
                raise errors.ControlUnavailable(
                    f"The control server is not responding ({errors.describe_connection_error(error)})."
                ) from error
            return
        now = self._refreshed_at = self._monotonic()
        left = throttling.read_left_seconds(self._published_to, left_ms)
        self._throttled_until = {queue: now + seconds for queue, seconds in left.items()}
        self._throttle_seen_at = now if left else self._throttle_seen_at
        self._paused = pausing.read(self._published_to, pauses)
        read = {
            queue: fairness.read_fairness(stored, self._clock())
            for queue, stored in zip(self._published_to, fair, strict=True)
        }
        self._fairness = {queue: found for queue, found in read.items() if found is not None}
        self._known.read(text)


class Publishing:
    """One call of publish: flushes in flight, what they stored, and where a failed one goes next.

    A node has one flush of a call in flight at a time. If two were sent on two connections, the later one could arrive
    first, and a reader of the container, who takes events in order, would find them late.
    """

    def __init__(self, client: Client, queue: str) -> None:
        self._client, self._queue = client, queue
        self._durability = client.get_topology().queue(queue).durability
        self._flights: dict[Future[Exception | None], tuple[str, list[EncodedBlock], frozenset[str]]] = {}
        self._by_container: dict[str, int] = {}
        self._blocks = self._rerouted = 0
        self._is_stuck = False  # some blocks have no container left to go to

    def run(self, batches: Iterable[pa.RecordBatch]) -> PublishResult:
        """Cut, encode, and send the batches."""
        return self.run_blocks(self._encode_blocks(batches))

    def run_blocks(self, blocks: Iterable[EncodedBlock]) -> PublishResult:
        """Distribute the blocks, send them in flushes per node, and wait until all are stored."""
        try:
            self._gather(blocks)
        finally:
            # Also if an input fails half-way: what is in flight is stored or sent elsewhere, and counted.
            while self._flights:
                self._land()
            events = sum(self._by_container.values())
            published = PublishResult(events, self._blocks, dict(self._by_container), self._rerouted, self._durability)
            self._client.count_stored(self._queue, published)
        if self._is_stuck:
            raise errors.NoContainerAvailable(
                f"No container of queue {self._queue} accepts events now: every node is down or full. "
                "Start a node or free its memory, then publish again. Unstored events were not acknowledged.",
                published,
            )
        return published

    def _gather(self, blocks: Iterable[EncodedBlock]) -> None:
        """Gather blocks per node, and launch each flush when it is large enough."""
        gathered: dict[str, list[EncodedBlock]] = {}
        size_bytes: dict[str, int] = {}
        for block, node in self._spread(blocks):
            flush = gathered.setdefault(node, [])
            flush.append(block)
            size_bytes[node] = size_bytes.get(node, 0) + block.size_bytes
            if self._is_due(node, len(flush), size_bytes[node]):
                self._launch(node, gathered.pop(node))
                size_bytes[node] = 0
        for node, flush in gathered.items():
            self._launch(node, flush)

    def _is_due(self, node: str, blocks: int, size_bytes: int) -> bool:
        """Return whether a flush of this size is sent now."""
        if blocks < FLUSH_BLOCKS and size_bytes < FLUSH_BYTES:
            return False
        if not DURABILITIES[self._durability].waits or blocks >= MAX_SYNC_BLOCKS or size_bytes >= MAX_SYNC_BYTES:
            return True
        return all(busy != node or flight.done() for flight, (busy, _, _) in self._flights.items())

    def _encode_blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedBlock]:
        rows = CHUNK_BLOCKS * BLOCK_EVENTS
        ids = self._client.ids
        for batch in batches:
            self._client.sample(self._queue, batch)
            for start in range(0, batch.num_rows, rows):
                for lane, part in self._client.split_lanes(self._queue, batch.slice(start, rows)):
                    yield from cut(part, partial(build_lane_id, lane, ids) if lane else ids)

    def _spread(self, blocks: Iterable[EncodedBlock]) -> Iterator[tuple[EncodedBlock, str]]:
        """Yield each block with its node, chosen for a few blocks at a time, so that a failure is seen soon."""
        chosen: deque[str] = deque()
        for block in blocks:
            if not chosen:
                self._client.wait_while_throttled(self._queue)
                chosen.extend(self._client.choose(self._queue, CHUNK_BLOCKS))
                self._is_stuck = self._is_stuck or not chosen
            if self._is_stuck:
                return
            yield block, chosen.popleft()

    def _launch(self, node: str, blocks: list[EncodedBlock]) -> None:
        while any(busy == node for busy, _, _ in self._flights.values()):
            self._land()
        self._send(node, blocks, frozenset())

    def _send(self, node: str, blocks: list[EncodedBlock], refused: frozenset[str]) -> None:
        future = self._client.launch(self._queue, node, blocks)
        self._flights[future] = (node, blocks, refused)

    def _land(self) -> None:
        """Wait until a flush has come back; count what arrived, and send elsewhere what failed."""
        done, _ = wait(self._flights, return_when=FIRST_COMPLETED)
        for future in done:
            node, blocks, refused = self._flights.pop(future)
            if future.result() is None:
                events = sum(block.events for block in blocks)
                self._by_container[node] = self._by_container.get(node, 0) + events
                self._blocks += len(blocks)
            else:
                self._reroute(blocks, refused | {node})

    def _reroute(self, blocks: list[EncodedBlock], refused: frozenset[str]) -> None:
        """Send the same blocks, under the same ids, to another container that has not rejected them."""
        nodes = self._client.choose(self._queue, 1, refused)
        if not nodes:
            self._is_stuck = True
            return
        self._rerouted += sum(block.events for block in blocks)
        self._send(nodes[0], blocks, refused)


def build_lane_id(lane: int, ids: Callable[[], str]) -> str:
    """Return the ID of a block of diverted events."""
    return f"{lane}~{ids()}"


def _build_fail_fast_options(timeout_seconds: float) -> ConnectionOptions:
    """Return options of a connection that never repeats a command: the client decides what is repeated."""
    return {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "retry": None,
        "health_check_interval": 0,
    }
