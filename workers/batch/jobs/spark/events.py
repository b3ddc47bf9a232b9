"""A partition's events for a Spark job; unsound files are named, and either skipped or end the job."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from queues.events.block import SCHEMA
from workers.batch.jobs.spark.request import Request
from workers.history import event_archive

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
