"""The first tier in the process of a long-running task: reads events, applies rules without Spark, and writes rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from workers.pipeline.patterns.graph import Graph
from workers.pipeline.tiers.event_source import BatchAssignment, RangeReader
from workers.pipeline.tiers.result_writer import ResultWriter


class CompiledRules(Protocol):
    """The rules of an application, compiled to Arrow."""

    def apply(self, rows: pa.RecordBatch, names: Sequence[str]) -> tuple[pa.RecordBatch, Mapping[str, int]]:
        """Return the rows that pass, with these columns, and the number of events that passed each counted rule."""


@dataclass(frozen=True)
class LocalRuleRunner:
    """Applies the rules of a replica in this process (`intra_event.RuleRunner`); it travels to the task.

    names: the columns that patterns read.
    """

    reader: RangeReader
    rules: CompiledRules
    names: tuple[str, ...]
    graph: Graph

    def run(self, assignment: BatchAssignment) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """Apply the rules to the ranges of all tasks, one after the other."""
        reader, passed = self.reader, Counter[str]()
        ranges = [part for task in assignment.tasks for part in task]

        def keep(rows: pa.RecordBatch) -> pa.RecordBatch:
            kept, counts = self.rules.apply(rows, self.names)
            passed.update(counts)
            return kept

        writer = ResultWriter(
            reader.control_url,
            reader.application,
            reader.replica,
            assignment.tick,
            assignment.attempt,
            self.graph,
            assignment.cut,
            assignment.shedder,
        )
        written = writer.write(map(keep, reader.read(assignment, ranges, 0)), 0)
        return written.to_pylist(), dict(passed)
