"""The Spark source: reads pipeline queues out of their containers by stream id, trims what is finished.

Offsets are `workers.pipeline.offset.Offset`. Spark plans a batch (`latestOffset`), writes its offset into the
checkpoint, then reads it; whatever happens later, the same batch is read again with the same ranges, controls
and watermark.
"""

import json
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from workers.pipeline.containers import Nodes, Range, merged, read_range
from workers.pipeline.controls import Controls
from workers.pipeline.offset import Offset
from workers.pipeline.planning import Planning

FORMAT = "weir_segments"
COLUMNS = (
    "id string, time timestamp, type string, source string, key string, value double, attributes string, "
    "queue string, node string, block string, published timestamp"
)


class Task(InputPartition):
    """What one Spark task reads."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class SegmentSource(DataSource):
    """Options: control (URL of the control server), queues (comma separated), controls (JSON, the defaults),
    hold (a key: while it is there nothing is admitted),
    patience (seconds a planned read waits for a node to come back)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> "SegmentReader":  # noqa: N802
        return SegmentReader(dict(self.options))


class SegmentReader(DataSourceStreamReader):
    """Plans and reads. One instance lives beside the driver and plans; copies of it read in the tasks."""

    def __init__(self, options: dict[str, str]) -> None:
        self._control_url = options["control"]
        self._queues = options["queues"].split(",")
        self._defaults = Controls().changed(json.loads(options["controls"]))
        self._hold_key = options["hold"]
        self._patience_seconds = float(options["patience"])
        self._planning: Planning | None = None

    def initialOffset(self) -> dict:  # noqa: N802
        return Offset(controls=self._defaults).to_document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:  # noqa: N802
        """The next batch's end; `start` when there is nothing new, also when only the controls changed."""
        offset = Offset.from_document(start)
        end = self._plan().next(offset)
        # Spark compares the texts: an unchanged offset must be the very same document.
        return start if end is offset else end.to_document()

    def partitions(self, start: dict, end: dict) -> list[Task]:
        ranges = self._plan().tasks(Offset.from_document(start), Offset.from_document(end))
        return [Task(part) for part in ranges]

    def read(self, partition: Task) -> Iterator[pa.RecordBatch]:
        nodes = Nodes(timeout_seconds=10.0)
        try:
            yield from merged(
                batch
                for part in partition.ranges
                for batch in read_range(nodes, part, self._patience_seconds)
            )
        finally:
            nodes.close()

    def commit(self, end: dict) -> None:
        """Called when the batch after is planned, so this one is finished for good: what it read may go."""
        self._plan().trim(Offset.from_document(end))

    def stop(self) -> None:
        if self._planning:
            self._planning.close()

    def _plan(self) -> "Planning":
        if self._planning is None:
            self._planning = Planning(self._control_url, self._queues, self._defaults, self._hold_key)
        return self._planning

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_planning": None}
