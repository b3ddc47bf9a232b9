"""The task of a batch whose rules run in Arrow: it reads events, applies the rules, and writes the results."""

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from workers.pipeline.events.layout import Layout
from workers.pipeline.patterns.graph import Graph
from workers.pipeline.rules.arrow_rules import ArrowRules
from workers.pipeline.rules.rules import Rule
from workers.pipeline.tiers.event_source import BatchAssignment, TaskReader
from workers.pipeline.tiers.finished_batch import add_types
from workers.pipeline.tiers.result_writer import ResultWriter


@dataclass(frozen=True)
class ArrowTask:
    """A task that reads its events, applies rules in Arrow, and writes the rows (mapInArrow over numbers of tasks).

    rules: the pickled rules, so that a worker compiles them only once for all batches. names: the columns that are
    needed after the rules.
    """

    reader: TaskReader
    rules: bytes
    names: tuple[str, ...]
    graph: Graph

    @classmethod
    def create(cls, reader: TaskReader, rules: tuple[Rule, ...], names: tuple[str, ...], graph: Graph) -> "ArrowTask":
        """Return the task of a replica, with its rules pickled."""
        return cls(reader, pickle.dumps(rules), names, graph)

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the tasks with these numbers in a Spark job that has the batch's assignment."""
        assignment = BatchAssignment.get_current()
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                yield self.run(assignment, task)

    def run(self, assignment: BatchAssignment, task: int) -> pa.RecordBatch:
        """Run one task, and return its report (columns `WRITTEN`)."""
        rules = _compile_rules(self.rules, self.reader.layout, self.names)
        passed = dict.fromkeys(rules.counted, 0)
        reader = self.reader
        writer = build_writer(assignment, reader.control_url, reader.application, reader.replica, self.graph)
        return writer.write((rules.apply(batch, passed) for batch in reader.read(assignment, task)), task, passed)


class TaskReport(Protocol):
    """A row with the columns `WRITTEN`."""

    def __getitem__(self, name: str, /) -> Any: ...


def sum_passed(rows: Sequence[TaskReport]) -> dict[str, int]:
    """Return the number of events that passed each counted rule, over all tasks."""
    passed: dict[str, int] = {}
    for row in rows:
        add_types(passed, json.loads(row["passed"] or "{}"))
    return passed


@dataclass(frozen=True)
class LocalRunner:
    """Runs a batch in the process of a long-running task (`intra_event.RuleRunner`). Spark serializes it."""

    task: ArrowTask

    def run(self, assignment: BatchAssignment) -> tuple[Sequence[TaskReport], dict[str, int]]:
        """Run the ranges of all tasks as one task."""
        ranges = tuple(part for task in assignment.tasks for part in task)
        rows = self.task.run(replace(assignment, tasks=(ranges,)), 0).to_pylist()
        return rows, sum_passed(rows)


@lru_cache(maxsize=64)  # without Spark, one process runs all applications
def _compile_rules(pickled: bytes, layout: Layout, names: tuple[str, ...]) -> ArrowRules:
    rules: tuple[Rule, ...] = pickle.loads(pickled)
    return ArrowRules(rules, layout, names)


def build_writer(
    assignment: BatchAssignment, control_url: str, application: str, replica: str, graph: Graph
) -> ResultWriter:
    """Return the writer of a task of a batch."""
    tick, attempt = assignment.tick, assignment.attempt
    return ResultWriter(control_url, application, replica, tick, attempt, graph, assignment.cut, assignment.shedder)
