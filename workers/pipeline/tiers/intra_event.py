"""The first tier: reads each event separately, applies the rules, and writes the results.

Spark calls it for each micro-batch of a replica. One Spark job applies the rules, and its tasks write their rows into
the result queue. Then the rows are published.
"""

import json
import time
from collections.abc import Callable, Iterator
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
from workers.pipeline.rules.native_rules import find_spark_reason
from workers.pipeline.rules.rule_sql import RuleOutput, apply_rules, build_rule_counts
from workers.pipeline.tiers.batch_work import BatchWork, Checkpoint
from workers.pipeline.tiers.event_source import BatchAssignment, EventSource, TaskReader, on_tasks
from workers.pipeline.tiers.finished_batch import ReplicaBatch, add_types
from workers.pipeline.tiers.native_task import NativeTask, build_writer
from workers.pipeline.tiers.result_writer import CUT_ROWS, WRITTEN

PLANNING_SECONDS = 1.0  # time limit for the answer of a node
MAX_PLANS = 4  # number of plans that are kept; usually only one is in use


class RulePlans:
    """The rules of a replica as planned by Spark: one plan for each number of tasks and state of the reference tables.

    A plan is analyzed, optimized, and compiled once, and executed for every batch with its own assignment. A new plan
    costs as much as some hundred thousand events. Rules that are covered run natively: then the plan consists of tasks
    only, and no event goes through Java.
    """

    def __init__(
        self, spark: SparkSession, control_url: str, application: Application, replica: str, patience_seconds: float
    ) -> None:
        self._spark, self._application = spark, application
        self._options = {
            "control": control_url,
            "application": application.name,
            "replica": replica,
            "layout": msgspec.json.encode(application.layout).decode(),
            "monitored": msgspec.json.encode(application.monitored).decode(),
            "patience": str(patience_seconds),
        }
        self._reader = TaskReader(
            control_url, application.name, replica, application.layout, application.monitored, patience_seconds
        )
        self._names = tuple(sorted({"time", *CARRIED, *application.graph.columns}))
        self._is_native = find_spark_reason(application.rules, application.layout, application.engine) is None
        self._plans: dict[object, tuple[DataFrame, RuleOutput | None]] = {}

    def run(self, assignment: BatchAssignment) -> tuple[list[Row], dict[str, int]]:
        """Run the batch, and return the reports of the tasks, and the events that passed each counted rule."""
        told, ruled = self.plan(len(assignment.tasks))
        assignment.attach(self._spark.sparkContext)
        rows = told.collect()
        return rows, _sum_passed(rows) if ruled is None else ruled.count_passed(told)

    def plan(self, tasks: int) -> tuple[DataFrame, RuleOutput | None]:
        """Return the plan, and its rules if Spark runs them.

        It is made on first use, and the oldest one makes room for it.
        """
        kind = (tasks, tuple(table.seen for table in self._application.tables))
        if kind not in self._plans:
            for old in list(self._plans)[: 1 - MAX_PLANS]:
                del self._plans[old]
            self._plans[kind] = self._plan_natively(tasks) if self._is_native else self._plan_in_spark(tasks)
        return self._plans[kind]

    def _plan_natively(self, tasks: int) -> tuple[DataFrame, None]:
        application = self._application
        task = NativeTask.create(self._reader, application.rules, self._names, application.graph)
        # The number of each partition is the number of its task.
        return self._spark.range(0, tasks, 1, tasks).mapInArrow(task, WRITTEN), None

    def _plan_in_spark(self, tasks: int) -> tuple[DataFrame, RuleOutput]:
        application = self._application
        events = self._spark.read.format(EventSource.name()).options(**self._options, tasks=str(tasks)).load()
        ruled = apply_rules(events, application.rules, application.layout.criteria)
        return ruled.events.select(*self._names).mapInArrow(self._build_writer(), WRITTEN), ruled

    def _build_writer(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        url, replica = self._options["control"], self._options["replica"]
        name, graph = self._application.name, self._application.graph

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return build_writer(url, name, replica, graph)(batches)

        return write


def _sum_passed(rows: list[Row]) -> dict[str, int]:
    """Return the events that passed each counted rule, in all tasks."""
    passed: dict[str, int] = {}
    for row in rows:
        add_types(passed, json.loads(row["passed"] or "{}"))
    return passed


class ReplicaBoard(Protocol):
    """Records what the replicas do."""

    def record_replica_batch(self, name: str, batch: ReplicaBatch) -> None:
        """Record that a replica's batch is published."""


class ReplicaWork(BatchWork):
    """The batches of one replica of an application."""

    def __init__(
        self,
        plans: RulePlans,
        application: Application,
        replica: str,
        checkpoint: Checkpoint,
        control: redis.Redis,
        status: ReplicaBoard,
    ) -> None:
        self._plans, self._application, self._replica = plans, application, replica
        self._checkpoint, self._control, self._status = checkpoint, control, status
        self.ids = {"application": application.name, "replica": replica}
        self._dispatches = Dispatches(control, application.name)
        self._results = ResultQueue(control, application.name)
        self._faults = FaultStore(control, application.name)
        self._known = KnownTopology()

    def work(self, events: DataFrame, batch: int) -> None:
        started = time.monotonic()
        tick = self._checkpoint.read_offset(batch)["tick"]
        published = self._results.measure_room().published.get(self._replica, 0)
        dispatches = [
            dispatch for dispatch in self._dispatches.list_after(self._replica, published) if dispatch.tick <= tick
        ]
        if not dispatches:
            return  # published before: the existing result counts, and nothing is done twice
        ticks = {tick, self._results.find_attempted_tick(self._replica) or tick}
        attempt = self._results.begin(self._replica, tick)
        if attempt is None:
            return
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
        rows, passed = self._plans.run(assignment)
        retained = sum(row["kept"] for row in rows)
        result = Result(
            self._replica, tick, dispatches[0].watermark_us, tuple(Blob(*row[:7]) for row in rows if row["name"])
        )
        if not self._results.publish(result, attempt, arrived):
            return
        now = time.monotonic()
        finished = ReplicaBatch(
            at=now,
            batch=batch,
            events=arrived,
            retained=retained,
            size_bytes=result.size_bytes,
            seconds=now - started,
            rules=build_rule_counts(self._application.rules, passed, arrived, retained),
            response_seconds=max(0.0, time.time() - dispatches[0].at_seconds),
            shed=sum_task_counts([row["shed"] for row in rows]),
        )
        self._status.record_replica_batch(self._replica, finished)

    def _list_ranges(self, dispatches: list[Assignment]) -> list[tuple[Range, int]]:
        topology = self._known.read(self._control.get(keys.TOPOLOGY))
        ranges = []
        for part in (part for dispatch in dispatches for part in dispatch.parts):
            queue, node = part.container.split("/")
            # A node that was removed from the topology is gone for good, and so are its events.
            if node in topology.nodes:
                ranges.append((Range(queue, node, topology.nodes[node].url, part.after, part.through), part.events))
        return ranges
