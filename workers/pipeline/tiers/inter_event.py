"""The second tier: operators that turn events into complex events.

Spark calls it for each inter-event micro-batch. Each level of operators is one Spark job, in which each operator has as
many tasks as its parallelism, if they save more time than they cost. Otherwise, one task processes all operators. Then
the complex events are published while the next batch runs.
"""

import time
from collections.abc import Mapping
from typing import Protocol

import redis
from pyspark import SparkContext

from workers.pipeline.declaration.declaration import Application
from workers.pipeline.patterns.graph import KEY_GROUPS, Operator, distribute_groups
from workers.pipeline.tiers.batch_work import BatchWork
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.event_source import EVENTS_PER_TASK
from workers.pipeline.tiers.finished_batch import InterEventBatch, OperatorCount
from workers.pipeline.tiers.operators import Unit, Work
from workers.pipeline.tiers.outbox import Outbox
from workers.pipeline.tiers.planned_batches import PlannedBatch, PlannedBatches
from workers.pipeline.tiers.state import StateStore

TASK_SECONDS = 0.02  # an additional task of a job costs 3 to 20 ms (median, two cores, idle and busy)
NEWEST_SHARE = 0.3  # weight of the newest batch in the time of a row


class InterEventBoard(Protocol):
    """Records what the operators do."""

    def record_inter_event_batch(self, batch: InterEventBatch) -> None:
        """Record that an inter-event batch is finished."""


class TaskRunner(Protocol):
    """Runs the tasks of a level of operators."""

    @property
    def cores(self) -> int:
        """Return the number of tasks that run at the same time."""

    @property
    def task_seconds(self) -> float:
        """Return the time that an additional task costs, in seconds."""

    def run(self, work: Work, tasks: list[list[Unit]]) -> list[OperatorCount]:
        """Run the units of each task, and return the counts of the operators."""


class SparkTasks:
    """Each level of operators is a Spark job."""

    task_seconds = TASK_SECONDS

    def __init__(self, spark: SparkContext) -> None:
        self._spark = spark

    @property
    def cores(self) -> int:
        return self._spark.defaultParallelism

    def run(self, work: Work, tasks: list[list[Unit]]) -> list[OperatorCount]:
        done: list[OperatorCount] = self._spark.parallelize(tasks, len(tasks)).flatMap(work).collect()
        return done


class InterEventWork(BatchWork):
    """The inter-event batches of an application: its combiner and operators.

    run: run of the checkpoint. runner: runs the tasks. In the driver, it runs them as Spark jobs; in a long-running
    task, it runs them in the process of the task.
    """

    def __init__(
        self,
        runner: TaskRunner,
        control_url: str,
        application: Application,
        run: str,
        control: redis.Redis,
        outbox: Outbox,
        status: InterEventBoard,
    ) -> None:
        self._runner, self._control_url = runner, control_url
        self._application, self._run = application, run
        self._batches = PlannedBatches(control, application.name)
        self._store = StateStore(control, application.name)
        self.ids = {"application": application.name}
        self._outbox, self._status = outbox, status
        self._row_seconds: dict[str, float] = {}  # operator → time of a row that it reads

    def work(self) -> None:
        planned = self._batches.load()
        if planned is not None and not planned.is_done:
            self.process(planned)

    def process(self, planned: PlannedBatch) -> None:
        """Execute the parts of a planned batch that are not written yet."""
        started = time.monotonic()
        batch, combined, application = planned.batch, planned.offset, self._application
        # Only now is the previous batch done for good: a concurrent attempt at it has nothing left to do.
        self._store.forget_between(batch - 1)
        places = (self._control_url, application.name, self._run, batch, combined, application.graph, application.sinks)
        counts: dict[str, OperatorCount] = {}
        worked: list[OperatorCount] = []
        for level, operators in enumerate(application.graph.levels):
            # A single task needs no plan of its own and runs where all others do.
            rows = self._count_rows(level, combined, batch)
            if tasks := self._list_tasks(planned, level, operators, rows):
                done = self._runner.run(Work(*places, level), tasks)
                self._learn_row_seconds(done, rows)
                worked += done
        for count in worked:
            counts.setdefault(count.operator, OperatorCount(count.operator)).add(count)
        self._batches.finish(planned, len(application.graph.levels))
        self._outbox.start_publishing()
        now = time.monotonic()
        finished = InterEventBatch(now, batch, combined, counts, tuple(worked), now - started)
        self._status.record_inter_event_batch(finished)

    def _count_rows(self, level: int, combined: CombinedOffset, batch: int) -> int:
        emitted = sum(part.num_rows for part in self._store.read_between(batch)) if level else 0
        return emitted + combined.rows

    def _list_tasks(
        self, planned: PlannedBatch, level: int, operators: tuple[Operator, ...], rows: int
    ) -> list[list[Unit]]:
        """Return the units of each task, or no task if there is nothing to do."""
        everything, combined = tuple(range(KEY_GROUPS)), planned.offset
        counts = {operator.name: combined.controls.count_tasks(operator.name) for operator in operators}
        is_split = rows >= EVENTS_PER_TASK
        if 0 < rows < EVENTS_PER_TASK:  # measured times differ between attempts at the batch
            saves_time = self._saves_time(counts, rows, self._runner.cores)
            is_split = self._batches.decide_split(planned.batch, level, saves_time)
        if is_split:
            return [
                [Unit(name, groups, task)]
                for name, count in counts.items()
                for task, groups in enumerate(distribute_groups(count, everything), 1)
            ]
        if not rows:
            due = {} if combined.now_us is None else self._store.list_due_groups(combined.now_us)
            if not any(name in due for name in counts):
                return []
        return [[Unit(name, everything) for name in counts]]

    def _saves_time(self, counts: Mapping[str, int], rows: int, cores: int) -> bool:
        """Return whether the operators' own tasks are faster than one task for all, as measured so far."""
        alone = {name: rows * self._row_seconds.get(name, 0.0) for name in counts}
        whole = sum(alone.values())
        longest = max(whole / cores, *(alone[name] / count for name, count in counts.items()))
        return whole - longest > self._runner.task_seconds * (sum(counts.values()) - 1)

    def _learn_row_seconds(self, done: list[OperatorCount], rows: int) -> None:
        if not rows:
            return
        for name in {count.operator for count in done}:
            seconds = sum(count.seconds for count in done if count.operator == name) / rows
            before = self._row_seconds.get(name, seconds)
            self._row_seconds[name] = before + NEWEST_SHARE * (seconds - before)
