"""`metric_rollup`: a day's raw metrics as windows of 10 s, 1 min, and 1 h.

`metrics/{10s,1m,1h}/day=….parquet`: time (the window's start), series, count (rows), mean, minimum, maximum,
last (the newest value). A window without rows is left out, because unknown is not 0. The longer windows are computed
from raw rows, too, so a mean is one of rows and not of means.
"""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from workers.batch import files
from workers.batch.job import ChunkResult
from workers.batch.jobs.spark.events import Request, run_over_sound_files
from workers.history import event_archive, metric_history

TABLE = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("series", pa.string()),
        ("count", pa.int64()),
        ("mean", pa.float64()),
        ("minimum", pa.float64()),
        ("maximum", pa.float64()),
        ("last", pa.float64()),
    ]
)


def make(spark: SparkSession, request: Request) -> ChunkResult:
    """Write one day's three files. Raises BadInput for an unsound file when the choice is to stop."""
    day = request.content["day"]
    paths = event_archive.list_parquet_files(metric_history.get_raw_folder(request.data, day))
    result, skipped = run_over_sound_files(spark, request, paths, _build_all_windows, metric_history.RAW)
    outputs: dict[str, str] = {}
    for step, table in (result or {}).items():
        outputs |= files.write_table(request.data, metric_history.get_rollup_path(step, day), request.token, table)
    return ChunkResult(request.input_rows, outputs, skipped)


def _build_all_windows(raw: DataFrame) -> dict[str, pa.Table]:
    return {
        step: aggregate_windows(raw, seconds).toArrow().cast(TABLE)
        for step, seconds in metric_history.ROLLUP_SECONDS.items()
    }


def aggregate_windows(raw: DataFrame, seconds: int) -> DataFrame:
    """Return a row per window and series, ordered by both."""
    # A row that was spilled twice (overlapping spills) counts once.
    rows = raw.dropDuplicates(["time", "series"])
    begin = F.timestamp_seconds((F.unix_seconds("time") / seconds).cast("long") * seconds)
    return (
        rows.groupBy(begin.alias("time"), "series")
        .agg(
            F.count("value").alias("count"),
            F.mean("value").alias("mean"),
            F.min("value").alias("minimum"),
            F.max("value").alias("maximum"),
            F.max_by("value", rows["time"]).alias("last"),
        )
        .orderBy("time", "series")
    )
