"""The work on one micro-batch, called by Spark (foreachBatch): one Spark job for rules and matchers, then
what no row came for, then the complex events.
"""

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from workers.pipeline.checkpoint import Checkpoint
from workers.pipeline.declaration import Application
from workers.pipeline.offset import Offset
from workers.pipeline.operators import CANDIDATE, KEY_GROUPS, STATISTICS, BatchCount, Stage
from workers.pipeline.outbox import Outbox
from workers.pipeline.planning import EVENTS_PER_TASK
from workers.pipeline.rules import apply_rules, rule_counts
from workers.pipeline.state import StateStore
from workers.pipeline.status import StatusBoard

_CARRIED = tuple(name for name in CANDIDATE.names if name != "match_key")


class BatchWork:
    """Callable as Spark wants it: `(events, batch)`. `failure` keeps what went wrong as it was: Spark only
    passes on its text.
    """

    def __init__(
        self,
        control_url: str,
        application: Application,
        checkpoint: Checkpoint,
        store: StateStore,
        outbox: Outbox,
        status: StatusBoard,
    ) -> None:
        self._control_url, self._application, self._checkpoint = control_url, application, checkpoint
        self._store, self._outbox, self._status = store, outbox, status
        self.failure: Exception | None = None

    def __call__(self, events: DataFrame, batch: int) -> None:
        try:
            self._work(events, batch)
        except Exception as error:
            self.failure = error
            raise

    def _work(self, events: DataFrame, batch: int) -> None:
        started = time.monotonic()
        offset = self._checkpoint.offset(batch)
        stage = self._stage(batch, offset)
        ruled = apply_rules(events, self._application.rules)
        count = BatchCount()
        for row in _run(routed(ruled.events, self._application), stage, tasks_for(offset)):
            count.add(row.asDict())
        stage.settle(self._store, count)
        rules = rule_counts(self._application.rules, ruled, offset.events_total, count.kept)
        self._outbox.try_publish()
        self._status.batch(batch, offset, count, rules, time.monotonic() - started)

    def _stage(self, batch: int, offset: Offset) -> Stage:
        return Stage(
            self._control_url,
            self._application.name,
            self._checkpoint.run,
            batch,
            offset.watermark_us,
            offset.previous_watermark_us,
            self._application.patterns,
            self._application.routes,
        )


def tasks_for(offset: Offset) -> int:
    """One for a small batch: it then needs no shuffle."""
    return min(offset.controls.parallelism, 1 + offset.events_total // EVENTS_PER_TASK)


def routed(events: DataFrame, application: Application) -> DataFrame:
    """What the patterns read, once for each key column, with the key as text and its key group."""
    keys = [
        sql.struct(sql.lit(place).alias("route"), sql.col(key).cast("string").alias("match_key"))
        for place, key in enumerate(application.routes)
    ]
    names = sorted({*_CARRIED, *application.columns})
    rows = events.select(*names, sql.inline(sql.array(*keys)))
    group = sql.pmod(sql.xxhash64("route", "match_key"), sql.lit(KEY_GROUPS)).cast("int")
    return rows.withColumn("group", group)


def _run(rows: DataFrame, stage: Stage, tasks: int) -> list:
    gathered = rows.coalesce(1) if tasks == 1 else rows.repartition(tasks, "group")

    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(batches)

    return gathered.mapInArrow(match, STATISTICS).collect()
