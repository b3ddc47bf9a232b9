"""The pipeline process: `python -m workers.pipeline.application [--application FILE] [--reset]`.

| variable | default | meaning |
|---|---|---|
| REDIS_URL | redis://127.0.0.1:6379/0 | the control server |
| WEIR_DATA | .weir | the checkpoint is kept in its folder `pipeline` |
| SPARK_MASTER | local[2] | where Spark runs |
| WEIR_PIPELINE_TRIGGER_SECONDS | 0.5 | a batch begins this long after the one before, or when that one ends |
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

from queues.errors import BadInput, WeirError
from workers.pipeline.checkpoint import Checkpoint, lock_checkpoint, open_checkpoint, reset_checkpoint
from workers.pipeline.declaration import Application, read_application
from workers.pipeline.rules import check_rules, empty_events
from workers.pipeline.running import Running
from workers.pipeline.session import start_session
from workers.pipeline.status import KEY as STATUS
from workers.pipeline.status import StatusBoard

SHIPPED = Path(__file__).parent / "applications" / "performance.yaml"
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
            _seconds(environment, "WEIR_PIPELINE_TRIGGER_SECONDS", 0.5),
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
    """One run of the process: a session, and an application that is started again when it fails."""

    def __init__(self, settings: Settings, application: Application, control: redis.Redis) -> None:
        self._settings, self._application, self._control = settings, application, control
        self._folder = settings.data / "pipeline" / application.name
        self._stopping = threading.Event()
        self._status = StatusBoard(control, application)

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
        settings, application = self._settings, self._application
        if reset:
            reset_checkpoint(self._folder, self._control, application.name)
        checkpoint = open_checkpoint(self._folder, self._control, application.name)
        with Beat(self._status):
            spark = start_session(application.name, settings.master, settings.data / "pipeline")
            try:
                events = empty_events(spark, application.layout)
                check_rules(
                    events, application.rules, application.graph.columns, application.controls.criteria
                )
                self._keep_running(spark, checkpoint)
            finally:
                spark.stop()

    def _keep_running(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        pause_seconds = 1.0
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                self._run_once(spark, checkpoint)
            except (PySparkException, WeirError, redis.RedisError) as error:
                if isinstance(error, BadInput):
                    raise
                log.error("the pipeline failed and is started again in %.0f s: %s", pause_seconds, error)
                self._status.turn("failed", _sentence(error))
                if time.monotonic() - started > 60:
                    pause_seconds = 1.0
                self._stopping.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    def _run_once(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        """Until something fails or the process is to stop."""
        settings = self._settings
        times = (settings.trigger_seconds, settings.patience_seconds)
        running = Running(spark, settings.control_url, self._application, checkpoint, self._status, *times)
        try:
            self._status.turn("running")
            while not self._stopping.wait(1.0):
                running.check()
            self._status.turn("stopping")
        finally:
            running.end()


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
