"""The worker's side of a Spark process: it is started once per worker, asked chunk by chunk, and ended.

A process of its own, since a Spark context must never be made before a fork, nor in a Celery child.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from queues import environment as variables
from queues.errors import BadInput, WeirError
from workers.batch.jobs.job import Made, Surroundings, Work
from workers.host.environment import PIPELINE_PREFIX, python_path, select_needed

POLL_SECONDS = 0.5
STOP_SECONDS = 10.0
COMMAND = (sys.executable, "-m", "workers.batch.jobs.spark.process")
ROOT = Path(__file__).resolve().parents[4]


class SparkFailed(WeirError):  # noqa: N818
    """Spark, or its process, ended the chunk with an error; another try may go well."""


class SparkProcess:
    """The process, from the first chunk on."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def work(self, lease: Any) -> Made:
        """Do a lease's chunk. Raises BadInput, SparkFailed; Overtaken from the lease, Spark stopped first."""
        self._ask(lease)
        try:
            while True:
                if (answer := self._next(lease)) is not None:
                    return answer
        except Exception:
            # Overtaken, cancelled or failed, or a server was away: what Spark is doing now is for nobody, and
            # must not be taken for the next chunk's.
            self.close()
            raise

    def close(self) -> None:
        """End the process; safe when it is gone."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        self._process = None

    def _ask(self, lease: Any) -> None:
        process = self._process or self._start()
        request = {
            "job": self._job,
            "parameters": dict(lease.parameters),
            "content": dict(lease.content),
            "token": lease.token,
            "data": str(lease.surroundings.data),
        }
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError as error:
            self.close()
            raise SparkFailed(f"Spark's process takes no work: {error}") from None

    def _next(self, lease: Any) -> Made | None:
        """An answer, or None after the progress is passed on; the lease is checked each time."""
        try:
            answer = self._answers.get(timeout=POLL_SECONDS)
        except queue.Empty:
            lease.check()
            return None
        if answer is None:
            raise SparkFailed("Spark's process ended in the middle of a chunk.")
        if "progress" in answer:
            lease.check(answer["progress"])
            return None
        if "refused" in answer:
            raise BadInput(**answer["refused"])
        if "failed" in answer:
            raise SparkFailed(answer["failed"])
        return build_from_document(answer["made"])

    def _start(self) -> subprocess.Popen[str]:
        environment = select_needed(variables.PROCESS, {variables.SPARK_SECRET.name}, (PIPELINE_PREFIX,))
        process = self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, variables.PYTHONPATH: python_path(str(ROOT))},
            # A signal to the worker's group is the worker's to handle: it stops Spark in its own time.
            start_new_session=True,
        )
        self._answers = answers = queue.SimpleQueue[dict[str, Any] | None]()
        threading.Thread(target=_read, args=(process, answers), daemon=True).start()
        return process


def _read(process: subprocess.Popen[str], answers: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            answers.put(json.loads(line))
    except ValueError:
        pass  # closed under us, or killed in the middle of a line
    answers.put(None)


def build_from_document(document: Mapping[str, Any]) -> Made:
    """An answer's document as a value."""
    return Made(document["rows"], document["outputs"], tuple(document["skipped"]))


@contextmanager
def spark(job: str) -> Iterator[Work]:
    """The function that does chunks of a Spark job, as long as it is open."""
    process = SparkProcess(job)
    try:
        yield process.work
    finally:
        process.close()


def build_opener(job: str) -> Any:
    """For a job's declaration: how a worker opens it."""

    def open_in(surroundings: Surroundings) -> Any:
        return spark(job)

    return open_in
