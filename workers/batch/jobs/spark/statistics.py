"""`stream_statistics`: statistics of a queue's events of a day, one row per type.

Written to `statistics/queue=…/day=….parquet`:

| column | unit | is |
|---|---|---|
| queue, day, type | | the subject of the row; day is text; beyond MAX_TYPES types, the rarest share one row |
| events | events | those of the type, an event that was archived twice counted once |
| duplicates | events | left out for that |
| first_at, last_at | time | the first and the last event time |
| mean_per_second | events/s | events / 86,400: the mean over the day |
| peak_per_second | events/s | the busiest minute's events / 60 |
| interarrival_mean_seconds, interarrival_cv2 | s, 1 | of the gaps between adjacent events: mean, variance / mean² (1: Poisson); null below two events, cv² null when all have the same time |
| value_q50 … value_q99 | | approximate quantiles of `value` (relative rank error below 0.1 %); null without values |
| selectivity | 1 | {type of an output: outputs / events of this type}, over the same day |

The gaps are found without one long sort: rows are grouped by minute, each minute is sorted separately, and
the gaps across minutes follow from the first and last time of each.
"""  # noqa: E501

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from common import environment as variables
from workers.batch import files
from workers.batch.job import ChunkResult
from workers.batch.jobs.spark.events import Request, group_rare_types, run_over_sound_files
from workers.history import event_archive
from workers.pipeline.declaration.declaration import read_application
from workers.pipeline.runtime.application import SHIPPED

ROOT = "statistics"
MAX_TYPES = 1_000
SLICE_US = 60_000_000
DAY_SECONDS = 86_400.0
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
ACCURACY = 1_000
SLICE_ROWS = (
    "type string, slice long, events long, duplicates long, first_us long, last_us long, gaps double, squares double"
)
ROWS_PER_PARTITION = 1_000_000
MIN_PARTITIONS = 4
QUANTILE_NAMES = tuple(f"value_q{round(100 * share)}" for share in QUANTILES)


def make(spark: SparkSession, request: Request) -> ChunkResult:
    """Write one partition's file. Raises BadInput for an unsound file when the choice is to stop."""
    partition = event_archive.Partition(request.content["day"], request.content["queue"])
    paths = event_archive.list_parquet_files(partition.get_folder(request.data))
    result, skipped = run_over_sound_files(spark, request, paths, lambda events: _measure(events, request.input_rows))
    if result is None:
        return ChunkResult(0, {}, skipped)
    slices, quantiles = result
    outputs, more = _count_outputs(spark, request, partition)
    table = describe(partition, slices, quantiles, outputs)
    final = f"{ROOT}/{partition.identifier}.parquet"
    written = files.write_table(request.data, final, request.token, table)
    return ChunkResult(request.input_rows, written, (*skipped, *more))


def _measure(events: DataFrame, rows: int) -> tuple[pa.Table, pa.Table]:
    """Compute counts and gaps per minute and type, and quantiles per type."""
    typed = group_rare_types(events, MAX_TYPES)
    # A hash instead of the id: a quarter of the bytes to shuffle. It only has to distinguish events of one
    # type and microsecond.
    columns = typed.select("type", F.unix_micros("time").alias("us"), F.xxhash64("id").alias("event"))
    partitions = max(MIN_PARTITIONS, rows // ROWS_PER_PARTITION)
    by_minute = columns.repartition(partitions, F.expr(f"us div {SLICE_US}"))
    slices = by_minute.mapInArrow(_slice_rows, SLICE_ROWS).toArrow()
    # Removing duplicates shuffles all ids, so it is done only where there are duplicates.
    once = typed.dropDuplicates(["id", "time", "type"]) if pc.sum(slices["duplicates"]).as_py() else typed
    quantile = F.percentile_approx("value", list(QUANTILES), ACCURACY).alias("quantiles")
    return slices, once.groupBy("type").agg(quantile).toArrow()


def _slice_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = list(batches)
    if rows:
        yield from sum_minutes(pa.Table.from_batches(rows)).to_batches()


def sum_minutes(table: pa.Table) -> pa.Table:
    """Return rows {type, us, event} of whole minutes as a row per type and minute: see `SLICE_ROWS`."""
    coded = pc.dictionary_encode(table.column("type").combine_chunks())
    code, us, event = (
        coded.indices.to_numpy(zero_copy_only=False),
        table.column("us").to_numpy(),
        table.column("event").to_numpy(),
    )
    order = np.lexsort((event, us, code))
    code, us, event = code[order], us[order], event[order]
    again = np.zeros(len(us), bool)
    again[1:] = (code[1:] == code[:-1]) & (us[1:] == us[:-1]) & (event[1:] == event[:-1])
    minute = us // SLICE_US
    begins = np.flatnonzero(np.r_[True, (code[1:] != code[:-1]) | (minute[1:] != minute[:-1])])
    gap = np.r_[0.0, np.diff(us) / 1e6]
    gap[begins] = 0.0  # the difference to another minute or type is no gap
    ends = np.r_[begins[1:], len(us)] - 1
    duplicates = np.add.reduceat(again.astype(np.int64), begins)
    return pa.table(
        {
            "type": coded.dictionary.take(pa.array(code[begins])),
            "slice": minute[begins],
            "events": ends - begins + 1 - duplicates,
            "duplicates": duplicates,
            "first_us": us[begins],
            "last_us": us[ends],
            "gaps": np.add.reduceat(gap, begins),
            "squares": np.add.reduceat(gap * gap, begins),
        }
    )


def compute_interarrival(group: pa.Table) -> tuple[float | None, float | None]:
    """Return mean and squared coefficient of variation of the gaps of one type, from its minutes in order.

    With n events there are n - 1 gaps; those within minutes are already summed, those across minutes are first(next) -
    last(this). A duplicate is a gap of 0 s that is not counted.
    """
    gaps = int(pc.sum(group["events"]).as_py()) - 1
    if gaps < 1:
        return None, None
    borders = (group["first_us"].to_numpy()[1:] - group["last_us"].to_numpy()[:-1]) / 1e6
    mean = (pc.sum(group["gaps"]).as_py() + borders.sum()) / gaps
    square = (pc.sum(group["squares"]).as_py() + (borders**2).sum()) / gaps
    return mean, (max(0.0, square - mean**2) / mean**2 if mean else None)


def describe(
    partition: event_archive.Partition, slices: pa.Table, quantiles: pa.Table, outputs: Mapping[str, int]
) -> pa.Table:
    """Return the partition's table; see the module."""
    ordered = slices.sort_by([("type", "ascending"), ("slice", "ascending")])
    value = dict(zip(quantiles["type"].to_pylist(), quantiles["quantiles"].to_pylist(), strict=True))
    rows = [
        _build_statistics_row(
            partition, kind, ordered.filter(pc.equal(ordered["type"], kind)), value.get(kind), outputs
        )
        for kind in pc.unique(ordered["type"]).to_pylist()
    ]
    return pa.Table.from_pylist(rows, schema=TABLE)


def _build_statistics_row(
    partition: event_archive.Partition,
    kind: str,
    group: pa.Table,
    quantiles: Sequence[float | None] | None,
    outputs: Mapping[str, int],
) -> dict[str, Any]:
    events = pc.sum(group["events"]).as_py()
    mean, cv2 = compute_interarrival(group)
    return {
        "queue": partition.queue,
        "day": partition.day,
        "type": kind,
        "events": events,
        "duplicates": pc.sum(group["duplicates"]).as_py(),
        "first_at": pc.min(group["first_us"]).as_py(),
        "last_at": pc.max(group["last_us"]).as_py(),
        "mean_per_second": events / DAY_SECONDS,
        "peak_per_second": pc.max(group["events"]).as_py() * 1e6 / SLICE_US,
        "interarrival_mean_seconds": mean,
        "interarrival_cv2": cv2,
        **dict(zip(QUANTILE_NAMES, quantiles or [None] * len(QUANTILES), strict=True)),
        "selectivity": [(name, count / events) for name, count in outputs.items()],
    }


TABLE = pa.schema(
    [
        ("queue", pa.string()),
        ("day", pa.string()),
        ("type", pa.string()),
        ("events", pa.int64()),
        ("duplicates", pa.int64()),
        ("first_at", pa.timestamp("us", "UTC")),
        ("last_at", pa.timestamp("us", "UTC")),
        ("mean_per_second", pa.float64()),
        ("peak_per_second", pa.float64()),
        ("interarrival_mean_seconds", pa.float64()),
        ("interarrival_cv2", pa.float64()),
        *((name, pa.float64()) for name in QUANTILE_NAMES),
        ("selectivity", pa.map_(pa.string(), pa.float64())),
    ]
)


def _count_outputs(
    spark: SparkSession, request: Request, partition: event_archive.Partition
) -> tuple[dict[str, int], tuple[Mapping[str, str], ...]]:
    """Return the number of events of each emitted type in its sink on that day.

    There are none for a queue that the pipeline does not read.
    """
    application = read_application(Path(variables.PIPELINE_APPLICATION.get_text() or SHIPPED))
    if partition.queue not in application.queues:
        return {}, ()
    counts = dict.fromkeys((pattern.emits for pattern in application.patterns), 0)
    skipped: tuple[Mapping[str, str], ...] = ()
    rows = request.input_rows
    for sink, types in _types_by_sink(application.sinks).items():
        folder = event_archive.Partition(partition.day, sink).get_folder(request.data)
        counted, faults = run_over_sound_files(
            spark, request, event_archive.list_parquet_files(folder), partial(_count_events, types=types)
        )
        skipped += faults
        if counted is not None:
            counts |= dict(zip(counted["type"].to_pylist(), counted["outputs"].to_pylist(), strict=True))
    request.input_rows = rows
    return counts, skipped


def _types_by_sink(sinks: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return each type once, however many sinks it has."""
    types: dict[str, list[str]] = {}
    for event_type, queues in sorted(sinks.items()):
        types.setdefault(queues[0], []).append(event_type)
    return types


def _count_events(events: DataFrame, types: list[str]) -> pa.Table:
    wanted = events.where(F.col("type").isin(types))
    return wanted.groupBy("type").agg(F.countDistinct("id").alias("outputs")).toArrow()
