"""The task of a batch whose rules run natively: it reads events, applies the rules, and writes the results."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from workers.pipeline.events.layout import Layout
from workers.pipeline.patterns.graph import Graph
from workers.pipeline.rules.native_rules import NativeRules
from workers.pipeline.rules.rules import Rule
from workers.pipeline.tiers.event_source import BatchAssignment, TaskReader
from workers.pipeline.tiers.result_writer import ResultWriter


@dataclass(frozen=True)
class NativeTask:
    """A task that reads its events, applies native rules, and writes the rows (mapInArrow over numbers of tasks).

    rules: the pickled rules, so that a worker compiles them once for all batches. names: the columns that are needed
    after the rules.
    """

    reader: TaskReader
    rules: bytes
    names: tuple[str, ...]
    graph: Graph

    @classmethod
    def create(cls, reader: TaskReader, rules: tuple[Rule, ...], names: tuple[str, ...], graph: Graph) -> "NativeTask":
        return cls(reader, pickle.dumps(rules), names, graph)

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                yield from self._run(task)

    def _run(self, task: int) -> Iterator[pa.RecordBatch]:
        assignment = BatchAssignment.get_current()
        rules = _compile_rules(self.rules, self.reader.layout, self.names)
        passed = dict.fromkeys(rules.counted, 0)
        writer = build_writer(self.reader.control_url, self.reader.application, self.reader.replica, self.graph)
        events = self.reader.read(assignment, task)
        yield from writer((rules.apply(batch, passed) for batch in events), passed)


@lru_cache(maxsize=4)
def _compile_rules(pickled: bytes, layout: Layout, names: tuple[str, ...]) -> NativeRules:
    rules: tuple[Rule, ...] = pickle.loads(pickled)
    return NativeRules(rules, layout, names)


def build_writer(control_url: str, application: str, replica: str, graph: Graph) -> ResultWriter:
    """Return the writer of a task of the current batch."""
    assignment = BatchAssignment.get_current()
    tick, attempt = assignment.tick, assignment.attempt
    return ResultWriter(control_url, application, replica, tick, attempt, graph, assignment.cut, assignment.shedder)
