"""A time range cut into slices, for a comparison with another (`controllers.diagnosis.differences`).

Each slice has measures and the number of events of each value of each dimension:

| from | dimensions |
|---|---|
| the archive (`queue=…/day=…`, Parquet), where the queue is archived | type, key, source |
| snapshots, difference of two counters per slice | node, container: events in; handler: events out |
| snapshots, a rate times the slice | producer, operator, type at an application |
| snapshots, rates times a sample of each producer's events, for other queues | type, key, source |
| snapshots, as measured at the slice's end | total events/s, seconds per event, busy share of a host |

Two stretches that are compared are read with one `ReadBudget`: the archive may be larger than a request can read (a
Spark job then counts it, `workers.history.stretches`), and unique keys must not fill the memory. The most frequent
values of both stretches together are kept (`fold_rare`), and the rest becomes one value: folded separately, the
stretches would keep different values, and each of those would differ.
"""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq  # not its dataset module, which imports pandas: 32 MB in each web process

from common.errors import BadInput
from common.files import resolve_inside_folder
from common.stored_document import BadDocument
from queues.events.block import COLUMNS, NONE
from workers.documents.snapshot import Snapshot
from workers.history.event_archive import Partition, check_files, list_parquet_files, list_partitions
from workers.history.snapshot_archive import snapshot_at

SLICES = 12
ARCHIVED = COLUMNS
MAX_VALUES = 200
REST, UNKNOWN = "(all others)", NONE
MAX_ROWS, MAX_SECONDS = 2_000_000, 10.0  # for both stretches; more is left to the Spark job
DAY_SECONDS = 86_400.0
BATCH_ROWS = 65_536
MAX_COUNTED = 50_000  # values of a dimension that are counted at once; beyond this, the rarest are dropped
INSTEAD = "Choose a shorter range or a single queue, or count with Spark."
Sliced = dict[str, list[float]]  # value → a number per slice
Read = Callable[[float], Snapshot | None]


class ReadLimitExceeded(BadInput):
    """Raised when these stretches have more records than a request reads; Spark can count them."""


@dataclass(frozen=True)
class TimeRange:
    """A time range, seconds since 1970."""

    since: float
    until: float

    @property
    def slice_seconds(self) -> float:
        return (self.until - self.since) / SLICES

    def shift(self, seconds: float) -> "TimeRange":
        return TimeRange(self.since - seconds, self.until - seconds)

    def ends(self) -> list[float]:
        """Return the ends of the slices, preceded by the start of the first."""
        return [float(at) for at in np.linspace(self.since, self.until, SLICES + 1)]

    def list_partitions(self, data: Path, queue: str = "") -> list[Partition]:
        """Return the partitions that may have its events.

        A block is stored under the day of its newest event, so some events are in the next day's partition.
        """
        last = _format_day(self.until + DAY_SECONDS)
        return list_partitions(data, [queue] if queue else (), _format_day(self.since), last)

    def list_archived_queues(self, data: Path) -> set[str]:
        """List the queues that may have archived events in it."""
        return {partition.queue for partition in self.list_partitions(data)}


@dataclass
class TimeRangeFigures:
    """Figures of a stretch.

    counts: dimension → value → events per slice; measures: (dimension, value, measure) → values.
    """

    counts: dict[str, Sliced] = field(default_factory=lambda: defaultdict(dict))
    measures: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))


class ReadBudget:
    """The limit of a comparison: archived events and seconds."""

    def __init__(
        self, rows: int = MAX_ROWS, seconds: float = MAX_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows, self._left = rows, rows
        self._seconds, self._clock, self._began = seconds, clock, clock()

    def spend(self, rows: int = 0) -> None:
        """Use up a part of the budget. Raises ReadLimitExceeded naming how far it reached when it is used up."""
        self._left -= rows
        if self._left < 0:
            raise ReadLimitExceeded("to", f"has more than {self._rows:,} archived events. {INSTEAD}")
        if self._clock() - self._began > self._seconds:
            raise ReadLimitExceeded("to", f"takes more than {self._seconds:g} s to read. {INSTEAD}")


def compute_range_figures(
    stretch: TimeRange,
    data: Path,
    queue: str = "",
    budget: ReadBudget | None = None,
    archives: Collection[str] | None = None,
) -> TimeRangeFigures:
    """Return all figures of a stretch, of one queue where one is named.

    archives: queues whose archived events are read, None for all; for the others, the producers' samples count. Raises
    ReadLimitExceeded where that exceeds the budget.
    """
    spending = budget or ReadBudget()
    counts = count_archived(stretch, data, queue, spending, archives)
    return count_with_snapshots(counts, stretch, data, queue, spending, archives)


def count_with_snapshots(
    counts: Mapping[str, Sliced],
    stretch: TimeRange,
    data: Path,
    queue: str,
    budget: ReadBudget,
    archives: Collection[str] | None = None,
) -> TimeRangeFigures:
    """Combine counts of a stretch's archived events with figures from snapshots.

    archives: the queues whose archived events were counted; None: all.
    """

    def read(at: float) -> Snapshot | None:
        budget.spend()
        try:
            return snapshot_at(data, at)
        except (BadDocument, OSError):
            return None

    time_range_figures = TimeRangeFigures()
    time_range_figures.counts.update(counts)
    counted = stretch.list_archived_queues(data) if archives is None else archives
    add_snapshots(time_range_figures, stretch, read, queue, counted)
    return time_range_figures


def count_archived(
    stretch: TimeRange,
    data: Path,
    queue: str = "",
    budget: ReadBudget | None = None,
    archives: Collection[str] | None = None,
) -> dict[str, Sliced]:
    """Count archived events by their own time. archives: only these queues; None: all."""
    spending = budget or ReadBudget()
    counts: dict[str, Sliced] = {name: {} for name in ARCHIVED}
    for partition in stretch.list_partitions(data, queue):
        if archives is not None and partition.queue not in archives:
            continue
        for path in list_parquet_files(partition.get_folder(data)):
            spending.spend()
            for file in check_files([path]).files:
                for batch in _read_batches(file, stretch):
                    spending.spend(batch.num_rows)
                    _add_archived(counts, batch, stretch)
    return {name: sliced for name, sliced in counts.items() if sliced}


def _read_batches(path: Path, stretch: TimeRange) -> Iterator[pa.RecordBatch]:
    """Yield batches in this thread, so that a file is never in memory whole."""
    since, until = (
        pa.scalar(datetime.fromtimestamp(instant, UTC), pa.timestamp("us", "UTC"))
        for instant in (stretch.since, stretch.until)
    )
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(
            BATCH_ROWS, _select_row_groups(file, stretch), columns=["time", *ARCHIVED], use_threads=False
        ):
            time = batch.column("time")
            yield batch.filter(pc.and_(pc.greater_equal(time, since), pc.less(time, until)))


def _select_row_groups(file: pq.ParquetFile, stretch: TimeRange) -> list[int]:
    """Return the row groups that may have events of the stretch, by their minimum and maximum time."""

    def may_have(group: int) -> bool:
        rows = file.metadata.row_group(group)
        columns = (rows.column(at) for at in range(rows.num_columns))
        stated = next(column.statistics for column in columns if column.path_in_schema == "time")
        if stated is None or not stated.has_min_max:
            return True
        return bool(stated.min.timestamp() < stretch.until and stated.max.timestamp() >= stretch.since)

    return [group for group in range(file.metadata.num_row_groups) if may_have(group)]


def _add_archived(found: dict[str, Sliced], batch: pa.RecordBatch, stretch: TimeRange) -> None:
    if batch.num_rows == 0:
        return
    micros = batch.column("time").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    places = np.minimum((micros / 1e6 - stretch.since) // stretch.slice_seconds, SLICES - 1).astype(int)
    for name in ARCHIVED:
        column = batch.column(name).cast(pa.string()).fill_null(UNKNOWN).dictionary_encode()
        values = column.dictionary.to_pylist()
        cells = column.indices.to_numpy() * SLICES + places
        table = np.bincount(cells, minlength=SLICES * len(values)).reshape(-1, SLICES)
        for value, row in zip(values, table.tolist(), strict=True):
            known = found[name].get(value)
            found[name][value] = (
                [float(value) for value in row]
                if known is None
                else [left + right for left, right in zip(known, row, strict=True)]
            )
        if len(found[name]) > MAX_COUNTED:
            found[name] = _fold_rare_values(found[name], _find_frequent_values(found[name], count=MAX_COUNTED // 5))


def fold_rare(ours: Sliced, theirs: Sliced) -> tuple[Sliced, Sliced]:
    """Keep the MAX_VALUES most frequent values of both stretches together and fold the rest."""
    kept = _find_frequent_values(ours, theirs, count=MAX_VALUES)
    return _fold_rare_values(ours, kept), _fold_rare_values(theirs, kept)


def _find_frequent_values(*counted: Sliced, count: int) -> set[str]:
    totals: Counter[str] = Counter()
    for sliced in counted:
        for value, row in sliced.items():
            totals[value] += round(sum(row)) if value != REST else 0
    return {value for value, _ in totals.most_common(count)} - {REST}


def _fold_rare_values(sliced: Sliced, kept: set[str]) -> Sliced:
    rest = [row for value, row in sliced.items() if value not in kept]
    folded = {value: row for value, row in sliced.items() if value in kept}
    return {**folded, REST: np.sum(rest, axis=0).tolist()} if rest else folded


def add_snapshots(
    figures: TimeRangeFigures, stretch: TimeRange, read: Read, queue: str = "", archived: Collection[str] = ()
) -> None:
    """Add figures from the snapshots at the slices' ends.

    A slice with a missing snapshot counts nothing. archived: queues whose events are counted already.
    """
    shown = [read(at) for at in stretch.ends()]
    for place, (before, after) in enumerate(itertools.pairwise(shown)):
        if after is None:
            continue
        counted = _count_changes(before, after, stretch.slice_seconds, queue)
        sampled = _count_samples(after, stretch.slice_seconds, queue, archived)
        for dimension, value, events in itertools.chain(counted, sampled):
            slices = figures.counts[dimension].setdefault(value, [0.0] * SLICES)
            slices[place] += max(0.0, events)
        for dimension, value, measure, number in _measure_changes(after, queue):
            if number is not None:
                figures.measures[dimension, value, measure].append(number)


def _count_changes(
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


def _count_samples(
    shown: Snapshot, seconds: float, only: str, archived: Collection[str]
) -> Iterator[tuple[str, str, float]]:
    """Count events of queues without an archive by the composition of their producers' samples."""
    for producer in shown.producers.values():
        for queue, sample in producer.samples.items():
            if queue in archived or (only and queue != only) or not sample.events:
                continue
            weight = seconds * (producer.queues.get(queue) or 0.0) / sample.events
            for dimension, counts in zip(ARCHIVED, (sample.type, sample.key, sample.source), strict=True):
                yield from ((dimension, value, weight * count) for value, count in counts.items())
                yield dimension, REST, weight * (sample.events - sum(counts.values()))


def _measure_changes(shown: Snapshot, only: str) -> Iterator[tuple[str, str, str, float | None]]:
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
        yield "worker host", name, "busy share", (host.at_work or 0.0) / host.slots if host.slots else None


def _format_day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


COMPARISONS_ROOT = "comparisons"
TABLE = pa.schema(
    [
        ("dimension", pa.string()),
        ("value", pa.string()),
        ("here", pa.list_(pa.float64(), SLICES)),
        ("there", pa.list_(pa.float64(), SLICES)),
    ]
)


@dataclass(frozen=True)
class TimeRangeCounts:
    """Counts of two stretches.

    here, there: dimension → value → events per slice; made_at: when they were counted.
    """

    here: Mapping[str, Sliced]
    there: Mapping[str, Sliced]
    made_at: datetime


def build_counts_name(queue: str, here: TimeRange, there: TimeRange) -> str:
    """Return the file's name without its suffix: whole seconds, for one queue or all."""
    times = "-".join(f"{int(at)}" for at in (here.since, here.until, there.since))
    return f"queue={queue}/{times}" if queue else f"all/{times}"


def get_counts_path(queue: str, here: TimeRange, there: TimeRange) -> str:
    """Return the file's path relative to the data folder."""
    return f"{COMPARISONS_ROOT}/{build_counts_name(queue, here, there)}.parquet"


def build_counts_table(here: Mapping[str, Sliced], there: Mapping[str, Sliced]) -> pa.Table:
    """Return a table with a row per dimension and value; a value missing in one stretch is 0 there."""
    none = [0.0] * SLICES
    rows = [
        {
            "dimension": name,
            "value": value,
            "here": here.get(name, {}).get(value, none),
            "there": there.get(name, {}).get(value, none),
        }
        for name in sorted({*here, *there})
        for value in sorted({*here.get(name, {}), *there.get(name, {})})
    ]
    return pa.Table.from_pylist(rows, schema=TABLE)


def read_counts(data: Path, queue: str, here: TimeRange, there: TimeRange) -> TimeRangeCounts | None:
    """Read the counts; None where no job has counted them."""
    path = resolve_inside_folder(data / COMPARISONS_ROOT, f"{build_counts_name(queue, here, there)}.parquet", "queue")
    try:
        with pq.ParquetFile(path) as file:
            rows = file.read().to_pylist()
        made_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None
    ours: dict[str, Sliced] = {}
    theirs: dict[str, Sliced] = {}
    for row in rows:
        ours.setdefault(row["dimension"], {})[row["value"]] = row["here"]
        theirs.setdefault(row["dimension"], {})[row["value"]] = row["there"]
    return TimeRangeCounts(ours, theirs, made_at)
