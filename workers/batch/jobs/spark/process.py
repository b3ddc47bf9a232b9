"""The process of Spark batch jobs: `python -m workers.batch.jobs.spark.process`.

It is started only by the worker that processes the chunks (`workers.batch.jobs.spark.client`).

Standard input: one JSON request per line, {"job", "parameters", "content", "token", "data"}. Standard output: one JSON
answer per line: {"progress": {...}} occasionally, then {"made": {...}}, {"refused": {"field", "message"}}, or
{"failed": "..."}. The process does not use the database: its output stays hidden until its worker publishes it, so it
may be killed at any time. It ends when standard input ends (its worker is gone).
"""

import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession

from common import environment as variables
from common.errors import BadInput
from common.files import keep_private
from workers.batch.jobs.spark import comparison, extract, rollup, statistics, training
from workers.batch.jobs.spark.events import Request
from workers.host.environment import select_needed, use_narrow_environment
from workers.host.spark import (
    archive_options,
    build_driver_settings,
    build_java_options,
    build_private_settings,
    build_spark_environment,
)

HEAP = "2g"
LOCAL_MASTER = "local[*]"
PARTITIONS = 8
_JAVA_OPTIONS = "-XX:+UseParallelGC -Djava.net.preferIPv4Stack=true"
_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.session.timeZone": "UTC",
    # Partitions small enough to be sorted in memory; small ones are merged.
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.adaptive.enabled": "true",
    # The archive has many small files: opening one is cheap here, so many are read at a time.
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.files.maxPartitionBytes": "64m",
    # A corrupt file is reported (workers.history.event_archive) and never skipped silently.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.task.maxFailures": "1",
}


def start_session(master: str, folder: Path, heap: str = HEAP) -> SparkSession:
    """Start a session on `master`; `folder` is for Spark's scratch files."""
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every connection
    variables.PROCESS.update(build_spark_environment(folder / "java"))
    kept = archive_options(variables.PROCESS["JAVA_HOME"])
    builder = SparkSession.builder.master(master).appName("weir batch jobs")
    local = {
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": " ".join((_JAVA_OPTIONS, *kept, build_java_options(folder))),
        "spark.executorEnv.PYTHONPATH": variables.PROCESS[variables.PYTHONPATH],
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for key, value in {
        **_SETTINGS,
        **local,
        **build_driver_settings(master),
        **build_private_settings(master, folder),
    }.items():
        builder = builder.config(key, value)
    with use_narrow_environment(select_needed(variables.PROCESS)):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


MAKERS = {
    "stream_statistics": statistics.make,
    "metric_rollup": rollup.make,
    "forecast_training": training.make,
    "replay_extract": extract.make,
    "stretch_comparison": comparison.make,
}
PROGRESS_SECONDS = 1.0


class Answers:
    """JSON lines to the worker, from two threads."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._lock = out, threading.Lock()

    def __call__(self, document: dict[str, Any]) -> None:
        with self._lock:
            self._out.write(json.dumps(document) + "\n")
            self._out.flush()


def count_stage_progress(spark: SparkSession, group: str) -> dict[str, int]:
    """Return the progress of the group: {"stages", "stages_done", "tasks", "tasks_done"}."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [info for job in tracker.getJobIdsForGroup(group) if (info := tracker.getJobInfo(job))]
    stages = [made for job in jobs for stage in job.stageIds if (made := tracker.getStageInfo(stage))]
    return {
        "stages": sum(len(job.stageIds) for job in jobs),
        "stages_done": sum(stage.numTasks == stage.numCompletedTasks for stage in stages),
        "tasks": sum(stage.numTasks for stage in stages),
        "tasks_done": sum(stage.numCompletedTasks for stage in stages),
    }


@contextmanager
def report_progress(spark: SparkSession, request: Request, answer: Answers) -> Iterator[None]:
    """Report the progress each second while inside. Rows are those of the input, by share of the tasks."""
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(PROGRESS_SECONDS):
            progress = count_stage_progress(spark, request.token)
            share = progress["tasks_done"] / progress["tasks"] if progress["tasks"] else 0.0
            answer({"progress": {**progress, "rows": int(request.input_rows * share), "share": share}})

    spark.sparkContext.setJobGroup(request.token, request.job)
    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def serve(requests: Iterator[dict[str, Any]], answer: Answers, spark_of: Callable[[Path], SparkSession]) -> None:
    """Process one request after the other; a failed one does not end the process."""
    for document in requests:
        request = Request(**{**document, "data": Path(document["data"])})
        try:
            spark = spark_of(request.data)
            with report_progress(spark, request, answer):
                made = MAKERS[request.job](spark, request)
        except BadInput as error:
            answer({"refused": {"field": error.field, "message": error.message}})
        except Exception as error:  # any failure: the worker decides on another try
            answer({"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"})
        else:
            answer({"made": asdict(made)})


def read_requests(source: TextIO) -> Iterator[dict[str, Any]]:
    """Yield requests as they arrive.

    Another thread reads them, so that the end of input ends the process even while Spark works: its worker was killed,
    and the result is not needed.
    """
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        for line in source:
            requests.put(json.loads(line))
        os._exit(0)  # Spark's Java detects the end of its own input and exits, too

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield requests.get()


def main() -> None:
    keep_private()
    # Output of Spark and Java on standard output must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    sessions: dict[Path, SparkSession] = {}

    def get_session(data: Path) -> SparkSession:
        if data not in sessions:
            master = variables.SPARK_MASTER.get_text() or LOCAL_MASTER
            sessions[data] = start_session(master, data / "spark")
        return sessions[data]

    serve(read_requests(sys.stdin), Answers(answers), get_session)


if __name__ == "__main__":
    main()
