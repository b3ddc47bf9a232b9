"""The Spark source of a replica's events, and the ranges of containers that each task of a batch reads.

The assignment of a batch to its tasks travels with the Spark job as a local property. The plan that the job executes is
the same for every batch (`RulePlans`); only the assignment is new.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from common.stored_document import get_decoder
from workers.pipeline.events import containers
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.events.layout import Layout, MonitoredQuantile
from workers.pipeline.patterns.shedding import Shedder
from workers.pipeline.tiers.monitor import MonitorStore, Sketches

EVENTS_PER_TASK = 20_000  # a task costs some milliseconds: one task processes a small batch
_PROPERTY = "weir.batch_assignment"


@dataclass(frozen=True)
class BatchAssignment:
    """The assignment of a batch to its tasks.

    tick: of the batch. attempt: the attempt at it, as the result queue counts. tasks: the ranges of each task.
    ahead_us: how far ahead of the clock an event may be. cut: whether results are cut by key groups.
    shedder: what is dropped. criteria: name → value.
    """

    tick: int
    attempt: str
    tasks: tuple[tuple[containers.Range, ...], ...]
    ahead_us: int
    cut: bool
    shedder: Shedder
    criteria: Mapping[str, float] = field(default_factory=dict)

    def to_text(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "BatchAssignment":
        assignment: BatchAssignment = get_decoder(cls).decode(text)
        return assignment

    def attach(self, spark: SparkContext) -> None:
        """Attach the assignment to the jobs that this thread submits from now on."""
        spark.setLocalProperty(_PROPERTY, self.to_text())

    @classmethod
    def get_current(cls) -> "BatchAssignment":
        """Return the assignment of the job of this task. Raises `RuntimeError` if none is attached."""
        context = TaskContext.get()
        text = context.getLocalProperty(_PROPERTY) if context else None
        if text is None:
            raise RuntimeError("no batch assignment is attached to this job")
        return cls.from_text(text)


def on_tasks(
    nodes: containers.Nodes, ranges: Iterable[tuple[containers.Range, int]], most: int
) -> tuple[tuple[containers.Range, ...], ...]:
    """Distribute ranges, with their event counts, over as many tasks as they are worth, at most `most`.

    The largest range comes first, and each goes to the task with the fewest events so far. A range of more than half of
    a task's events is cut.
    """
    ranges = list(ranges)
    total = sum(events for _, events in ranges)
    wanted = min(most, 1 + total // EVENTS_PER_TASK)
    if wanted > 1:
        ranges = [piece for part in ranges for piece in _cut(nodes, *part, total // (2 * wanted))]
    groups: list[list[containers.Range]] = [[] for _ in range(wanted)]
    loads = [0] * wanted
    for part, events in sorted(ranges, key=lambda item: -item[1]):
        lightest = loads.index(min(loads))
        groups[lightest].append(part)
        loads[lightest] += events
    return tuple(tuple(group) for group in groups)


def _cut(
    nodes: containers.Nodes, whole: containers.Range, events: int, piece_events: int
) -> list[tuple[containers.Range, int]]:
    """Cut a range into pieces of about `piece_events`, if its container can be queried now."""
    if events <= piece_events:
        return [(whole, events)]
    try:
        entries = nodes.get_segment(whole.queue, whole.url).scan(whole.after, events)
    except containers.UNREACHABLE:
        return [(whole, events)]
    pieces: list[tuple[containers.Range, int]] = []
    after, gathered = whole.after, 0
    for entry in entries:
        gathered += entry.events
        if gathered >= piece_events or entry.entry_id == whole.through:
            pieces.append((replace(whole, after=after, through=entry.entry_id), gathered))
            after, gathered = entry.entry_id, 0
        if entry.entry_id == whole.through:
            return pieces
    return [*pieces, (replace(whole, after=after), gathered)]


READING_SECONDS = 10.0  # time limit for the answer of a node


class EventSource(DataSource):
    """The data source of a replica's events.

    Options: control (URL of the control server), application, replica, layout and monitored (JSON), patience (seconds
    for which a read waits for a node to come back), tasks (number of readers).
    """

    @classmethod
    def name(cls) -> str:
        return "weir_events"

    def schema(self) -> str:
        layout: Layout = get_decoder(Layout).decode(self.options["layout"])
        return layout.sql

    def reader(self, schema: StructType) -> "EventReader":
        return EventReader(dict(self.options))


class EventReader(DataSourceReader):
    """The plan does not contain the ranges: partition i reads the ranges of the assignment's task i."""

    def __init__(self, options: dict[str, str]) -> None:
        self._tasks = int(options["tasks"])
        self._reader = TaskReader(
            options["control"],
            options["application"],
            options["replica"],
            get_decoder(Layout).decode(options["layout"]),
            get_decoder(tuple[MonitoredQuantile, ...]).decode(options["monitored"]),
            float(options["patience"]),
        )

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(BatchAssignment.get_current(), partition.value)


@dataclass(frozen=True)
class TaskReader:
    """Reads the events of a task. Spark serializes it for the tasks. The fields are those of `EventSource`."""

    control_url: str
    application: str
    replica: str
    layout: Layout
    monitored: tuple[MonitoredQuantile, ...]
    patience_seconds: float

    def read(self, assignment: BatchAssignment, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the events of a task of the batch, and then save its faults and its sketches."""
        nodes = containers.get_nodes(READING_SECONDS)
        faults = containers.Faults(assignment.ahead_us, time.time_ns() // 1000)
        sketches = Sketches(self.monitored)
        blocks = (
            block
            for part in assignment.tasks[task]
            for block in containers.read_range(nodes, part, self.patience_seconds, faults)
        )
        for lot in containers.merge_blocks(blocks):
            rows = containers.apply_layout(lot, self.layout, faults)
            sketches.add(rows)
            yield self.layout.add_criteria(rows, assignment.criteria)
        control = containers.control_of(self.control_url)
        if faults.rows:
            FaultStore(control, self.application).keep(self.replica, assignment.tick, assignment.attempt, faults)
        if sketches.seen:
            writer = f"{self.replica}:{assignment.tick}:{task}"
            MonitorStore(control, self.application).keep(sketches, writer, time.time())
