"""The ranges of containers that each task of a replica's batch processes.

The assignment travels with the Spark job as a local property. The plan that the job executes is the same for every
batch (`rule_plan`); only the assignment is new.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields, replace

from pyspark import SparkContext, TaskContext

from workers.pipeline.events.containers import UNREACHABLE, Nodes, Range
from workers.pipeline.shedding.shedder import Shedder

EVENTS_PER_TASK = 20_000  # a task costs some milliseconds: one task processes a small batch
_PROPERTY = "weir.batch_assignment"


@dataclass(frozen=True)
class BatchAssignment:
    """The assignment of a batch to its tasks.

    tick: of the batch. attempt: the attempt at it, as the result queue counts. tasks: the ranges of each task.
    ahead_us: how far ahead of the clock an event may be. cut: whether results are cut by key groups.
    shedder: what is dropped. criteria: name → value.
    """

    tick: int
    attempt: str
    tasks: tuple[tuple[Range, ...], ...]
    ahead_us: int
    cut: bool
    shedder: Shedder
    criteria: Mapping[str, float] = field(default_factory=dict)

    def to_text(self) -> str:
        shed = [getattr(self.shedder, each.name) for each in fields(Shedder)]
        tasks = [[astuple(part) for part in task] for task in self.tasks]
        criteria = dict(self.criteria)
        return json.dumps([self.tick, self.attempt, tasks, self.ahead_us, self.cut, shed, criteria])

    @classmethod
    def from_text(cls, text: str) -> "BatchAssignment":
        tick, attempt, tasks, ahead_us, cut, shed, criteria = json.loads(text)
        ranges = tuple(tuple(Range(*part) for part in task) for task in tasks)
        return cls(tick, attempt, ranges, ahead_us, cut, Shedder(*shed), criteria)

    def attach(self, spark: SparkContext) -> None:
        """Attach the assignment to the jobs that this thread submits from now on."""
        spark.setLocalProperty(_PROPERTY, self.to_text())

    @classmethod
    def get_current(cls) -> "BatchAssignment":
        """Return the assignment of the job of this task. Raises `RuntimeError` if none is attached."""
        context = TaskContext.get()
        text = context.getLocalProperty(_PROPERTY) if context else None
        if text is None:
            raise RuntimeError("no batch assignment is attached to this job")
        return cls.from_text(text)


def on_tasks(nodes: Nodes, ranges: Iterable[tuple[Range, int]], most: int) -> tuple[tuple[Range, ...], ...]:
    """Distribute ranges, with their event counts, over as many tasks as they are worth, at most `most`.

    The largest range comes first, and each goes to the task with the fewest events so far. A range of more than half of
    a task's events is cut.
    """
    ranges = list(ranges)
    total = sum(events for _, events in ranges)
    wanted = min(most, 1 + total // EVENTS_PER_TASK)
    if wanted > 1:
        ranges = [piece for part in ranges for piece in _cut(nodes, *part, total // (2 * wanted))]
    groups: list[list[Range]] = [[] for _ in range(wanted)]
    loads = [0] * wanted
    for part, events in sorted(ranges, key=lambda item: -item[1]):
        lightest = loads.index(min(loads))
        groups[lightest].append(part)
        loads[lightest] += events
    return tuple(tuple(group) for group in groups)


def _cut(nodes: Nodes, whole: Range, events: int, piece_events: int) -> list[tuple[Range, int]]:
    """Cut a range into pieces of about `piece_events`, if its container can be queried now."""
    if events <= piece_events:
        return [(whole, events)]
    try:
        entries = nodes.get_segment(whole.queue, whole.url).scan(whole.after, events)
    except UNREACHABLE:
        return [(whole, events)]
    pieces: list[tuple[Range, int]] = []
    after, gathered = whole.after, 0
    for entry in entries:
        gathered += entry.events
        if gathered >= piece_events or entry.entry_id == whole.through:
            pieces.append((replace(whole, after=after, through=entry.entry_id), gathered))
            after, gathered = entry.entry_id, 0
        if entry.entry_id == whole.through:
            return pieces
    return [*pieces, (replace(whole, after=after), gathered)]
