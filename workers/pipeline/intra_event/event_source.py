"""The Spark source of a replica's events. Each task reads the ranges that its batch's assignment gives it."""

import json
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from workers.pipeline.declaration.monitored import MonitoredQuantile
from workers.pipeline.dispatch.batch_assignment import BatchAssignment
from workers.pipeline.events.attributes import Attribute
from workers.pipeline.events.connections import control_of, get_nodes
from workers.pipeline.events.containers import Faults, apply_layout, merge_blocks, read_range
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.events.layout import Layout
from workers.pipeline.intra_event.monitor import MonitorStore, Sketches

READING_SECONDS = 10.0  # time limit for the answer of a node


def encode_layout(layout: Layout) -> str:
    """Return a layout as an option of the source."""
    attributes = [[attribute.name, attribute.kind, attribute.required] for attribute in layout.attributes]
    return json.dumps([list(layout.columns), attributes, list(layout.criteria)])


def encode_monitored(monitored: tuple[MonitoredQuantile, ...]) -> str:
    """Return the monitored quantiles as an option of the source."""
    return json.dumps([list(vars(criterion).values()) for criterion in monitored])


def _decode_layout(option: str) -> Layout:
    columns, attributes, criteria = json.loads(option)
    return Layout(tuple(columns), tuple(Attribute(*attribute) for attribute in attributes), tuple(criteria))


class EventSource(DataSource):
    """The data source of a replica's events.

    Options: control (URL of the control server), application, replica, layout (`layout_option`), monitored
    (`encode_monitored`), patience (seconds for which a read waits for a node to come back), tasks (number of readers).
    """

    @classmethod
    def name(cls) -> str:
        return "weir_events"

    def schema(self) -> str:
        return _decode_layout(self.options["layout"]).sql

    def reader(self, schema: StructType) -> "EventReader":
        return EventReader(dict(self.options))


class EventReader(DataSourceReader):
    """The plan does not contain the ranges: partition i reads the ranges of the assignment's task i."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._layout = _decode_layout(options["layout"])
        self._monitored = tuple(MonitoredQuantile(*load) for load in json.loads(options["monitored"]))

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in range(int(self._options["tasks"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assignment = BatchAssignment.get_current()
        nodes, patience_seconds = get_nodes(READING_SECONDS), float(self._options["patience"])
        faults = Faults(assignment.ahead_us, time.time_ns() // 1000)
        sketches = Sketches(self._monitored)
        ranges = assignment.tasks[partition.value]
        blocks = (each for part in ranges for each in read_range(nodes, part, patience_seconds, faults))
        for lot in merge_blocks(blocks):
            rows = apply_layout(lot, self._layout, faults)
            sketches.add(rows)
            yield self._layout.add_criteria(rows, assignment.criteria)
        self._keep(assignment, partition.value, faults, sketches)

    def _keep(self, assignment: BatchAssignment, task: int, faults: Faults, sketches: Sketches) -> None:
        application, replica = self._options["application"], self._options["replica"]
        control = control_of(self._options["control"])
        if faults.rows:
            FaultStore(control, application).keep(replica, assignment.tick, assignment.attempt, faults)
        if sketches.seen:
            writer = f"{replica}:{assignment.tick}:{task}"
            MonitorStore(control, application).keep(sketches, writer, time.time())
