"""The lease of the worker that processes a chunk: its fencing number, and actions that require it.

Claims are compare-and-swap operations in the database: each gets a number greater than all before in its run, and every
write presents the number. A process that was paused, overtaken, and resumed finds its number outdated and leaves no
trace. The rename that publishes its files happens inside the transaction that has just checked the number under the
row's lock, so that nothing overtakes it in between.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import models, transaction

from common.checks import make_storable
from common.errors import BadInput, WeirError
from workers.batch import files
from workers.batch.job import ChunkResult, JobContext
from workers.models import Chunk, Run, Task

# A worker sends a heartbeat each second; after this silence the next worker that asks gets its chunk.
LOST_SECONDS = 15.0
BEAT_SECONDS = 1.0
MAX_TRIES = 3


class ChunkYielded(WeirError):  # noqa: N818
    """Raised when the chunk is given back because a scheduled run waits: stop, and leave no trace."""


class ChunkLeaseLost(WeirError):  # noqa: N818
    """Raised when another worker has the chunk, or its run has ended: stop, and leave no trace."""


def _stopwatch() -> Callable[[], float]:
    """Return a function that gives the seconds since now."""
    began = time.monotonic()
    return lambda: time.monotonic() - began


@dataclass
class ChunkLease:
    """A claimed chunk.

    `clock` gives the time; `note` gets the progress of each heartbeat. max_seconds: the maximum duration of the work,
    by `elapsed_seconds`. must_yield: called with each heartbeat; whether the worker must give the chunk back.
    """

    chunk: Chunk
    surroundings: JobContext
    clock: Callable[[], datetime]
    note: Callable[[Mapping[str, Any]], None] = lambda progress: None
    progress: dict[str, Any] = field(default_factory=dict)
    max_seconds: float | None = None
    elapsed_seconds: Callable[[], float] = field(default_factory=_stopwatch)
    must_yield: Callable[[], bool] = lambda: False

    @property
    def identifier(self) -> str:
        return self.chunk.identifier

    @property
    def token(self) -> str:
        """Return a unique name for what this lease writes before it is published."""
        return f"{self.chunk.run_id}-{self.chunk.pk}-{self.chunk.fence}"

    @property
    def parameters(self) -> Mapping[str, Any]:
        parameters: Mapping[str, Any] = self.chunk.run.parameters
        return parameters

    @property
    def content(self) -> Mapping[str, Any]:
        content: Mapping[str, Any] = self.chunk.content
        return content

    def check(self, progress: Mapping[str, Any] | None = None) -> None:
        """Send a heartbeat with the progress; call it at least every few seconds and before any write.

        Raises ChunkLeaseLost, ChunkYielded, and BadInput for work that takes too long.
        """
        now = self.clock()
        if self.max_seconds is not None and self.elapsed_seconds() > self.max_seconds:
            raise BadInput(
                "",
                f"The chunk took longer than {self.max_seconds:,.0f} s. Reduce the input, such as the number of days.",
            )
        if progress is not None:
            self.progress = dict(progress)
        beat_at = self.chunk.beat_at
        is_recent = beat_at is not None and abs(now - beat_at) < timedelta(seconds=BEAT_SECONDS)
        if progress is None and is_recent:
            # This is called often: only the number is compared, nothing is written.
            if not self._check_ownership().exists():
                raise self._build_lost_error()
            return
        if not self._write(beat_at=now):
            raise self._build_lost_error()
        self.chunk.beat_at = now
        self.note(self.progress)
        if self.must_yield():
            raise ChunkYielded(f"Chunk {self.chunk.identifier} of run {self.chunk.run_id} was returned to the queue.")

    @contextmanager
    def guard_transaction(self) -> Iterator[None]:
        """Run a transaction in which the lease is held. Raises ChunkLeaseLost, and then nothing was done.

        The chunk's row is locked before the number is compared.
        """
        with transaction.atomic():
            # An update, so that the row is locked on every database.
            if not self._write(beat_at=self.clock()):
                raise self._build_lost_error()
            yield

    def commit(self, output: ChunkResult, seconds: float) -> None:
        """Publish the output and mark the chunk as done, both or neither. Raises ChunkLeaseLost."""
        data = self.surroundings.data
        try:
            with self.guard_transaction():
                Chunk.objects.filter(pk=self.chunk.pk).update(
                    state=Chunk.State.DONE,
                    rows=output.rows,
                    seconds=seconds,
                    skipped=make_storable(output.skipped),
                    error="",
                )
                Run.objects.filter(pk=self.chunk.run_id).update(chunks_done=models.F("chunks_done") + 1)
                # This is last: if the commit fails after it, the chunk is done again and replaces the same files.
                files.show(data, output.outputs)
        except ChunkLeaseLost:
            files.discard(data, output.outputs.values())
            raise

    def fail(self, error: str, final: bool) -> bool:
        """Give the chunk up, permanently or for another try until its tries are used up.

        Return False where the lease is no longer held.
        """
        tries = self.chunk.tries + 1
        over = final or tries >= MAX_TRIES
        state = Chunk.State.FAILED if over else Chunk.State.PENDING
        return self._write(state=state, tries=tries, error=make_storable(error))

    def give_back(self) -> bool:
        """Leave the chunk to the next worker without counting a try. Return False where the lease is no longer held."""
        return self._write(state=Chunk.State.PENDING, yields=self.chunk.yields + 1)

    def _write(self, **values: object) -> bool:
        """Update the chunk, including its duration so far; return whether the lease is still held."""
        values["spent_seconds"] = self.chunk.spent_seconds + self.elapsed_seconds()
        with transaction.atomic():
            # The row is locked before the number is compared. PostgreSQL does not repeat a sub-query (the run
            # is another table) for a row that it had to wait for, and would take the former number.
            if self._check_ownership().select_for_update(of=("self",)).first() is None:
                return False
            return bool(Chunk.objects.filter(pk=self.chunk.pk).update(**values))

    def _check_ownership(self) -> models.QuerySet[Chunk]:
        chunk = self.chunk
        rows = Chunk.objects.filter(
            pk=chunk.pk, fence=chunk.fence, state=Chunk.State.WORKING, run__state=Run.State.RUNNING
        )
        # A single-instance task has one writer in total: the newest claim of the run.
        return rows.filter(run__fence=chunk.fence) if chunk.run.single_instance else rows

    def _build_lost_error(self) -> ChunkLeaseLost:
        return ChunkLeaseLost(
            f"Chunk {self.chunk.identifier} of run {self.chunk.run_id} no longer belongs to this worker."
        )


def claim(run_id: int, worker: str, now: datetime) -> Chunk | None:
    """Return the next chunk for a worker: one without a worker, or one whose worker is silent.

    None when there is none, or when the wanted number of workers is busy.
    """
    with transaction.atomic():
        # The task's row is the lock of all claims of its runs (SQLite's transactions exclude each other).
        if Task.objects.select_for_update().filter(runs__pk=run_id).first() is None:
            return None
        run = Run.objects.select_related("task").get(pk=run_id)
        if run.state != Run.State.RUNNING or _count_active_chunks(run, now) >= _count_wanted_workers(run):
            return None
        free = models.Q(state=Chunk.State.PENDING) | (models.Q(state=Chunk.State.WORKING) & ~is_beating(now))
        for chunk in run.chunks.filter(free).order_by("place"):
            if chunk.state == Chunk.State.WORKING and _gives_up(chunk):
                continue
            number = run.fence + 1
            Run.objects.filter(pk=run.pk).update(fence=number)
            # The update requires the row as it was read: its worker may have ended it while we waited for the row.
            as_read = Chunk.objects.filter(pk=chunk.pk, fence=chunk.fence, state=chunk.state)
            if not as_read.update(state=Chunk.State.WORKING, fence=number, worker=worker, beat_at=now, error=""):
                return None
            return Chunk.objects.select_related("run", "run__task").get(pk=chunk.pk)
        return None


def is_beating(now: datetime) -> models.Q:
    """Return a filter of chunks with a recent heartbeat. A time stamp from a clock that was ahead does not count."""
    near = timedelta(seconds=LOST_SECONDS)
    return models.Q(beat_at__gt=now - near, beat_at__lt=now + near)


def _gives_up(chunk: Chunk) -> bool:
    """Count that a worker fell silent at the chunk, for example killed for its memory use.

    Return whether that was the last try.
    """
    tries = chunk.tries + 1
    over = tries >= MAX_TRIES
    error = f"The chunk's worker ended or stopped responding {MAX_TRIES} times." if over else ""
    state = Chunk.State.FAILED if over else chunk.state
    Chunk.objects.filter(pk=chunk.pk, fence=chunk.fence).update(tries=tries, state=state, error=error)
    return over


def _count_active_chunks(run: Run, now: datetime) -> int:
    """Count the chunks being processed: of the task where it is single-instance, else of the run."""
    working = Chunk.objects.filter(is_beating(now), state=Chunk.State.WORKING)
    return working.filter(run__task_id=run.task_id).count() if run.single_instance else working.filter(run=run).count()


def _count_wanted_workers(run: Run) -> int:
    return 1 if run.single_instance else run.workers_wanted
