"""`replay_extract`: a time range of a queue's archived events as one file, for the lab or for publishing.

`extracts/queue={queue}/{name}.{csv,csv.gz,parquet}`. With step_seconds 0 it has the events themselves, ordered by time
and without duplicates: id, time, type, source, key, value, attributes; `manage.py publish` reads it. With a step:
`time, rate_per_second`, a row per step, including steps without events; the lab's `--trace` reads it.
"""

import os
import shutil
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from common.files import FORMULA
from queues.events.block import FIELDS
from workers.batch import files
from workers.batch.job import ChunkResult
from workers.batch.jobs.spark.events import Request, run_over_sound_files
from workers.history import event_archive

TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


def make(spark: SparkSession, request: Request) -> ChunkResult:
    """Write the file. Raises BadInput for an unsound file when the choice is to stop."""
    since, until = request.content["since"], request.content["until"]
    folders = [
        event_archive.Partition(day, request.parameters["queue"]).get_folder(request.data)
        for day in request.content["days"]
    ]
    paths = [path for folder in folders for path in event_archive.list_parquet_files(folder)]
    final = event_archive.extract_file(
        request.parameters["queue"], request.content["name"], request.parameters["format"]
    )

    def write(events: DataFrame) -> dict[str, str]:
        inside = events.where(
            (F.col("time") >= F.lit(since).cast("timestamp")) & (F.col("time") < F.lit(until).cast("timestamp"))
        )
        once = inside.dropDuplicates(["id", "time", "type"])
        if request.parameters["step_seconds"]:
            return _write_rates(once, request, final)
        return _write_events(once.select(*FIELDS).orderBy("time", "id"), request, final)

    written, skipped = run_over_sound_files(spark, request, paths, write)
    return ChunkResult(request.input_rows, written or {}, skipped)


def _write_events(events: DataFrame, request: Request, final: str) -> dict[str, str]:
    """Write events as one file: Spark writes a folder with one part, which becomes the file."""
    temporary = files.build_hidden_path(final, request.token)
    folder = files.resolve_output_path(request.data, f"{temporary}.parts")
    folder.parent.mkdir(parents=True, exist_ok=True)
    one = events.coalesce(1).write.mode("overwrite")
    if request.parameters["format"] == "parquet":
        one.option("compression", "zstd").parquet(str(folder))
    else:
        compression = "gzip" if request.parameters["format"] == "csv.gz" else "none"
        one = _without_formulas(events).coalesce(1).write.mode("overwrite")
        written = one.options(header=True, timestampFormat=TIME_FORMAT, compression=compression, escape='"')
        written.csv(str(folder))
    (part,) = folder.glob("part-*")
    _flush(part)
    part.replace(files.resolve_output_path(request.data, temporary))
    shutil.rmtree(folder)
    return {final: temporary}


def _without_formulas(events: DataFrame) -> DataFrame:
    """Mark text that a spreadsheet would execute: producers choose it, and a person opens the file."""
    texts = [name for name, kind in events.dtypes if kind == "string"]
    return events.withColumns({name: F.regexp_replace(name, FORMULA, "$1'") for name in texts})


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _write_rates(events: DataFrame, request: Request, final: str) -> dict[str, str]:
    step = request.parameters["step_seconds"]
    begin = datetime.fromisoformat(request.content["since"]).timestamp()
    number = F.floor((F.unix_micros("time") / 1e6 - begin) / step).alias("step")
    counted = events.groupBy(number).agg(F.count("*").alias("events")).toArrow()
    length = datetime.fromisoformat(request.content["until"]).timestamp() - begin
    table = build_rate_table(counted, begin, length, step)
    if request.parameters["format"] == "parquet":
        return files.write_table(request.data, final, request.token, table)
    temporary = files.build_hidden_path(final, request.token)
    path = files.resolve_output_path(request.data, temporary)
    path.parent.mkdir(parents=True, exist_ok=True)
    compression = "gzip" if request.parameters["format"] == "csv.gz" else None
    with pa.output_stream(str(path), compression=compression) as stream:
        csv.write_csv(table, stream)
    _flush(path)
    return {final: temporary}


def build_rate_table(counted: pa.Table, begin_seconds: float, length_seconds: float, step_seconds: float) -> pa.Table:
    """Return {time (seconds since 1970), rate_per_second}: a row per step, 0 without events."""
    events = dict(zip(counted["step"].to_pylist(), counted["events"].to_pylist(), strict=True))
    steps = range(int(-(-length_seconds // step_seconds)))
    return pa.table(
        {
            "time": [begin_seconds + step * step_seconds for step in steps],
            "rate_per_second": [events.get(step, 0) / step_seconds for step in steps],
        }
    )
