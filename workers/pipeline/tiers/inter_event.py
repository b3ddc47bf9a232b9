"""The second tier: operators that turn events into complex events.

Spark calls it for each inter-event micro-batch. Each level of operators is one Spark job, in which each operator has as
many tasks as its parallelism says. Then the complex events are published.
"""

import logging
import time
from collections.abc import Mapping
from typing import Protocol

import redis
from pyspark.sql import DataFrame

from workers.pipeline.declaration.declaration import Application
from workers.pipeline.patterns.graph import KEY_GROUPS, Operator, distribute_groups
from workers.pipeline.tiers.batch_work import BatchWork, Checkpoint
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.event_source import EVENTS_PER_TASK
from workers.pipeline.tiers.finished_batch import InterEventBatch, OperatorCount
from workers.pipeline.tiers.operators import Unit, Work
from workers.pipeline.tiers.outbox import Outbox
from workers.pipeline.tiers.state import StateStore

logger = logging.getLogger(__name__)
WARN_SECONDS = 60.0  # seconds between two warnings about a pattern


class InterEventBoard(Protocol):
    """Records what the operators do."""

    def record_inter_event_batch(self, batch: InterEventBatch) -> None:
        """Record that an inter-event batch is finished."""


class InterEventWork(BatchWork):
    """The inter-event batches of an application: its combiner and operators."""

    def __init__(
        self,
        control_url: str,
        application: Application,
        checkpoint: Checkpoint,
        control: redis.Redis,
        outbox: Outbox,
        status: InterEventBoard,
    ) -> None:
        self._control_url, self._application, self._checkpoint = control_url, application, checkpoint
        self._store = StateStore(control, application.name)
        self.ids = {"application": application.name}
        self._outbox, self._status = outbox, status
        self._warned_at: dict[str, float] = {}

    def work(self, events: DataFrame, batch: int) -> None:
        started = time.monotonic()
        # Only now is the previous batch done for good: a concurrent attempt at it has nothing left to do.
        self._store.forget_between(batch - 1)
        spark = events.sparkSession.sparkContext
        combined = CombinedOffset.from_document(self._checkpoint.read_offset(batch))
        application, run = self._application, self._checkpoint.run
        places = (self._control_url, application.name, run, batch, combined, application.graph, application.sinks)
        counts: dict[str, OperatorCount] = {}
        worked: list[OperatorCount] = []
        for level, operators in enumerate(application.graph.levels):
            # A single task needs no plan of its own and runs where all others do.
            if tasks := self._list_tasks(level, operators, combined, batch):
                worked += spark.parallelize(tasks, len(tasks)).flatMap(Work(*places, level)).collect()
        for count in worked:
            counts.setdefault(count.operator, OperatorCount(count.operator)).add(count)
        self._warn_of_forgotten(counts)
        self._outbox.try_publish()
        now = time.monotonic()
        finished = InterEventBatch(now, batch, combined, counts, tuple(worked), now - started)
        self._status.record_inter_event_batch(finished)

    def _warn_of_forgotten(self, counts: Mapping[str, OperatorCount]) -> None:
        """Log each pattern that dropped open matches, once every WARN_SECONDS."""
        now = time.monotonic()
        patterns = (pattern_count for count in counts.values() for pattern_count in count.patterns.items())
        for name, pattern in patterns:
            if pattern.forgotten_bytes and now - self._warned_at.get(name, -WARN_SECONDS) >= WARN_SECONDS:
                self._warned_at[name] = now
                logger.warning(
                    "Pattern %s dropped open matches of %.1f MB: it has too many keys, or too many events in"
                    " a window. Shorten the window, or keep fewer events with rules.",
                    name,
                    pattern.forgotten_bytes / 1e6,
                )

    def _list_tasks(
        self, level: int, operators: tuple[Operator, ...], combined: CombinedOffset, batch: int
    ) -> list[list[Unit]]:
        """Return the units of each task: one task for a small batch, none if there is nothing to do."""
        everything = tuple(range(KEY_GROUPS))
        rows = combined.rows
        if level:
            rows = sum(part.num_rows for part in self._store.read_between(batch)) + rows
        if rows >= EVENTS_PER_TASK:
            return [
                [Unit(operator.name, groups, task)]
                for operator in operators
                for task, groups in enumerate(
                    distribute_groups(combined.controls.count_tasks(operator.name), everything), 1
                )
            ]
        due = {} if combined.watermark_us is None else self._store.list_due_groups(combined.watermark_us)
        if not rows and not any(operator.name in due for operator in operators):
            return []
        return [[Unit(operator.name, everything) for operator in operators]]
