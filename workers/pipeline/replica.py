"""The work on one micro-batch of a replica, called by Spark (foreachBatch): one Spark job for the rules,
whose tasks leave their rows in the result queue, and then the publishing of them.
"""

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
import redis
from pyspark.sql import DataFrame

from workers.pipeline.assignment import Assignment
from workers.pipeline.batch_work import BatchWork
from workers.pipeline.checkpoint import Checkpoint
from workers.pipeline.containers import CARRIED
from workers.pipeline.declaration import Application
from workers.pipeline.dispatches import Dispatches
from workers.pipeline.faults import FaultStore
from workers.pipeline.finished_batch import ReplicaBatch
from workers.pipeline.result_queue import Blob, Result, ResultQueue
from workers.pipeline.result_writer import CUT_ROWS, WRITTEN, ResultWriter
from workers.pipeline.rule_sql import apply_rules, rule_counts
from workers.pipeline.shed_counts import together
from workers.pipeline.shedder import Shedder
from workers.pipeline.status import StatusBoard


class ReplicaWork(BatchWork):
    """Of one replica of an application."""

    def __init__(
        self,
        control_url: str,
        application: Application,
        replica: str,
        checkpoint: Checkpoint,
        control: redis.Redis,
        status: StatusBoard,
    ) -> None:
        self._control_url, self._application, self._replica = control_url, application, replica
        self._checkpoint, self._status = checkpoint, status
        self._dispatches = Dispatches(control, application.name)
        self._results = ResultQueue(control, application.name)
        self._faults = FaultStore(control, application.name)

    def work(self, events: DataFrame, batch: int) -> None:
        started = time.monotonic()
        tick = self._checkpoint.offset(batch)["tick"]
        given = self._given(tick)
        if not given:
            return  # published before: whatever is there counts, and nothing is done twice
        arrived = sum(each.events for each in given)
        self._results.abandon(self._replica, tick)
        for table in self._application.tables:
            table.refresh()
        ruled = apply_rules(events, self._application.rules, given[-1].controls.criteria)
        rows = self._run(ruled.events, tick, arrived, given[-1].controls.shedder)
        kept = sum(row["kept"] for row in rows)
        blobs = tuple(Blob(*row[:7]) for row in rows if row["name"])
        result = Result(self._replica, tick, given[0].watermark_us, blobs)
        if self._results.publish(result, arrived):
            counts = rule_counts(self._application.rules, ruled, arrived, kept)
            now = time.monotonic()
            made = (batch, arrived, kept, result.size_bytes, now - started, counts)
            response_seconds = max(0.0, time.time() - given[0].at_seconds)
            shed = together([row["shed"] for row in rows])
            self._status.replica(self._replica, ReplicaBatch(now, *made, response_seconds, shed))

    def _given(self, tick: int) -> list[Assignment]:
        """The batch's assignments that are not published."""
        published = self._results.room().published.get(self._replica, 0)
        return [each for each in self._dispatches.after(self._replica, published) if each.tick <= tick]

    def _run(self, rows: DataFrame, tick: int, arrived: int, shedder: Shedder) -> list:
        application = self._application
        names = sorted({"time", *CARRIED, *application.graph.columns})
        writer = ResultWriter(
            self._control_url,
            application.name,
            self._replica,
            tick,
            application.graph,
            arrived >= CUT_ROWS,
            shedder,
        )

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return writer(batches)

        return rows.select(*names).mapInArrow(write, WRITTEN).collect()
