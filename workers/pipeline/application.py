"""The pipeline process: `python -m workers.pipeline.application [--application FILE] [--reset]`.

| variable | default | meaning |
|---|---|---|
| REDIS_URL | redis://127.0.0.1:6379/0 | the control server |
| WEIR_DATA | .weir | the checkpoint is kept in its folder `pipeline` |
| SPARK_MASTER | local[2] | where Spark runs |
| WEIR_PIPELINE_TRIGGER_SECONDS | 2.5 | a batch begins this long after the one before, or when that one ends |
| WEIR_PIPELINE_APPLICATION | the shipped one | the declaration (YAML) |
| WEIR_PIPELINE_PATIENCE_SECONDS | 30 | how long a planned batch waits for a node that went away |

SIGTERM: nothing more is admitted, the running batch ends, the process ends with 0. Bad input ends it with 2.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import redis
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from queues.client import Client
from queues.errors import BadInput, WeirError
from workers.pipeline.batch import BatchWork
from workers.pipeline.checkpoint import Checkpoint, lock_checkpoint, open_checkpoint, reset_checkpoint
from workers.pipeline.declaration import Application, read_application
from workers.pipeline.outbox import Outbox
from workers.pipeline.rules import check_rules
from workers.pipeline.session import start_session
from workers.pipeline.source import FORMAT
from workers.pipeline.state import StateStore
from workers.pipeline.status import KEY as STATUS
from workers.pipeline.status import StatusBoard

SHIPPED = Path(__file__).parent / "applications" / "performance.yaml"
PRODUCER = "pipeline"  # the name that complex events are published under
STOPPING_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 15.0

log = logging.getLogger("weir.pipeline")


@dataclass(frozen=True)
class Settings:
    """What the environment says."""

    control_url: str
    data: Path
    master: str
    trigger_seconds: float
    declaration: Path
    patience_seconds: float

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Settings":
        """Raises BadInput naming the variable."""
        return cls(
            environment.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
            Path(environment.get("WEIR_DATA", ".weir")).resolve(),
            environment.get("SPARK_MASTER", "local[2]"),
            _seconds(environment, "WEIR_PIPELINE_TRIGGER_SECONDS", 2.5),
            Path(environment.get("WEIR_PIPELINE_APPLICATION", SHIPPED)),
            _seconds(environment, "WEIR_PIPELINE_PATIENCE_SECONDS", 30.0),
        )


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 3600:
        raise BadInput(name, f"takes seconds from 0.1 to 3600, not {text!r}")
    return value


class PipelineProcess:
    """One run of the process: a session, and a query that is started again when it fails."""

    def __init__(self, settings: Settings, application: Application, control: redis.Redis) -> None:
        self._settings, self._application, self._control = settings, application, control
        self._folder = settings.data / "pipeline" / application.name
        self._hold_key = f"weir:pipeline:hold:{application.name}"
        self._stopping = threading.Event()
        self._store = StateStore(control, application.name)
        names = tuple(rule.name for rule in application.rules)
        patterns = tuple(pattern.name for pattern in application.patterns)
        self._status = StatusBoard(control, application.name, application.queues, names, patterns)

    def stop(self, *_: object) -> None:
        """Safe in a signal handler: only says so."""
        self._stopping.set()

    def run(self, reset: bool) -> None:
        """Until it is told to stop. Raises WeirError for what a restart can't mend."""
        with lock_checkpoint(self._folder):
            try:
                self._run(reset)
            except WeirError as error:
                self._status.turn("failed", str(error))
                raise

    def _run(self, reset: bool) -> None:
        self._status.turn("starting")
        if reset:
            reset_checkpoint(self._folder, self._control, self._application.name)
            self._store.clear()
        checkpoint = open_checkpoint(self._folder, self._control, self._application.name)
        settings = self._settings
        with Beat(self._status):
            spark = start_session(self._application.name, settings.master, settings.data / "pipeline")
            try:
                events = spark.readStream.format(FORMAT).options(**self._options()).load()
                check_rules(events, self._application.rules, self._application.columns)
                with Client(settings.control_url, producer=PRODUCER) as client:
                    self._keep_running(spark, checkpoint, Outbox(self._store, client, self._application.sink))
            finally:
                spark.stop()

    def _keep_running(self, spark: SparkSession, checkpoint: Checkpoint, outbox: Outbox) -> None:
        work = BatchWork(
            self._settings.control_url, self._application, checkpoint, self._store, outbox, self._status
        )
        pause_seconds = 1.0
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                self._control.delete(self._hold_key)
                query = self._start(spark, checkpoint, work)
                self._status.turn("running")
                self._watch(query, outbox)
            except (PySparkException, WeirError, redis.RedisError) as error:
                cause = work.failure or error
                work.failure = None
                if isinstance(cause, BadInput):
                    raise cause from None
                log.error("the query failed and is started again in %.0f s: %s", pause_seconds, cause)
                self._status.turn("failed", _sentence(cause))
                if time.monotonic() - started > 60:
                    pause_seconds = 1.0
                self._stopping.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    def _start(self, spark: SparkSession, checkpoint: Checkpoint, work: BatchWork) -> StreamingQuery:
        events = spark.readStream.format(FORMAT).options(**self._options()).load()
        writer = events.writeStream.foreachBatch(work).option("checkpointLocation", checkpoint.location)
        return writer.trigger(processingTime=f"{self._settings.trigger_seconds} seconds").start()

    def _options(self) -> dict[str, str]:
        return {
            "control": self._settings.control_url,
            "queues": ",".join(self._application.queues),
            "controls": json.dumps(self._application.controls.to_document()),
            "hold": self._hold_key,
            "patience": str(self._settings.patience_seconds),
        }

    def _watch(self, query: StreamingQuery, outbox: Outbox) -> None:
        """Until the query fails or the process is to stop."""
        while not self._stopping.wait(1.0):
            if not query.isActive:
                raise query.exception() or WeirError("the query ended by itself")
            outbox.retry()
        self._status.turn("stopping")
        self._end(query)

    def _end(self, query: StreamingQuery) -> None:
        """Admits nothing more, lets the running batch finish, and stops between two batches."""
        deadline = time.monotonic() + STOPPING_SECONDS
        self._control.set(self._hold_key, "stopping", ex=60)
        pause = threading.Event()
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            pause.wait(0.05)
        query.stop()
        self._control.delete(self._hold_key)


class Beat:
    """Writes the status each second, whatever the main thread waits for."""

    def __init__(self, status: StatusBoard) -> None:
        self._status = status
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="status", daemon=True)

    def __enter__(self) -> "Beat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(1.0):
            self._status.write()


def _sentence(error: Exception) -> str:
    """The line of an error that says most: Spark wraps the cause in pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("queues.errors.", "workers."))]
    line = told[-1].split(": ", 1)[-1] if told else next(iter(lines), type(error).__name__)
    return line[:500]


def _declared(path: Path, control: redis.Redis) -> Application:
    """The declaration; one that is wrong is also shown as the pipeline's status."""
    try:
        return read_application(path)
    except BadInput as error:
        failed = {"state": "failed", "error": str(error), "at": time.time()}
        control.set(STATUS, json.dumps(failed))
        raise


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.pipeline.application")
    parser.add_argument(
        "--application", type=Path, help="declaration (YAML) in place of WEIR_PIPELINE_APPLICATION"
    )
    parser.add_argument("--reset", action="store_true", help="begin anew at the oldest events still waiting")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="{asctime} {levelname} {name}: {message}", style="{")
    try:
        settings = Settings.of(os.environ)
        with redis.Redis.from_url(settings.control_url, socket_timeout=10.0) as control:
            application = _declared(given.application or settings.declaration, control)
            process = PipelineProcess(settings, application, control)
            signal.signal(signal.SIGTERM, process.stop)
            signal.signal(signal.SIGINT, process.stop)
            process.run(given.reset)
    except BadInput as error:
        log.error("%s", error)
        return 2
    except (WeirError, redis.RedisError) as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
