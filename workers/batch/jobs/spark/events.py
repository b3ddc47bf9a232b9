"""The request for a Spark job, and the archived events that it reads.

Unsound files are named, and either skipped or end the job.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from queues.events.block import SCHEMA
from workers.history import event_archive
from workers.pipeline.patterns.shedding import OTHERS


@dataclass
class Request:
    """A request. `token` names hidden files, and Spark's job group.

    The job fills in `input_rows` once it is known, so that progress can be given as a share.
    """

    job: str
    parameters: Mapping[str, Any]
    content: Mapping[str, Any]
    token: str
    data: Path
    input_rows: int = 0


def group_rare_types(events: DataFrame, most: int) -> DataFrame:
    """Return the rows with a type that is never null: one of the `most` frequent, "" for none, or OTHERS.

    The rows are read twice.
    """
    named = events.withColumn("type", F.coalesce("type", F.lit("")))
    ranked = named.groupBy("type").count().orderBy(F.desc("count"), "type").limit(most + 1).collect()
    if len(ranked) <= most:
        return named
    frequent = [row["type"] for row in ranked[:most]]
    return named.withColumn("type", F.when(F.col("type").isin(frequent), F.col("type")).otherwise(OTHERS))


T = TypeVar("T")
Faults = tuple[Mapping[str, str], ...]


def run_over_sound_files(
    spark: SparkSession,
    request: Request,
    paths: Iterable[Path],
    use: Callable[[DataFrame], T],
    schema: pa.Schema = SCHEMA,
) -> tuple[T | None, Faults]:
    """Return what `use` returns for the rows of sound files (None: there are none), and the skipped files.

    `use` must complete its work (collect or write): a file with a sound footer and corrupt pages is detected only then.
    All files are then read completely to name it, and `use` is called again. Raises BadInput (on_error=stop).
    """
    on_error = request.parameters["on_error"]
    checked = event_archive.check_files(paths, schema)
    faults = event_archive.list_skipped_faults(checked, on_error, request.data)
    try:
        return _apply_to_files(spark, request, checked, use), faults
    except (PySparkException, Py4JError):
        again = event_archive.read_through(checked.files, schema)
        if not again.faults:
            raise
        faults += event_archive.list_skipped_faults(again, on_error, request.data)
        return _apply_to_files(spark, request, again, use), faults


def _apply_to_files(
    spark: SparkSession, request: Request, found: event_archive.CheckedPartition, use: Callable[[DataFrame], T]
) -> T | None:
    if not found.files:
        return None
    request.input_rows = found.rows
    return use(read(spark, found.files))


def read(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Return the rows of exactly these files; the folder's `queue=` and `day=` do not become columns."""
    return spark.read.parquet(*[str(path) for path in paths])
