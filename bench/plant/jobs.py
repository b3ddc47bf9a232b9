"""`stream_statistics` over a day of archived events, in the process that a worker starts, its start included.

The limit is Spark alone on the same files, its start included too: quantiles and a count per type, without the gaps
between events. Wall time on a machine that others use too says little, so the processor seconds of the whole tree stand
beside it: two idle cores take about half of them.
"""

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as parquet
import redis
from pyspark.sql import functions as F  # noqa: N812

from queues.events.block import SCHEMA
from workers.batch.job import JobContext
from workers.batch.jobs.spark.client import SparkProcess
from workers.batch.jobs.spark.process import start_session
from workers.batch.jobs.spark.statistics import ACCURACY, QUANTILES
from workers.history import event_archive

EVENTS_PER_SECOND = 200_000  # how much is laid ready for each second of the measurement
MAX_EVENTS = 10_000_000
FILE_EVENTS = 20_480
TYPES = 40
PARTITION = event_archive.Partition("2026-11-19", "process")
DAY_US = 86_400_000_000
SAMPLE_SECONDS = 0.2


@dataclass
class BenchLease:
    """What a Spark process asks of a seat: here nobody overtakes."""

    surroundings: JobContext
    parameters: Mapping[str, Any]
    token: str
    content: Mapping[str, Any] = field(default_factory=lambda: {"queue": PARTITION.queue, "day": PARTITION.day})
    identifier: str = "bench"

    def clock(self) -> datetime:
        return datetime.now(UTC)

    def check(self, progress: Mapping[str, Any] | None = None) -> None:
        """Progress is for nobody."""

    def guard_transaction(self) -> nullcontext[None]:
        return nullcontext()


@dataclass
class Usage:
    """The most memory and all processor time of the process's children."""

    memory_bytes: int = 0
    cpu_seconds: float = 0.0


def run(seconds: float) -> dict[str, dict[str, float]]:
    """10 million events for 50 seconds and more, else 200,000 a second of measurement."""
    rows = int(min(MAX_EVENTS, EVENTS_PER_SECOND * seconds))
    with tempfile.TemporaryDirectory() as folder:
        lay_ready(Path(folder), rows)
        where = JobContext(Path(folder), redis.Redis(), datetime.now(UTC))  # the job asks it for nothing
        ours = _measure_job(where, "stream_statistics", {"on_error": "stop"})
        limit = _spark_alone_seconds(Path(folder))
    return {
        "figures": {"events": float(rows), "events_per_second": rows / ours["seconds"], **ours},
        "peers": {"spark_alone_seconds": limit},
        "ratio": {"seconds": ours["seconds"] / limit},
    }


def lay_ready(data: Path, rows: int) -> None:
    """A day's archive in files as workers leave them, half of it one type, arrivals by chance."""
    source = np.random.default_rng(1)
    folder = PARTITION.get_folder(data)
    folder.mkdir(parents=True)
    begin = int(datetime.fromisoformat(f"{PARTITION.day}T00:00:00+00:00").timestamp()) * 1_000_000
    names = pa.array([f"type{number}" for number in range(TYPES)])
    share = np.r_[0.5, np.full(TYPES - 1, 0.5 / (TYPES - 1))]
    for number, first in enumerate(range(0, rows, FILE_EVENTS)):
        count = min(FILE_EVENTS, rows - first)
        low, high = first * DAY_US // rows, (first + count) * DAY_US // rows
        table = pa.table(
            {
                "id": pa.array(np.char.add(f"{number:032x}:", np.arange(count).astype(str))),
                "time": pa.array(begin + np.sort(source.integers(low, high, count)), pa.timestamp("us", "UTC")),
                "type": names.take(pa.array(source.choice(TYPES, count, p=share))),
                "source": names.take(pa.array(source.integers(0, TYPES, count))),
                "key": names.take(pa.array(source.integers(0, TYPES, count))),
                "value": source.exponential(1.0, count),
                "attributes": pa.nulls(count, pa.string()),
            },
            schema=SCHEMA,
        )
        parquet.write_table(table, folder / f"{number:032x}.parquet", compression="zstd")


def _measure_job(where: JobContext, job: str, parameters: Mapping[str, Any]) -> dict[str, float]:
    process = SparkProcess(job)
    with _watch_memory() as usage:
        began = time.perf_counter()
        try:
            made = process.work(BenchLease(where, parameters, f"bench-{job}"))
            seconds = time.perf_counter() - began
        finally:
            process.close()
    if not made.outputs:
        raise RuntimeError(f"{job} made nothing")
    return {"seconds": seconds, "cpu_seconds": usage.cpu_seconds, "memory_bytes": float(usage.memory_bytes)}


def _spark_alone_seconds(data: Path) -> float:
    began = time.perf_counter()
    spark = start_session("local[*]", data / "alone")
    try:
        events = spark.read.parquet(str(PARTITION.get_folder(data)))
        quantiles = F.percentile_approx("value", list(QUANTILES), ACCURACY)
        events.groupBy("type").agg(F.count("*"), quantiles).toArrow()
        return time.perf_counter() - began
    finally:
        spark.stop()


@contextmanager
def _watch_memory() -> Iterator[Usage]:
    usage, ended = Usage(), threading.Event()
    spent: dict[int, float] = {}

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            memory_bytes = 0
            for child in psutil.Process().children(recursive=True):
                try:
                    times = child.cpu_times()
                    spent[child.pid] = times.user + times.system
                    memory_bytes += child.memory_info().rss
                except psutil.Error:
                    continue
            usage.memory_bytes = max(usage.memory_bytes, memory_bytes)
            usage.cpu_seconds = sum(spent.values())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        ended.set()
        thread.join()
