"""The two streaming sources: the assignments of a replica, and the results of all replicas.

Spark plans a batch (`latestOffset`), writes its offset into the checkpoint, and then processes it. Whatever happens
later, the same batch is processed again with the same assignments or results, controls, and watermark. If there is
nothing to plan, the answer waits, so that a batch starts as soon as there is something to do.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import redis
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.events.containers import control_of
from workers.pipeline.tiers.combining import CombinedOffset, OutstandingDispatch, build_barrier, combine_arrived_results

NO_ROWS = "nothing int"
MAX_ASSIGNMENTS = 64  # of a batch


class _Planner(DataSourceStreamReader):
    """Runs in a process beside the driver.

    It yields no rows: the offset defines what the batch processes, and the tasks read it where they need it.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._application = options["application"]
        self._wait_seconds = float(options.get("wait_seconds", 0.0))

    @property
    def _control(self) -> redis.Redis:
        return control_of(self._options["control"])

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls this when it plans the next batch."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())

    def stop(self) -> None:
        """Do nothing: Spark calls this when the process ends."""


class AssignmentSource(DataSource):
    """The data source of a replica's assignments.

    Options: control (URL of the control server), application, replica; wait_seconds (default 0): how long the answer
    waits for something to plan.
    """

    @classmethod
    def name(cls) -> str:
        return "weir_assignments"

    def schema(self) -> str:
        return NO_ROWS

    def streamReader(self, schema: StructType) -> "AssignmentReader":  # noqa: N802
        return AssignmentReader(dict(self.options))


class AssignmentReader(_Planner):
    """Offsets: {"from": tick, "tick": tick}, the batch's first and last dispatch."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._replica = options["replica"]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"from": 0, "tick": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return an offset with as many assignments as make a batch, at least one. Return `start` if there is none."""
        dispatches = Dispatches(self._control, self._application)
        waiting = dispatches.list_after(self._replica, start["tick"], MAX_ASSIGNMENTS)
        if not waiting and self._wait_seconds:
            dispatches.await_after(self._replica, start["tick"], self._wait_seconds)
            waiting = dispatches.list_after(self._replica, start["tick"], MAX_ASSIGNMENTS)
        taken, events = 0, 0
        for container in waiting:
            events += container.events
            if taken and events > container.controls.admit_events_per_batch:
                break
            taken += 1
        return {"from": waiting[0].tick, "tick": waiting[taken - 1].tick} if taken else start


class ResultSource(DataSource):
    """The data source of the replicas' results.

    Options: control, application, replicas (comma-separated), controls (JSON, the defaults) and wait_seconds.
    """

    @classmethod
    def name(cls) -> str:
        return "weir_results"

    def schema(self) -> str:
        return NO_ROWS

    def streamReader(self, schema: StructType) -> "ResultReader":  # noqa: N802
        return ResultReader(dict(self.options))


class ResultReader(_Planner):
    """Offsets are `workers.pipeline.tiers.combining.CombinedOffset`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._replicas = options["replicas"].split(",")
        self._defaults = Controls().apply_changes(json.loads(options["controls"]))
        self._released: CombinedOffset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return CombinedOffset(controls=self._defaults).to_document()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = CombinedOffset.from_document(start)
        if before != self._released:
            # Spark plans the next batch when this one is finished for good.
            results = ResultQueue(self._control, self._application)
            for entry in before.list_finished():
                results.release(entry)
            self._released = before
        end, newest = self._combine_results(before)
        if end is before and self._wait_seconds:
            # A change that moves the watermark and makes no result, such as the end of a range, is noticed
            # when this wait ends.
            ResultQueue(self._control, self._application).await_after(newest, self._wait_seconds)
            end, _ = self._combine_results(before)
        # Spark compares the texts: an unchanged offset must be the very same document.
        return start if end is before else end.to_document()

    def _combine_results(self, before: CombinedOffset) -> tuple[CombinedOffset, str]:
        """Return the next batch's end, and the entry id of the newest result."""
        dispatches = Dispatches(self._control, self._application)
        results = ResultQueue(self._control, self._application)
        # The order matters. A dispatch that is outstanding after the cursor was read was outstanding then, or
        # is newer. One that is not outstanding is in the queue when the queue is read, last.
        cursor = dispatches.load_cursor() or Cursor(controls=self._defaults)
        published = results.measure_room().published
        outstanding = {
            name: OutstandingDispatch(waiting[0].tick, waiting[0].watermark_us)
            for name in self._replicas
            if (waiting := dispatches.list_after(name, published.get(name, 0), 1))
        }
        settled = build_barrier(cursor.watermark_us, outstanding)
        controls = cursor.controls.freeze(time.time())  # some may have expired since the dispatch
        results_after = results.read_after(before.taken)
        end = combine_arrived_results(before, results_after, settled, controls, controls.combine_events_per_batch)
        return end, results_after[-1].entry_id if results_after else before.taken
