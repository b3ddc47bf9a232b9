"""The dispatcher: what is new in the containers, how much of it is admitted, and which replica processes it.

It runs in the driver, a few times per second. Events that are not admitted wait in their container; none is dropped. A
queue whose consumption is paused is not dispatched, and event time waits for it, so that none of its events is late
afterwards. The admission limits are the room in the result queue, the flow loop's `admit_events_per_second` and
`reserve_bytes`, and `admit_events_per_batch`.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping

from common.errors import BadInput
from common.stored_document import replace_fields
from queues import keys, pausing
from queues.control.connection import connect
from queues.control.replies import expect_bytes
from queues.events.block import BLOCK_EVENTS
from queues.topology import KnownTopology, Topology
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.admission import AdmissionLimits
from workers.pipeline.dispatch.arrivals import ArrivalWatch
from workers.pipeline.dispatch.assignment import MIN_PIECE_EVENTS, Dispatches, divide
from workers.pipeline.dispatch.cursor import BEGINNING, Cursor, Entry, Producers, Scan, admit, advance, close
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.events.containers import UNREACHABLE, Nodes

SETTLING_SECONDS = 1.0
TRIMMING_SECONDS = 0.5
# Within this time, the control server's file is synced, even if the disk needs two seconds for it.
CONTROL_SYNC_SECONDS = 3.0
# A batch of a few events costs as much as one of some thousands. On a quiet plant, events are therefore
# gathered, for a time that is short compared with the time for which they wait for late events anyway.
GATHERING_SHARE_OF_LATENESS = 0.4
MIN_GATHERING_SECONDS, MAX_GATHERING_SECONDS = 0.5, 2.0
GATHERING_SHARE_OF_LATENCY = 0.1  # if the application declares a latency
# The pause between two steps is short while many events arrive: for BUSY_SECONDS after a dispatch at a high rate. After
# it, the next step starts when an event arrives, or after BUSY_PAUSE_SECONDS.
MIN_PAUSE_SECONDS, BUSY_PAUSE_SECONDS, CALM_PAUSE_SECONDS = 0.005, 0.02, 0.2
BUSY_SECONDS = 1.0
BUSY_EVENTS_PER_SECOND = 2_000.0

log = logging.getLogger("weir.pipeline")


def compute_gathering_seconds(lateness_seconds: float, latency_seconds: float | None = None) -> float:
    """Return how long the dispatcher waits for more events if there are only a few, in seconds.

    The result is a share of the declared latency, or of the lateness if no latency is declared.
    """
    if latency_seconds is not None:
        return min(MAX_GATHERING_SECONDS, GATHERING_SHARE_OF_LATENCY * latency_seconds)
    share = GATHERING_SHARE_OF_LATENESS * lateness_seconds
    return min(MAX_GATHERING_SECONDS, max(MIN_GATHERING_SECONDS, share))


class SyncedIds:
    """Positions in containers, and since when the control server has them: its file is synced every second.

    A durable queue keeps its events until the control server's disk has their results.
    """

    def __init__(self) -> None:
        self._recorded: deque[tuple[float, Mapping[str, str]]] = deque()

    def record(self, ids: Mapping[str, str], now_seconds: float) -> Mapping[str, str]:
        """Record the present positions, and return those of CONTROL_SYNC_SECONDS ago; empty if there are none."""
        self._recorded.append((now_seconds, ids))
        before = now_seconds - CONTROL_SYNC_SECONDS
        while len(self._recorded) > 1 and self._recorded[1][0] <= before:
            self._recorded.popleft()
        recorded_seconds, synced = self._recorded[0]
        return synced if recorded_seconds <= before else {}


class Dispatcher:
    """The state of one run: connections, the allowance, and since when a node, or all nodes, are silent.

    producers: all producers of the queues, if they are declared. Event time then follows their order.
    """

    def __init__(
        self,
        control_url: str,
        application: str,
        queues: tuple[str, ...],
        replicas: tuple[str, ...],
        defaults: Controls,
        producers: Producers | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._control = connect(control_url, socket_timeout=5.0)
        self._nodes, self._arrivals = Nodes(timeout_seconds=1.0), ArrivalWatch()
        self._queues, self._replicas, self._defaults = queues, replicas, defaults
        self._producers: Producers = producers or {}
        self._controls_key = keys.PIPELINE_CONTROLS.build(application)
        self._dispatches = Dispatches(self._control, application)
        self._given = self._dispatches.list_replicas()  # includes those of earlier versions
        self._results = ResultQueue(self._control, application)
        self._monotonic, self._clock = monotonic, clock
        self._down_since: dict[str, float] = {}
        self._idle_since = self._trimmed_at = monotonic()
        self._stepped_at = self._dispatched_at = self._busy_until = -math.inf
        self._has_dispatched_all = False  # whether no event waited in a container after the last step
        self._admission = AdmissionLimits(monotonic())
        self._trimmed: dict[str, str] = {}
        self._synced_ids = SyncedIds()
        self._paused: dict[str, pausing.Pause] = {}
        self._known = KnownTopology()
        self.cursor = self._dispatches.load_cursor() or Cursor(controls=defaults)
        self._unheard: Cursor | None = None  # of a dispatch whose response was lost
        self.admitted_events = 0
        self.stall_reason: str | None = None
        self.skipped: tuple[str, ...] = ()

    @property
    def pause_seconds(self) -> float:
        """Return the time until the next step may start."""
        now = self._monotonic()
        if now >= self._busy_until:
            return max(0.0, CALM_PAUSE_SECONDS - (now - self._stepped_at))
        controls = self.cursor.controls
        gathering = compute_gathering_seconds(controls.lateness_seconds, controls.latency_seconds)
        pause = max(MIN_PAUSE_SECONDS, min(BUSY_PAUSE_SECONDS, gathering))
        return max(0.0, pause - (now - max(self._stepped_at, self._dispatched_at)))

    def await_events(self) -> None:
        """Wait for the next event while many events arrive, for at most BUSY_PAUSE_SECONDS."""
        topology = self._known.latest
        if topology is None or not self._has_dispatched_all or self._monotonic() >= self._busy_until:
            return
        read = [queue for queue in self._queues if queue not in self._paused]
        known = {
            node.url: {queue: self.cursor.ids.get(f"{queue}/{node.name}", BEGINNING) for queue in read}
            for node in topology.nodes.values()
            if node.name not in self.skipped
        }
        self._arrivals.await_entry(known, BUSY_PAUSE_SECONDS)

    def step(self, full: bool = False) -> int:
        """Make one dispatch if there is something new, and return the number of events.

        `stall_reason` then says why nothing would be dispatched, and `skipped` names the nodes that do not answer.
        full: there is no room for the complex events already found, so nothing is dispatched. Raises
        `DispatcherOvertaken` and `RedisError`.
        """
        self._stepped_at, self._has_dispatched_all = self._monotonic(), False
        if full:
            self.stall_reason = "the outbox of complex events is full: their queues accept no events"
            return 0
        pauses = pausing.build_pause_keys(self._queues, pausing.CONSUMPTION)
        answer = expect_bytes(self._control).mget([self._controls_key, keys.TOPOLOGY, *pauses])
        stored, topology_text, *replies = answer
        self._paused = pausing.read(self._queues, replies)
        if self._unheard is not None:
            # Continue after a dispatch whose response was lost, if it was committed: no other process made it.
            if self._dispatches.load_cursor() == self._unheard:
                self.cursor = self._unheard
            self._unheard = None
        try:
            controls = Controls.read(stored, self._defaults).freeze(self._clock())
        except BadInput as error:
            # Invalid controls change nothing: the dispatcher continues with those of the previous dispatch.
            log.warning("%s is rejected: %s", self._controls_key, error)
            controls = self.cursor.controls
        topology = self._known.read(topology_text)
        room, now = self._results.measure_room(), self._monotonic()
        limit, self.stall_reason = self._admission.compute_limit(controls, room, now, self._clock())
        beyond_limit = self._admission.count_stall_events(controls, room, now, self._clock())
        if now - self._trimmed_at >= TRIMMING_SECONDS:
            self._trim(topology)
            self._trimmed_at = now
        if max(limit, beyond_limit) <= 0:
            return 0
        scans, down = self._scan(topology, max(limit, beyond_limit))
        self.skipped = tuple(sorted(down))
        if down:
            self.stall_reason = f"{', '.join(self.skipped)} can't be read"
        elif self._paused:
            self.stall_reason = f"consumption of {', '.join(self._paused)} is paused"
        elif limit >= beyond_limit:
            self.stall_reason = None
        is_complete = all(scan.complete for scan in scans.values())
        if is_complete:
            events = sum(entry.events for scan in scans.values() for entry in scan.entries)
            gathering = compute_gathering_seconds(controls.lateness_seconds, controls.latency_seconds)
            is_soon = now - self._dispatched_at < gathering
            if 0 < events < MIN_PIECE_EVENTS and is_soon:
                return 0  # still too few events for a batch
        events = self._dispatch_events(topology, scans, down, controls, max(limit, beyond_limit))
        if limit >= beyond_limit:
            self._admission.spend(events)
        self._has_dispatched_all = is_complete
        return events

    def _dispatch_events(
        self, topology: Topology, scans: dict[str, Scan], down: set[str], controls: Controls, limit: int
    ) -> int:
        start, now, passed = self.cursor, self._monotonic(), 1.0
        # Event time waits for containers on nodes that are down, for a limited time, and for those of paused queues.
        self._down_since = {node: self._down_since.get(node, now) for node in down}
        recent = {node for node, since in self._down_since.items() if now - since < controls.hold_seconds}
        known = set(self.cursor.ids).union(
            f"{queue}/{node}"
            for queue in self._queues
            if queue in topology.queues
            for node in topology.queues[queue].points
        )
        down_containers = {f"{queue}/{node}" for queue in self._queues for node in recent}
        holding = {name for name in known if name in down_containers or name.partition("/")[0] in self._paused}
        admitted = admit(scans, limit, start.tick)
        now_us = round(self._clock() * 1_000_000)
        start = self._register_producers(start, admitted)
        end = advance(start, scans, admitted, controls, now_us, down, holding, self._producers)
        if end is start:
            if not holding and now - self._idle_since >= controls.lateness_seconds + SETTLING_SECONDS:
                end = close(start, controls, now_us)
            if end is start:
                return 0
        else:
            passed = now - self._dispatched_at
            self._idle_since = self._dispatched_at = now
        assignments, owed = divide(start, end, admitted, controls.compute_shares(self._replicas), self._clock())
        end = replace_fields(end, owed=owed)
        self._unheard = end
        self._dispatches.commit(start, end, assignments)
        self.cursor, self._unheard = end, None
        events = sum(assignment.events for assignment in assignments.values())
        self.admitted_events += events
        if events >= BUSY_EVENTS_PER_SECOND * min(1.0, passed):
            self._busy_until = now + BUSY_SECONDS
        return events

    def _register_producers(self, start: Cursor, admitted: Mapping[str, tuple[Entry, ...]]) -> Cursor:
        """Return the cursor with the producers' newest sessions, if a block belongs to an unknown session.

        A producer registers its session before its first block.
        """
        blocks: dict[str, list[str]] = {}
        for name, entries in admitted.items() if self._producers else ():
            blocks.setdefault(name.partition("/")[0], []).extend(entry.block_id for entry in entries)
        if all(start.producers.knows(queue, block_ids) for queue, block_ids in blocks.items()):
            return start
        sessions: dict[str, str] = {}
        for queue, producers in self._producers.items():
            newest = expect_bytes(self._control).hmget(keys.PRODUCER_SESSIONS.build(queue), list(producers))
            named = zip(producers, newest, strict=True)
            sessions |= {f"{queue}/{producer}": session.decode() for producer, session in named if session}
        return replace_fields(start, producers=start.producers.register(self._producers, sessions))

    def _scan(self, topology: Topology, limit: int) -> tuple[dict[str, Scan], set[str]]:
        """Return the new entries of each container.

        Every node is queried, including those without points: they may contain events from before the points moved.
        """
        scans: dict[str, Scan] = {}
        down: set[str] = set()
        read = [queue for queue in self._queues if queue not in self._paused]
        for node, queue in ((node, queue) for node in topology.nodes.values() for queue in read):
            container = f"{queue}/{node.name}"
            if node.name in down:
                continue
            try:
                # One block more than the limit shows whether anything follows the blocks within the limit.
                after = self.cursor.ids.get(container, BEGINNING)
                segment = self._nodes.get_segment(queue, node.url)
                scanned = segment.scan(after, limit + BLOCK_EVENTS, anew=True)
            except UNREACHABLE:
                down.add(node.name)
                continue
            if scanned and _choose_earlier_id(scanned[0].entry_id, after) != after:
                # Its node came back empty, with an earlier clock: its new entries have smaller ids than the old ones.
                log.warning("%s is a new stream; it is read from its beginning.", container)
                self.cursor = replace_fields(self.cursor, ids={**self.cursor.ids, container: BEGINNING})
                self._trimmed.pop(container, None)
            entries = tuple(Entry(*item) for item in scanned)
            scans[container] = Scan(entries, sum(entry.events for entry in entries) <= limit)
        return scans, down

    def _trim(self, topology: Topology) -> None:
        """Remove the containers' entries whose results are in the queue, and their assignments.

        Of durable queues, only those whose results the control server has synced to its disk by now.
        """
        through = self._find_finished_ids()
        synced = self._synced_ids.record(through, self._monotonic())
        away: set[str] = set()
        for container, finished_id in through.items():
            queue, node = container.split("/")
            if node in away or node not in topology.nodes:
                continue
            spec = topology.queues.get(queue)
            is_durable = spec is not None and spec.waits_for_disk
            entry_id = synced.get(container, BEGINNING) if is_durable else finished_id
            if entry_id in (BEGINNING, self._trimmed.get(container)):
                continue
            try:
                self._nodes.get_segment(queue, topology.nodes[node].url).trim(entry_id)
                self._trimmed[container] = entry_id
            except UNREACHABLE:
                away.add(node)  # trimming removes everything up to an id, so the next trim makes up for it

    def _find_finished_ids(self) -> dict[str, str]:
        """Return the last entry of each container up to which all results are in the queue."""
        through = dict(self.cursor.ids)
        published = self._results.measure_room().published
        for name in {*self._replicas, *self._given, *published}:
            done = published.get(name, 0)
            self._dispatches.forget(name, done)
            for part in (part for dispatch in self._dispatches.list_after(name, done) for part in dispatch.parts):
                through[part.container] = _choose_earlier_id(through.get(part.container, part.after), part.after)
        return through

    def is_idle(self) -> bool:
        """Return whether every dispatch has its result in the queue."""
        return self._results.measure_room().in_flight_events == 0

    def close(self) -> None:
        self._nodes.close()
        self._arrivals.close()
        self._control.close()


def _choose_earlier_id(one: str, other: str) -> str:
    """Return the smaller of two stream ids."""
    return min(one, other, key=lambda entry_id: tuple(int(part) for part in entry_id.split("-")))
