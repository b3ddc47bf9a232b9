"""A stretch of time, cut into slices, as `controllers.diagnosis.differences` compares it with another: how
many events each value of each dimension has, and what was measured.

| from | dimensions |
|---|---|
| the archive (`queue=…/day=…`, Parquet), where the queue is archived | type, key, source |
| snapshots, two counters' difference a slice | node, container: events in; handler: events out |
| snapshots, a rate times the slice | producer, operator, type at an application |
| snapshots, as measured at the slice's end | events/s in all, seconds per event, busy share of a host |

Of keys and sources the most frequent are values of their own; the rest is one.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from queues.errors import BadInput
from queues.stored_document import BadDocument
from workers.documents.snapshot import Snapshot
from workers.history.event_archive import checked, partitions
from workers.history.snapshot_archive import snapshot_at

SLICES = 12
ARCHIVED = ("type", "key", "source")
MOST_VALUES = 200
REST, UNKNOWN = "(all others)", "(none)"
MOST_ROWS = 3_000_000  # of the archive in one request; more is a task for a job
Sliced = dict[str, list[float]]  # value → a number a slice
Read = Callable[[float], Snapshot | None]


@dataclass(frozen=True)
class Stretch:
    """From an instant to another, seconds since 1970."""

    since: float
    until: float

    @property
    def slice_seconds(self) -> float:
        return (self.until - self.since) / SLICES

    def moved(self, seconds: float) -> "Stretch":
        return Stretch(self.since - seconds, self.until - seconds)

    def ends(self) -> list[float]:
        """Of the slices, with the begin of the first."""
        return [float(at) for at in np.linspace(self.since, self.until, SLICES + 1)]


@dataclass
class StretchFigures:
    """counts: dimension → value → events a slice; measures: (dimension, value, measure) → what is known."""

    counts: dict[str, Sliced] = field(default_factory=lambda: defaultdict(dict))
    measures: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))


def figures_of(stretch: Stretch, data: Path, queue: str = "") -> StretchFigures:
    """All that is recorded of a stretch; of one queue, where one is named. Raises BadInput where the archive
    holds too much of it.
    """

    def read(at: float) -> Snapshot | None:
        try:
            return snapshot_at(data, at)
        except (BadDocument, OSError):
            return None

    found = StretchFigures()
    for name, sliced in archived(stretch, data, queue).items():
        found.counts[name] = sliced
    add_snapshots(found, stretch, read, queue)
    return found


def archived(stretch: Stretch, data: Path, queue: str = "") -> dict[str, Sliced]:
    """Of the event archive, by the events' own time."""
    days = (_day(stretch.since), _day(stretch.until))
    rows = 0
    found: dict[str, Sliced] = {name: {} for name in ARCHIVED}
    for partition in partitions(data, [queue] if queue else (), *days):
        for path in checked(partition.folder(data).glob("*.parquet")).files:
            table = _within(path, stretch)
            rows += table.num_rows
            if rows > MOST_ROWS:
                raise BadInput(
                    "to", f"holds more than {MOST_ROWS:,} archived events; take a shorter stretch."
                )
            _add_archived(found, table, stretch)
    return {name: _frequent(sliced) for name, sliced in found.items() if sliced}


def _within(path: Path, stretch: Stretch) -> pa.Table:
    since, until = (
        pa.scalar(datetime.fromtimestamp(each, UTC), pa.timestamp("us", "UTC"))
        for each in (stretch.since, stretch.until)
    )
    wanted = (pc.field("time") >= since) & (pc.field("time") < until)
    return pq.read_table(path, columns=["time", *ARCHIVED], filters=wanted, partitioning=None)


def _add_archived(found: dict[str, Sliced], table: pa.Table, stretch: Stretch) -> None:
    if table.num_rows == 0:
        return
    frame = table.to_pandas()
    seconds = frame["time"].astype("int64").to_numpy() / 1e6
    places = np.minimum((seconds - stretch.since) // stretch.slice_seconds, SLICES - 1).astype(int)
    for name in ARCHIVED:
        groups = frame.groupby([frame[name].fillna(UNKNOWN), places]).size()
        for (value, place), count in groups.items():
            found[name].setdefault(str(value), [0.0] * SLICES)[int(place)] += float(count)


def _frequent(sliced: Sliced) -> Sliced:
    if len(sliced) <= MOST_VALUES:
        return sliced
    order = sorted(sliced, key=lambda value: -sum(sliced[value]))
    rest = np.sum([sliced[value] for value in order[MOST_VALUES:]], axis=0)
    return {**{value: sliced[value] for value in order[:MOST_VALUES]}, REST: rest.tolist()}


def add_snapshots(found: StretchFigures, stretch: Stretch, read: Read, queue: str = "") -> None:
    """Of the snapshots at the slices' ends. A slice of which one is missing counts nothing."""
    shown = [read(at) for at in stretch.ends()]
    for place, (before, after) in enumerate(itertools.pairwise(shown)):
        if after is None:
            continue
        for dimension, value, events in _counted(before, after, stretch.slice_seconds, queue):
            slices = found.counts[dimension].setdefault(value, [0.0] * SLICES)
            slices[place] += max(0.0, events)
        for dimension, value, measure, number in _measured(after, queue):
            if number is not None:
                found.measures[dimension, value, measure].append(number)


def _counted(
    before: Snapshot | None, after: Snapshot, seconds: float, only: str
) -> Iterator[tuple[str, str, float]]:
    for name, queue in after.queues.items():
        if only and name != only:
            continue
        for node, container in queue.containers.items():
            earlier = before.queues.get(name) if before else None
            old = earlier.containers.get(node) if earlier else None
            if old is not None:
                entered = (container.inserted_events or 0) - (old.inserted_events or 0)
                left = (container.removed_events or 0) - (old.removed_events or 0)
                yield "node", node, entered
                yield "container", f"{name} on {node}", entered
                if queue.handler:
                    yield "handler", f"{queue.handler} of {name}", left
    for name, producer in after.producers.items():
        rates = [rate for queue, rate in producer.queues.items() if not only or queue == only]
        yield "producer", name, seconds * sum(rate or 0.0 for rate in rates)
    for name, application in after.pipeline.applications.items():
        if only and only not in application.queues:
            continue
        for operator, row in application.operators.items():
            yield "operator", f"{operator} of {name}", seconds * row.in_per_second
        for pattern in application.patterns.values():
            for kind, rate in pattern.types.items():
                yield f"type at {name}", kind, seconds * rate


def _measured(shown: Snapshot, only: str) -> Iterator[tuple[str, str, str, float | None]]:
    for name, queue in shown.queues.items():
        if only and name != only:
            continue
        yield "queue", name, "events in, /s", queue.in_per_second
        yield "queue", name, "events out, /s", queue.out_per_second
        if queue.handler:
            yield "handler", f"{queue.handler} of {name}", "seconds per event", queue.service_seconds
    for name, application in shown.pipeline.applications.items():
        if only and only not in application.queues:
            continue
        for operator, row in application.operators.items():
            yield "operator", f"{operator} of {name}", "seconds per event", row.seconds
    for name, node in shown.nodes.items():
        yield "node", name, "utilisation", node.utilisation
    for name, host in shown.hosts.items():
        yield "worker host", name, "busy share", host.busy / host.slots if host.slots else None


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
