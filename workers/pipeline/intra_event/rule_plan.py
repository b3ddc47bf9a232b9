"""The rules of a replica as planned by Spark.

The plan is analyzed, optimized, and compiled once, and executed for every batch with its own assignment. A new plan
costs as much as some hundred thousand events.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from workers.pipeline.declaration.declaration import Application
from workers.pipeline.dispatch.batch_assignment import BatchAssignment
from workers.pipeline.events.layout import CARRIED
from workers.pipeline.intra_event.event_source import EventSource, encode_layout, encode_monitored
from workers.pipeline.intra_event.result_writer import WRITTEN, ResultWriter
from workers.pipeline.rules.rule_sql import RuleOutput, apply_rules

MAX_PLANS = 4  # number of plans that are kept; usually only one is in use


class RulePlans:
    """One plan for each number of tasks and state of the reference tables."""

    def __init__(
        self, spark: SparkSession, control_url: str, application: Application, replica: str, patience_seconds: float
    ) -> None:
        self._spark, self._control_url = spark, control_url
        self._application, self._replica = application, replica
        self._patience_seconds = patience_seconds
        self._plans: dict[Any, tuple[DataFrame, RuleOutput]] = {}

    def run(self, assignment: BatchAssignment) -> tuple[list[Row], dict[str, int]]:
        """Run the batch, and return the reports of the tasks.

        Also return the number of events that passed each counted rule.
        """
        told, ruled = self.plan(len(assignment.tasks))
        assignment.attach(self._spark.sparkContext)
        return told.collect(), ruled.count_passed(told)

    def plan(self, tasks: int) -> tuple[DataFrame, RuleOutput]:
        """Return the plan and its rules. It is made on first use, and the oldest one makes room for it."""
        tables = tuple(table.seen for table in self._application.tables)
        kind = (tasks, tables)
        if kind not in self._plans:
            for old in list(self._plans)[: 1 - MAX_PLANS]:
                del self._plans[old]
            self._plans[kind] = self._build_plans(tasks)
        return self._plans[kind]

    def _build_plans(self, tasks: int) -> tuple[DataFrame, RuleOutput]:
        application, options = self._application, self._build_options(tasks)
        events = self._spark.read.format(EventSource.name()).options(**options).load()
        ruled = apply_rules(events, application.rules, application.layout.criteria)
        names = sorted({"time", *CARRIED, *application.graph.columns})
        return ruled.events.select(*names).mapInArrow(self._write(), WRITTEN), ruled

    def _build_options(self, tasks: int) -> dict[str, str]:
        application = self._application
        return {
            "control": self._control_url,
            "application": application.name,
            "replica": self._replica,
            "layout": encode_layout(application.layout),
            "monitored": encode_monitored(application.monitored),
            "patience": str(self._patience_seconds),
            "tasks": str(tasks),
        }

    def _write(self) -> Any:
        written = (self._control_url, self._application.name, self._replica, self._application.graph)

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            control_url, name, replica, graph = written
            assignment = BatchAssignment.get_current()
            batch = (assignment.tick, assignment.attempt, graph, assignment.cut, assignment.shedder)
            writer = ResultWriter(control_url, name, replica, *batch)
            return writer(batches)

        return write
