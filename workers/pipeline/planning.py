"""Planning batches: what is new in the containers, what of it a batch takes, and who reads which part."""

import sys
import time
from dataclasses import replace

import redis

from queues.block import BLOCK_EVENTS
from queues.errors import BadInput
from queues.topology import KEY as TOPOLOGY
from queues.topology import Topology
from workers.pipeline import controls as steering
from workers.pipeline.containers import UNREACHABLE, Nodes, Range
from workers.pipeline.controls import Controls
from workers.pipeline.offset import BEGINNING, Offset, Survey, advance, close

EVENTS_PER_TASK = 20_000  # a task costs some milliseconds: a small batch is read by one
SETTLING_SECONDS = 1.0


class Planning:
    """What one run remembers: its connections, and since when a node, or everything, has been silent."""

    def __init__(self, control_url: str, queues: list[str], defaults: Controls, hold_key: str) -> None:
        self._control = redis.Redis.from_url(control_url, socket_timeout=5.0)
        self._nodes = Nodes(timeout_seconds=1.0)
        self._queues = queues
        self._defaults = defaults
        self._hold_key = hold_key
        self._down_since: dict[str, float] = {}
        self._quiet_since = time.monotonic()

    def next(self, start: Offset) -> Offset:
        held, stored, topology_text = self._control.mget(self._hold_key, steering.KEY, TOPOLOGY)
        controls = self._controls(stored, start)
        if held or controls.admit_events_per_batch == 0:
            return start
        topology = Topology.from_json(topology_text)
        surveys, down = self._survey(topology, start, controls)
        now = time.monotonic()
        holding = self._holding(topology, down, start, controls, now)
        end = advance(start, surveys, controls, time.time_ns() // 1000, down, holding)
        if end is not start:
            self._quiet_since = now
        elif not holding and now - self._quiet_since >= controls.lateness_seconds + SETTLING_SECONDS:
            return close(start)
        return end

    def _controls(self, stored: bytes | None, start: Offset) -> Controls:
        try:
            return Controls.read(stored, self._defaults)
        except BadInput as error:
            # Wrong controls change nothing: the batch goes on with those of the one before.
            print(f"{steering.KEY} is not taken: {error}", file=sys.stderr)  # noqa: T201
            return start.controls

    def _survey(
        self, topology: Topology, start: Offset, controls: Controls
    ) -> tuple[dict[str, Survey], set[str]]:
        """Per container what is new. Every node is asked, also one without points: it may hold what came
        before they moved.
        """
        surveys: dict[str, Survey] = {}
        down: set[str] = set()
        limit = controls.admit_events_per_batch
        for node, queue in ((node, queue) for node in topology.nodes.values() for queue in self._queues):
            container = f"{queue}/{node.name}"
            if node.name in down:
                continue
            try:
                # One block more than the limit: what ends within the limit then has nothing behind it.
                found = self._nodes.segment(queue, node.url).survey(
                    start.ids.get(container, BEGINNING), limit + BLOCK_EVENTS
                )
            except UNREACHABLE:
                down.add(node.name)
                continue
            entries = tuple((item.entry_id, item.events, item.newest_time_us) for item in found)
            surveys[container] = Survey(entries, sum(entry[1] for entry in entries) <= limit)
        return surveys, down

    def _holding(
        self, topology: Topology, down: set[str], start: Offset, controls: Controls, now: float
    ) -> set[str]:
        """Containers on nodes that are down, for as long as event time waits for them."""
        self._down_since = {node: self._down_since.get(node, now) for node in down}
        recent = {node for node, since in self._down_since.items() if now - since < controls.hold_seconds}
        containers = {f"{queue}/{node}" for queue in self._queues for node in recent}
        known = set(start.ids) | {
            f"{queue}/{node}"
            for queue in self._queues
            if queue in topology.queues
            for node in topology.queues[queue].points
        }
        return containers & known

    def tasks(self, start: Offset, end: Offset) -> list[tuple[Range, ...]]:
        """The batch's ranges on as many tasks as it is worth, at most `parallelism`."""
        topology = Topology.from_json(self._control.get(TOPOLOGY))
        ranges = [
            (Range(queue, node, topology.nodes[node].url, after, through), end.events.get(container, 0))
            for container, (after, through) in end.ranges(start).items()
            for queue, node in [container.split("/")]
            # A node that was taken out of the topology is gone for good, and what it held with it.
            if node in topology.nodes
        ]
        wanted = min(end.controls.parallelism, 1 + end.events_total // EVENTS_PER_TASK)
        if wanted > len(ranges):
            ranges = [piece for part in ranges for piece in self._cut(*part, end.events_total // wanted)]
        return [tuple(group) for group in _even(ranges, wanted) if group]

    def _cut(self, whole: Range, events: int, piece_events: int) -> list[tuple[Range, int]]:
        """A range in pieces of about `piece_events`, when its container can be asked now."""
        try:
            entries = self._nodes.segment(whole.queue, whole.url).survey(whole.after, events)
        except UNREACHABLE:
            return [(whole, events)]
        pieces: list[tuple[Range, int]] = []
        after, gathered = whole.after, 0
        for entry in entries:
            gathered += entry.events
            if gathered >= piece_events or entry.entry_id == whole.through:
                pieces.append((replace(whole, after=after, through=entry.entry_id), gathered))
                after, gathered = entry.entry_id, 0
            if entry.entry_id == whole.through:
                return pieces
        return [*pieces, (replace(whole, after=after), gathered)]

    def trim(self, end: Offset) -> None:
        topology = Topology.from_json(self._control.get(TOPOLOGY))
        for container, through in end.ids.items():
            queue, node = container.split("/")
            if node not in topology.nodes or through == BEGINNING:
                continue
            try:
                self._nodes.segment(queue, topology.nodes[node].url).trim(through)
            except UNREACHABLE:
                continue  # trimming goes through an id, so the next one makes up for it

    def close(self) -> None:
        self._nodes.close()
        self._control.close()


def _even(ranges: list[tuple[Range, int]], tasks: int) -> list[list[Range]]:
    """Ranges on tasks, each to the one with the fewest events so far, the largest first."""
    groups: list[list[Range]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for part, events in sorted(ranges, key=lambda item: -item[1]):
        lightest = loads.index(min(loads))
        groups[lightest].append(part)
        loads[lightest] += events
    return groups
