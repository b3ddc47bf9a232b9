"""The worker's client of a Spark process, which is started once per worker and called for each chunk.

It is a separate process, because a Spark context must never be created before a fork or in a Celery child.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from common import environment as variables
from common.errors import BadInput, WeirError
from workers.batch.job import ChunkResult, HeldChunk, JobContext, Opened, Work
from workers.host.environment import PIPELINE_PREFIX, build_python_path, select_needed

POLL_SECONDS = 0.5
STOP_SECONDS = 10.0
COMMAND = (sys.executable, "-m", "workers.batch.jobs.spark.process")
ROOT = Path(__file__).resolve().parents[4]


class SparkFailed(WeirError):  # noqa: N818
    """Raised when Spark or its process failed at the chunk; another try may succeed."""


class SparkProcess:
    """The process, started for the first chunk."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def work(self, lease: HeldChunk) -> ChunkResult:
        """Process a lease's chunk. Raises BadInput, SparkFailed; ChunkLeaseLost from the lease, with Spark stopped."""
        self._ask(lease)
        try:
            while True:
                if (answer := self._take_next(lease)) is not None:
                    return answer
        except Exception:
            # The chunk was overtaken, cancelled, or failed, or a server was away: Spark's present work is
            # discarded, and its answer must not be taken for the next chunk's.
            self.close()
            raise

    def close(self) -> None:
        """End the process; this is safe when it has ended."""
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

    def _ask(self, lease: HeldChunk) -> None:
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
            raise SparkFailed(f"The Spark process does not accept work: {error}") from None

    def _take_next(self, lease: HeldChunk) -> ChunkResult | None:
        """Return an answer, or None after passing on the progress; the lease is checked each time."""
        try:
            answer = self._answers.get(timeout=POLL_SECONDS)
        except queue.Empty:
            lease.check()
            return None
        if answer is None:
            raise SparkFailed("The Spark process ended during a chunk.")
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
            env={**environment, variables.PYTHONPATH: build_python_path(str(ROOT))},
            # The worker handles a signal to its process group: it stops Spark when it is ready.
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
        pass  # closed in the meantime, or killed in the middle of a line
    answers.put(None)


def build_from_document(document: Mapping[str, Any]) -> ChunkResult:
    """Convert an answer's document to a value."""
    return ChunkResult(document["rows"], document["outputs"], tuple(document["skipped"]))


@contextmanager
def use_spark_process(job: str) -> Iterator[Work]:
    """Yield the function that processes chunks of a Spark job while inside."""
    process = SparkProcess(job)
    try:
        yield process.work
    finally:
        process.close()


def build_opener(job: str) -> Opened:
    def open_in(surroundings: JobContext) -> AbstractContextManager[Work]:
        return use_spark_process(job)

    return open_in
