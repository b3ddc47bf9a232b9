"""The first tier: reads each event separately, applies the rules, and writes the results.

Spark calls it for each micro-batch of a replica. One Spark job applies the rules, and its tasks write their rows into
the result queue. Then the rows are published.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
import redis
from pyspark.sql import DataFrame, Row, SparkSession

from queues import keys
from queues.topology import KnownTopology
from workers.pipeline.declaration.declaration import Application
from workers.pipeline.dispatch.assignment import Assignment, Dispatches
from workers.pipeline.dispatch.result_queue import Blob, Result, ResultQueue
from workers.pipeline.events.containers import Range, get_nodes
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.events.layout import CARRIED
from workers.pipeline.patterns.shedding import sum_task_counts
from workers.pipeline.rules.arrow_rules import find_spark_reason
from workers.pipeline.rules.rule_sql import RuleOutput, apply_rules, build_rule_counts
from workers.pipeline.tiers.arrow_task import ArrowTask, LocalRunner, TaskReport, build_writer, sum_passed
from workers.pipeline.tiers.batch_work import BatchWork
from workers.pipeline.tiers.event_source import BatchAssignment, EventSource, TaskReader, on_tasks
from workers.pipeline.tiers.finished_batch import ReplicaBatch
from workers.pipeline.tiers.result_writer import BLOB, CUT_ROWS, WRITTEN

PLANNING_SECONDS = 1.0  # time limit for the answer of a node
MAX_PLANS = 4  # number of plans that are kept; usually only one is in use


class ReplicaRules:
    """The rules of a replica, and how its tasks read events and write results.

    runs_in_arrow: whether Arrow supports the rules, so that no event goes through Java.
    """

    def __init__(self, control_url: str, application: Application, replica: str, patience_seconds: float) -> None:
        self.application = application
        self.reader = TaskReader(
            control_url, application.name, replica, application.layout, application.monitored, patience_seconds
        )
        self.names = tuple(sorted({"time", *CARRIED, *application.graph.columns}))
        self.runs_in_arrow = find_spark_reason(application.rules, application.layout, application.engine) is None

    def build_local_runner(self) -> LocalRunner | None:
        """Return the runner of the rules for a long-running task; None if only Spark can run the rules."""
        return LocalRunner(self.build_arrow_task()) if self.runs_in_arrow else None

    def build_arrow_task(self) -> ArrowTask:
        """Return the task of a batch whose rules run in Arrow."""
        application = self.application
        return ArrowTask.create(self.reader, application.rules, self.names, application.graph)


class RulePlans:
    """The rules of a replica as planned by Spark: one plan for each number of tasks and state of the reference tables.

    A plan is analyzed, optimized, and compiled once, and executed for every batch with its own assignment. A new plan
    takes as long as several hundred thousand events. If Arrow supports the rules, the plan consists only of tasks.
    """

    def __init__(self, spark: SparkSession, rules: ReplicaRules) -> None:
        self._spark, self._rules = spark, rules
        reader = rules.reader
        self._options = {
            "control": reader.control_url,
            "application": reader.application,
            "replica": reader.replica,
            "layout": msgspec.json.encode(reader.layout).decode(),
            "monitored": msgspec.json.encode(reader.monitored).decode(),
            "patience": str(reader.patience_seconds),
        }
        self._plans: dict[object, tuple[DataFrame, RuleOutput | None]] = {}

    def run(self, assignment: BatchAssignment) -> tuple[list[Row], dict[str, int]]:
        """Run the batch, and return the reports of the tasks, and the events that passed each counted rule."""
        told, ruled = self.plan(len(assignment.tasks))
        assignment.attach(self._spark.sparkContext)
        rows = told.collect()
        return rows, sum_passed(rows) if ruled is None else ruled.count_passed(told)

    def plan(self, tasks: int) -> tuple[DataFrame, RuleOutput | None]:
        """Return the plan, and its rules if Spark runs them.

        The plan is built on first use, and replaces the oldest plan if there is no room.
        """
        kind = (tasks, tuple(table.seen for table in self._rules.application.tables))
        if kind not in self._plans:
            for old in list(self._plans)[: 1 - MAX_PLANS]:
                del self._plans[old]
            self._plans[kind] = self._plan_in_arrow(tasks) if self._rules.runs_in_arrow else self._plan_in_spark(tasks)
        return self._plans[kind]

    def _plan_in_arrow(self, tasks: int) -> tuple[DataFrame, None]:
        # The number of each partition is the number of its task.
        return self._spark.range(0, tasks, 1, tasks).mapInArrow(self._rules.build_arrow_task(), WRITTEN), None

    def _plan_in_spark(self, tasks: int) -> tuple[DataFrame, RuleOutput]:
        application = self._rules.application
        events = self._spark.read.format(EventSource.name()).options(**self._options, tasks=str(tasks)).load()
        ruled = apply_rules(events, application.rules, application.layout.criteria)
        return ruled.events.select(*self._rules.names).mapInArrow(self._build_writer(), WRITTEN), ruled

    def _build_writer(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        reader, graph = self._rules.reader, self._rules.application.graph

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return build_writer(
                BatchAssignment.get_current(), reader.control_url, reader.application, reader.replica, graph
            )(batches)

        return write


class RuleRunner(Protocol):
    """Applies the rules to a batch, and writes the rows."""

    def run(self, assignment: BatchAssignment) -> tuple[Sequence[TaskReport], dict[str, int]]:
        """Return the reports of the tasks (columns `WRITTEN`), and how many events passed each counted rule."""


class ReplicaBoard(Protocol):
    """Records what the replicas do."""

    def record_replica_batch(self, name: str, batch: ReplicaBatch) -> None:
        """Record that a replica's batch is published."""


class ReplicaWork(BatchWork):
    """The batches of one replica of an application."""

    def __init__(
        self, runner: RuleRunner, application: Application, replica: str, control: redis.Redis, status: ReplicaBoard
    ) -> None:
        self._runner, self._application, self._replica = runner, application, replica
        self._control, self._status = control, status
        self.ids = {"application": application.name, "replica": replica}
        self._dispatches = Dispatches(control, application.name)
        self._results = ResultQueue(control, application.name)
        self._faults = FaultStore(control, application.name)
        self._known = KnownTopology()

    def work(self) -> None:
        self.process_next()

    def process_next(self) -> bool:
        """Process the next batch, and return whether there was one."""
        started = time.monotonic()
        published = self._results.measure_room().published.get(self._replica, 0)
        dispatches = self._dispatches.list_batch(self._replica, published)
        if not dispatches:
            return False
        tick = dispatches[-1].tick
        ticks = {tick, self._results.find_attempted_tick(self._replica) or tick}
        attempt = self._results.begin(self._replica, published, tick)
        if attempt is None:
            return True  # another attempt has published some of it: the next batch starts after that
        for attempted in ticks:
            self._faults.abandon(self._replica, attempted)
        for table in self._application.tables:
            table.refresh()
        arrived = sum(dispatch.events for dispatch in dispatches)
        controls = dispatches[-1].controls
        assignment = BatchAssignment(
            tick,
            attempt,
            on_tasks(get_nodes(PLANNING_SECONDS), self._list_ranges(dispatches), controls.parallelism),
            controls.ahead_us,
            arrived >= CUT_ROWS,
            controls.shedder,
            {**self._application.controls.criteria, **controls.criteria},
        )
        rows, passed = self._runner.run(assignment)
        retained = sum(row["kept"] for row in rows)
        blobs = tuple(Blob(*(row[name] for name in BLOB)) for row in rows if row["name"])
        result = Result(self._replica, tick, dispatches[0].watermark_us, blobs)
        if not self._results.publish(result, attempt, arrived):
            return True
        now = time.monotonic()
        finished = ReplicaBatch(
            at=now,
            batch=tick,
            events=arrived,
            retained=retained,
            size_bytes=result.size_bytes,
            seconds=now - started,
            rules=build_rule_counts(self._application.rules, passed, arrived, retained),
            response_seconds=max(0.0, time.time() - dispatches[0].at_seconds),
            shed=sum_task_counts([row["shed"] for row in rows]),
        )
        self._status.record_replica_batch(self._replica, finished)
        return True

    def _list_ranges(self, dispatches: list[Assignment]) -> list[tuple[Range, int]]:
        topology = self._known.read(self._control.get(keys.TOPOLOGY))
        ranges = []
        for part in (part for dispatch in dispatches for part in dispatch.parts):
            queue, node = part.container.split("/")
            # A node that was removed from the topology is gone for good, and so are its events.
            if node in topology.nodes:
                ranges.append((Range(queue, node, topology.nodes[node].url, part.after, part.through), part.events))
        return ranges
