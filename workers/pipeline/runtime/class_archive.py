"""Spark's classes as Java has them when they are loaded, in a file of 160 MB.

A start that finds the file neither unpacks nor verifies ten thousand classes, which is half of the processor time that
its Java takes to start. `python -m workers.pipeline.runtime.class_archive` makes the file beside the installed
packages, once for a version of Spark and a Java; `./run` does so when its plant has run for two minutes. Without the
file, or with that of another Java, a start takes longer.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from common.errors import WeirError
from workers.host.spark import build_spark_environment, get_class_archive_path, quote_option
from workers.pipeline.runtime.session import start_session

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import DataFrame, SparkSession

MAX_SECONDS = 120
_BATCHES = 3


def make_archive() -> Path:
    """Start Spark once for a little pipeline work, and store the classes that it loaded."""
    with tempfile.TemporaryDirectory() as scratch:
        file = get_class_archive_path(build_spark_environment(Path(scratch, "java"))["JAVA_HOME"])
        if file.is_file():
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        # Under another name until it is complete: a start that is killed leaves no file.
        part = file.with_suffix(f".{os.getpid()}")
        keep = (quote_option(f"-XX:ArchiveClassesAtExit={part}"),)
        spark = start_session("archive", "local[1]", Path(scratch), java=keep)
        _work(spark)
        java: JavaGateway = spark.sparkContext._gateway
        spark.stop()
        java.proc.stdin.close()
        java.proc.wait(MAX_SECONDS)
        part.rename(file)
    return file


def _work(spark: "SparkSession") -> None:
    """Do what each replica of the pipeline does: a stream, rows through Python as Arrow, a job per batch."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    kept = rows.selectExpr("value % 3 as k", "timestamp", "value > 1 and value is not null as kept")

    done = threading.Event()

    def work(batch: "DataFrame", number: int) -> None:
        batch.where("kept").select("k").mapInArrow(_write_batches, "k long").groupBy("k").count().toArrow()
        if number == _BATCHES:
            done.set()

    query = kept.writeStream.foreachBatch(work).trigger(processingTime="1 seconds").start()
    if not done.wait(MAX_SECONDS):
        raise WeirError(f"Spark's first batches took more than {MAX_SECONDS} s: {query.exception()}")
    query.stop()


def _write_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    make_archive()
