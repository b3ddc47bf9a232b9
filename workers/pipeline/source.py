"""The two Spark sources: what a replica was given to work, and what all replicas have made of it.

Spark plans a batch (`latestOffset`), writes its offset into the checkpoint, then works it; whatever happens
later, the same batch is worked again with the same assignments or results, controls and watermark.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import redis
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from queues.topology import KEY as TOPOLOGY
from queues.topology import Topology
from workers.pipeline.assignment import Assignment
from workers.pipeline.attributes import Attribute
from workers.pipeline.combining import Combined, Outstanding, barrier, combine
from workers.pipeline.containers import (
    UNREACHABLE,
    Faults,
    Layout,
    Nodes,
    Range,
    laid_out,
    merged,
    read_range,
)
from workers.pipeline.controls import Controls
from workers.pipeline.cursor import Cursor
from workers.pipeline.dispatches import Dispatches
from workers.pipeline.faults import FaultStore
from workers.pipeline.monitor import MonitorStore, Sketches
from workers.pipeline.monitored import Monitored
from workers.pipeline.result_queue import ResultQueue

EVENTS_PER_TASK = 20_000  # a task costs some milliseconds: a small batch is read by one


def layout_option(layout: Layout) -> str:
    """A layout as an option of a source."""
    attributes = [[each.name, each.kind, each.required] for each in layout.attributes]
    return json.dumps([list(layout.columns), attributes])


def monitored_option(monitored: tuple[Monitored, ...]) -> str:
    """What is monitored, as an option of a source."""
    return json.dumps([list(vars(each).values()) for each in monitored])


def _layout(option: str) -> Layout:
    columns, attributes = json.loads(option)
    return Layout(tuple(columns), tuple(Attribute(*each) for each in attributes))


class _Reader(DataSourceStreamReader):
    """Plans and reads. One instance lives beside the driver and plans; copies of it read in the tasks."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._application = options["application"]
        self._connected: redis.Redis | None = None

    @property
    def _control(self) -> redis.Redis:
        if self._connected is None:
            self._connected = redis.Redis.from_url(self._options["control"], socket_timeout=10.0)
        return self._connected

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def commit(self, end: dict) -> None:
        """Called when the batch after is planned."""

    def stop(self) -> None:
        if self._connected is not None:
            self._connected.close()

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_connected": None}


class Task(InputPartition):
    """What one Spark task reads."""

    def __init__(self, ranges: tuple[Range, ...], tick: int, ahead_us: int) -> None:
        super().__init__(ranges)
        self.ranges, self.tick, self.ahead_us = ranges, tick, ahead_us


class AssignmentSource(DataSource):
    """Options: control (URL of the control server), application, replica, layout (`layout_option`), monitored
    (`monitored_option`), patience (seconds a read waits for a node to come back).
    """

    @classmethod
    def name(cls) -> str:
        return "weir_assignments"

    def schema(self) -> str:
        return _layout(self.options["layout"]).sql

    def streamReader(self, schema: StructType) -> "AssignmentReader":  # noqa: N802
        return AssignmentReader(dict(self.options))


class AssignmentReader(_Reader):
    """Offsets: {"from": tick, "tick": tick}, the batch's first and last dispatch."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._replica = options["replica"]
        self._layout = _layout(options["layout"])
        self._monitored = tuple(Monitored(*each) for each in json.loads(options["monitored"]))

    def initialOffset(self) -> dict:  # noqa: N802
        return {"from": 0, "tick": 0}

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:  # noqa: N802
        """As many assignments as make a batch, at least one; `start` when there is none."""
        waiting = Dispatches(self._control, self._application).after(self._replica, start["tick"], 64)
        taken, events = 0, 0
        for each in waiting:
            events += each.events
            if taken and events > each.controls.admit_events_per_batch:
                break
            taken += 1
        return {"from": waiting[0].tick, "tick": waiting[taken - 1].tick} if taken else start

    def partitions(self, start: dict, end: dict) -> list[Task]:
        """The batch's ranges on as many tasks as it is worth, at most `parallelism`. What is published is
        not read again: its containers may have been trimmed.
        """
        published = ResultQueue(self._control, self._application).room().published.get(self._replica, 0)
        given = Dispatches(self._control, self._application).after(
            self._replica, max(start["tick"], published)
        )
        given = [each for each in given if each.tick <= end["tick"]]
        if not given:
            return []
        controls = given[-1].controls
        nodes = Nodes(timeout_seconds=1.0)
        try:
            groups = _tasks(nodes, self._ranges(given), controls.parallelism)
        finally:
            nodes.close()
        return [Task(tuple(group), end["tick"], controls.ahead_us) for group in groups if group]

    def _ranges(self, given: list[Assignment]) -> list[tuple[Range, int]]:
        topology = Topology.from_json(self._control.get(TOPOLOGY))
        found = []
        for part in (part for each in given for part in each.parts):
            queue, node = part.container.split("/")
            # A node that was taken out of the topology is gone for good, and what it held with it.
            if node in topology.nodes:
                whole = Range(queue, node, topology.nodes[node].url, part.after, part.through)
                found.append((whole, part.events))
        return found

    def read(self, partition: Task) -> Iterator[pa.RecordBatch]:
        nodes = Nodes(timeout_seconds=10.0)
        faults = Faults(partition.ahead_us, time.time_ns() // 1000)
        patience_seconds = float(self._options["patience"])
        sketches = Sketches(self._monitored)
        blocks = (each for part in partition.ranges for each in read_range(nodes, part, patience_seconds))
        try:
            for lot in merged(blocks):
                rows = laid_out(lot, self._layout, faults)
                sketches.add(rows)
                yield rows
            if faults.found:
                FaultStore(self._control, self._application).keep(self._replica, partition.tick, faults)
            if sketches.found:
                writer = f"{self._replica}:{partition.tick}:{partition.ranges[0]}"
                MonitorStore(self._control, self._application).keep(sketches, writer, time.time())
        finally:
            nodes.close()
            self.stop()


def _tasks(nodes: Nodes, ranges: list[tuple[Range, int]], most: int) -> list[list[Range]]:
    """Ranges on tasks, each to the one with the fewest events so far, the largest first."""
    total = sum(events for _, events in ranges)
    wanted = min(most, 1 + total // EVENTS_PER_TASK)
    if wanted > len(ranges):
        ranges = [piece for part in ranges for piece in _cut(nodes, *part, total // wanted)]
    groups: list[list[Range]] = [[] for _ in range(wanted)]
    loads = [0] * wanted
    for part, events in sorted(ranges, key=lambda item: -item[1]):
        lightest = loads.index(min(loads))
        groups[lightest].append(part)
        loads[lightest] += events
    return groups


def _cut(nodes: Nodes, whole: Range, events: int, piece_events: int) -> list[tuple[Range, int]]:
    """A range in pieces of about `piece_events`, when its container can be asked now."""
    try:
        entries = nodes.segment(whole.queue, whole.url).survey(whole.after, events)
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


class ResultSource(DataSource):
    """Options: control, application, replicas (comma separated), controls (JSON, the defaults). It gives no
    rows: the offset says which blobs the batch reads, and its tasks read them where they are needed.
    """

    @classmethod
    def name(cls) -> str:
        return "weir_results"

    def schema(self) -> str:
        return "nothing int"

    def streamReader(self, schema: StructType) -> "ResultReader":  # noqa: N802
        return ResultReader(dict(self.options))


class ResultReader(_Reader):
    """Offsets are `workers.pipeline.combining.Combined`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._replicas = options["replicas"].split(",")
        self._defaults = Controls().changed(json.loads(options["controls"]))
        self._released: Combined | None = None

    def _release(self, done: Combined) -> None:
        """Spark plans the next batch when this one is finished for good: what it has read may go."""
        if done == self._released:
            return
        results = ResultQueue(self._control, self._application)
        for each in done.finished():
            results.release(each)
        self._released = done

    def initialOffset(self) -> dict:  # noqa: N802
        return Combined(controls=self._defaults).to_document()

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:  # noqa: N802
        before = Combined.from_document(start)
        self._release(before)
        dispatches = Dispatches(self._control, self._application)
        results = ResultQueue(self._control, self._application)
        # The order matters: what is outstanding after the cursor was read was so when it was read, or newer;
        # what is not outstanding is in the queue when the queue is looked at, last.
        cursor = dispatches.cursor() or Cursor(controls=self._defaults)
        published = results.room().published
        outstanding = {
            name: Outstanding(waiting[0].tick, waiting[0].watermark_us)
            for name in self._replicas
            if (waiting := dispatches.after(name, published.get(name, 0), 1))
        }
        settled = barrier(cursor.watermark_us, outstanding)
        most_rows = cursor.controls.combine_events_per_batch
        end = combine(before, results.after(before.taken), settled, cursor.controls, most_rows)
        # Spark compares the texts: an unchanged offset must be the very same document.
        return start if end is before else end.to_document()

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())
