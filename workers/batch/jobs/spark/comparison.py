"""`stretch_comparison`: counts of archived events by type, key, and source in two stretches of time.

The counts are by slice, and they are made here where they take too long for the page that shows differences
(`workers.history.stretches`).

Every event becomes three rows (a dimension and its value each), which are counted by value over the slices of both
stretches in one pass. The most frequent values of each dimension are kept, and the rest is the remainder of the
dimension's total, so distinct keys need not fit into memory.
"""

from typing import Any

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from workers.batch import files
from workers.batch.job import ChunkResult
from workers.batch.jobs.spark.events import Request, run_over_sound_files
from workers.history import event_archive
from workers.history.stretches import (
    ARCHIVED,
    MAX_VALUES,
    REST,
    SLICES,
    UNKNOWN,
    Sliced,
    TimeRange,
    build_counts_table,
    get_counts_path,
)

PLACES = 2 * SLICES  # the slices of the first stretch, then those of the second
COUNTS = tuple(f"slice_{place}" for place in range(PLACES))


def make(spark: SparkSession, request: Request) -> ChunkResult:
    """Write one comparison's file. Raises BadInput for an unsound file when the choice is to stop."""
    queue = request.content["queue"]
    here, there = (TimeRange(*request.content[name]) for name in ("here", "there"))
    folders = {*here.list_partitions(request.data, queue), *there.list_partitions(request.data, queue)}
    paths = [
        path for folder in sorted(folders) for path in event_archive.list_parquet_files(folder.get_folder(request.data))
    ]
    compared_values, skipped = run_over_sound_files(
        spark, request, paths, lambda events: _count_values(events, here, there)
    )
    if compared_values is None:
        return ChunkResult(0, {}, skipped)
    ours, theirs = ({name: sliced[at] for name, sliced in compared_values.items()} for at in (0, 1))
    table = build_counts_table(ours, theirs)
    written = files.write_table(request.data, get_counts_path(queue, here, there), request.token, table)
    return ChunkResult(request.input_rows, written, skipped)


def _count_values(events: DataFrame, here: TimeRange, there: TimeRange) -> dict[str, tuple[Sliced, Sliced]]:
    """Return dimension → counts of its values in both stretches."""
    counted = _count_by_value(events, here, there).persist(StorageLevel.DISK_ONLY)
    try:
        totals = counted.groupBy("dimension").agg(*(F.sum(name).alias(name) for name in COUNTS)).toArrow()
        counts = {}
        for row in totals.to_pylist():
            most = _list_most_frequent(counted, row["dimension"])
            counts[row["dimension"]] = _select_common(most, np.array([row[name] for name in COUNTS]))
        return counts
    finally:
        counted.unpersist()


def _count_by_value(events: DataFrame, here: TimeRange, there: TimeRange) -> DataFrame:
    """Return {dimension, value, slice_0 … slice_23}: events of each."""
    place = F.coalesce(_place(here, 0), _place(there, SLICES))
    known = F.array(*(_dimension(name) for name in ARCHIVED))
    within = events.where(_is_within(here) | _is_within(there))
    rows = within.select(place.alias("place"), F.explode(known).alias("known"))
    flat = rows.select("place", "known.dimension", "known.value")
    counts = (F.count(F.when(F.col("place") == at, 1)).alias(name) for at, name in enumerate(COUNTS))
    return flat.groupBy("dimension", "value").agg(*counts)


def _dimension(name: str) -> Column:
    value = F.coalesce(F.col(name).cast("string"), F.lit(UNKNOWN))
    return F.struct(F.lit(name).alias("dimension"), value.alias("value"))


def _is_within(stretch: TimeRange) -> Column:
    """Return a filter on the column itself, so that whole row groups of Parquet are skipped."""
    since, until = (F.timestamp_micros(F.lit(_convert_to_microseconds(at))) for at in (stretch.since, stretch.until))
    return (F.col("time") >= since) & (F.col("time") < until)


def _place(stretch: TimeRange, first: int) -> Column:
    """Return the number of an event's slice, null outside the stretch."""
    since, length = (
        _convert_to_microseconds(stretch.since),
        _convert_to_microseconds(stretch.until) - _convert_to_microseconds(stretch.since),
    )
    slice_of = F.floor((F.unix_micros("time") - F.lit(since)) * F.lit(SLICES) / F.lit(length))
    return F.when(_is_within(stretch), F.lit(first) + F.least(slice_of, F.lit(SLICES - 1)))


def _convert_to_microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _list_most_frequent(counted: DataFrame, dimension: str) -> list[dict[str, Any]]:
    total = sum((F.col(name) for name in COUNTS), start=F.lit(0))
    ordered = counted.where(F.col("dimension") == dimension).orderBy(total.desc(), "value")
    rows: list[dict[str, Any]] = ordered.limit(MAX_VALUES).toArrow().to_pylist()
    return rows


def _select_common(most: list[dict[str, Any]], total: np.ndarray) -> tuple[Sliced, Sliced]:
    counts = {row["value"]: np.array([row[name] for name in COUNTS], float) for row in most}
    rest = total - np.sum(list(counts.values()), axis=0)
    if rest.any():
        counts[REST] = rest
    ours = {value: row[:SLICES].tolist() for value, row in counts.items()}
    return ours, {value: row[SLICES:].tolist() for value, row in counts.items()}
