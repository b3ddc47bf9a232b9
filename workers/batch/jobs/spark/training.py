"""`forecast_training`: windows of rates with calendar phases, for the forecast law.

`training/queue=…/day=….parquet`, a row per window and type, type "" being the whole queue. The MAX_TYPES most frequent
types have rows of their own, and all others share rows:

| column | unit | is |
|---|---|---|
| time | | the window's start |
| type | | event type |
| rate_per_second | events/s | the window's events / its seconds; 0 without events |
| day_sin, day_cos, week_sin, week_cos | 1 | the phase of the day and of the week (Monday 0:00 UTC is 0) |
| weekend | | Saturday or Sunday |
| history | events/s | the rates of the `history` windows before, oldest first; null at the very start |
| target | events/s | the rates of this window and the next `horizon` - 1; null after the day's end |

The history extends into the previous day where that is archived.
"""

import math
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from workers.batch import files
from workers.batch.job import ChunkResult
from workers.batch.jobs.spark.events import Request, group_rare_types, run_over_sound_files
from workers.history import event_archive
from workers.history.training_sets import ALL_TYPES, ROOT, TABLE

MAX_TYPES = 100
DAY_SECONDS = 86_400
WEEK_SECONDS = 7 * DAY_SECONDS


def make(spark: SparkSession, request: Request) -> ChunkResult:
    """Write one partition's file. Raises BadInput for an unsound file when the choice is to stop."""
    day, queue = request.content["day"], request.content["queue"]
    before = (date.fromisoformat(day) - timedelta(days=1)).isoformat()
    paths = [
        path
        for when in (before, day)
        for path in event_archive.list_parquet_files(event_archive.Partition(when, queue).get_folder(request.data))
    ]
    window = request.parameters["window_seconds"]
    counted, skipped = run_over_sound_files(spark, request, paths, lambda events: _count_events(events, window))
    if counted is None:
        return ChunkResult(0, {}, skipped)
    table = build_window_table(counted, day, window, request.parameters["history"], request.parameters["horizon"])
    final = f"{ROOT}/queue={queue}/day={day}.parquet"
    return ChunkResult(request.input_rows, files.write_table(request.data, final, request.token, table), skipped)


def _count_events(events: DataFrame, window_seconds: int) -> pa.Table:
    """Return events per window and type: {window (its number since 1970), type, events}."""
    window = (F.unix_seconds("time") / window_seconds).cast("long").alias("window")
    # Events that were archived twice have the same id, type, and time, and count once.
    typed = group_rare_types(events.select("time", "type", "id"), MAX_TYPES)
    once = typed.select("time", "type", F.xxhash64("id").alias("event"))
    counted = once.dropDuplicates().groupBy(window, "type").agg(F.count("*").alias("events"))
    return counted.toArrow()


def build_window_table(counted: pa.Table, day: str, window_seconds: int, history: int, horizon: int) -> pa.Table:
    """Return the day's rows of every type and of the whole queue; see the module."""
    begin = int(datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).timestamp()) // window_seconds
    count = DAY_SECONDS // window_seconds
    number = counted["window"].to_numpy()
    events = counted["events"].to_numpy()
    kinds = np.array(counted["type"].to_pylist(), object)
    known_from = int(number.min()) if len(number) else begin
    parts = []
    for kind in [ALL_TYPES, *sorted({str(event_kind) for event_kind in kinds} - {ALL_TYPES})]:
        of_kind = slice(None) if kind == ALL_TYPES else kinds == kind
        totals = np.zeros(2 * count)
        place = number[of_kind] - (begin - count)
        inside = (place >= 0) & (place < 2 * count)
        np.add.at(totals, place[inside], events[of_kind][inside])
        rates = totals / window_seconds
        known = max(0, known_from - (begin - count))
        parts.append(_build_window_rows(kind, rates, begin, count, window_seconds, history, horizon, known))
    return pa.concat_tables(parts)


def _build_window_rows(
    kind: str, rates: np.ndarray, begin: int, count: int, window_seconds: int, history: int, horizon: int, known: int
) -> pa.Table:
    """Return rows of the second day. `rates` are those of two days; from index `known` on they were observed."""
    seconds = (begin + np.arange(count)) * window_seconds
    day_phase = 2 * math.pi * (seconds % DAY_SECONDS) / DAY_SECONDS
    # 1970-01-01 was a Thursday: a week started four days earlier.
    in_week = (seconds + 3 * DAY_SECONDS) % WEEK_SECONDS
    week_phase = 2 * math.pi * in_week / WEEK_SECONDS
    places = range(count, 2 * count)
    return pa.table(
        {
            "time": pa.array(seconds, pa.timestamp("s", "UTC")),
            "type": [kind] * count,
            "rate_per_second": rates[count:],
            "day_sin": np.sin(day_phase),
            "day_cos": np.cos(day_phase),
            "week_sin": np.sin(week_phase),
            "week_cos": np.cos(week_phase),
            "weekend": in_week >= 5 * DAY_SECONDS,
            "history": [
                rates[place - history : place].tolist() if place - history >= known else None for place in places
            ],
            "target": [
                rates[place : place + horizon].tolist() if place + horizon <= 2 * count else None for place in places
            ],
        },
        schema=TABLE,
    )
