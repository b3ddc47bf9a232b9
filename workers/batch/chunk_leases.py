"""The lease of the worker that does a chunk: its fencing number, and what may only be done while it is held.

Claims are compare-and-swap in the database: each gets a number greater than all of its run, and every write
shows the number. A process that was paused, overtaken and revived finds its number outdated and leaves no
trace. The rename that shows its files happens inside the transaction that has just checked the number under
the row's lock, so nobody overtakes it in between.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from django.db import models, transaction

from queues.checks import storable
from queues.errors import BadInput, WeirError
from workers.batch.jobs import files
from workers.batch.jobs.job import Made, Surroundings
from workers.models import Chunk, Run, Task

# A worker beats each second; one silent for so long has lost its chunk to whoever asks next.
LOST_SECONDS = 15.0
BEAT_SECONDS = 1.0
MOST_TRIES = 3


class ChunkYielded(WeirError):  # noqa: N818
    """The chunk is given back because a scheduled run waits for a worker: stop, and leave no trace."""


class ChunkLeaseLost(WeirError):  # noqa: N818
    """Another holds the chunk, or its run has ended: stop, and leave no trace."""


def _stopwatch() -> Callable[[], float]:
    """Return a function that gives the seconds since now."""
    began = time.monotonic()
    return lambda: time.monotonic() - began


@dataclass
class ChunkLease:
    """A claimed chunk. `clock` gives the time; `note` gets the progress of each beat.

    max_seconds: how long the work may take, by `elapsed_seconds`. must_yield: asked with each beat; whether
    the worker is to give the chunk back.
    """

    chunk: Chunk
    surroundings: Surroundings
    clock: Callable[[], datetime]
    note: Callable[[Mapping[str, Any]], None] = lambda progress: None
    progress: dict[str, Any] = field(default_factory=dict)
    max_seconds: float | None = None
    elapsed_seconds: Callable[[], float] = field(default_factory=_stopwatch)
    must_yield: Callable[[], bool] = lambda: False

    @property
    def token(self) -> str:
        """Names what this lease writes before it is shown: nobody else ever has the same."""
        return f"{self.chunk.run_id}-{self.chunk.pk}-{self.chunk.fence}"

    @property
    def parameters(self) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], self.chunk.run.parameters)

    @property
    def content(self) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], self.chunk.content)

    def check(self, progress: Mapping[str, Any] | None = None) -> None:
        """Say that work goes on, and how far it is; to be called at least each few seconds, and before
        anything is written. Raises ChunkLeaseLost, ChunkYielded, and BadInput for work that takes too long.
        """
        now = self.clock()
        if self.max_seconds is not None and self.elapsed_seconds() > self.max_seconds:
            raise BadInput(
                "",
                f"The chunk took longer than {self.max_seconds:,.0f} s. Ask for less, such as fewer days.",
            )
        if progress is not None:
            self.progress = dict(progress)
        beat_at = self.chunk.beat_at
        is_recent = beat_at is not None and abs(now - beat_at) < timedelta(seconds=BEAT_SECONDS)
        if progress is None and is_recent:
            # Asked often: the number alone is compared, nothing is written.
            if not self._ours().exists():
                raise self._overtaken()
            return
        if not self._write(beat_at=now):
            raise self._overtaken()
        self.chunk.beat_at = now
        self.note(self.progress)
        if self.must_yield():
            raise ChunkYielded(f"Chunk {self.chunk.identifier} of run {self.chunk.run_id} is given back.")

    @contextmanager
    def guard_transaction(self) -> Iterator[None]:
        """A transaction in which the lease is ours from first to last: its row is locked before the number is
        compared. Raises Overtaken, and then nothing of it was done.
        """
        with transaction.atomic():
            # An update, so that the row is locked on every database.
            if not self._write(beat_at=self.clock()):
                raise self._overtaken()
            yield

    def commit(self, output: Made, seconds: float) -> None:
        """Show what was made and note the chunk as done, both or neither. Raises Overtaken."""
        data = self.surroundings.data
        try:
            with self.guard_transaction():
                Chunk.objects.filter(pk=self.chunk.pk).update(
                    state=Chunk.State.DONE,
                    rows=output.rows,
                    seconds=seconds,
                    skipped=storable(output.skipped),
                    error="",
                )
                Run.objects.filter(pk=self.chunk.run_id).update(chunks_done=models.F("chunks_done") + 1)
                # Last: should the commit fail after it, the chunk is done again and replaces the same files.
                files.show(data, output.outputs)
        except ChunkLeaseLost:
            files.discard(data, output.outputs.values())
            raise

    def fail(self, error: str, final: bool) -> bool:
        """Give the chunk up: for good, or to be tried again until its tries are over. False where it is not
        ours any more.
        """
        tries = self.chunk.tries + 1
        over = final or tries >= MOST_TRIES
        state = Chunk.State.FAILED if over else Chunk.State.PENDING
        return self._write(state=state, tries=tries, error=storable(error))

    def give_back(self) -> bool:
        """Leave the chunk to the next worker; this counts as no try. False where it is not ours any more."""
        return self._write(state=Chunk.State.PENDING, yields=self.chunk.yields + 1)

    def _write(self, **values: Any) -> bool:
        """Whether the chunk is ours, and was written to; how long it took so far is noted too."""
        values["spent_seconds"] = self.chunk.spent_seconds + self.elapsed_seconds()
        with transaction.atomic():
            # Locked before the number is compared: PostgreSQL asks no sub-query (the run is another table)
            # again for a row that it had to wait for, and would take the number that was ours before.
            if self._ours().select_for_update(of=("self",)).first() is None:
                return False
            return bool(Chunk.objects.filter(pk=self.chunk.pk).update(**values))

    def _ours(self) -> models.QuerySet[Chunk]:
        chunk = self.chunk
        rows = Chunk.objects.filter(
            pk=chunk.pk, fence=chunk.fence, state=Chunk.State.WORKING, run__state=Run.State.RUNNING
        )
        # A single-instance task has one writer in all: the newest claim of the run.
        return rows.filter(run__fence=chunk.fence) if chunk.run.single_instance else rows

    def _overtaken(self) -> ChunkLeaseLost:
        return ChunkLeaseLost(
            f"Chunk {self.chunk.identifier} of run {self.chunk.run_id} is not this worker's any more."
        )


def claim(run_id: int, worker: str, now: datetime) -> Chunk | None:
    """The next chunk for a worker: one nobody has, or one whose worker is silent; None when there is none,
    or when as many are at work as are wanted.
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
            return _take(run, chunk, worker, now)
        return None


def is_beating(now: datetime) -> models.Q:
    """Chunks whose workers said something lately; what a clock said that was ahead is not lately."""
    near = timedelta(seconds=LOST_SECONDS)
    return models.Q(beat_at__gt=now - near, beat_at__lt=now + near)


def _gives_up(chunk: Chunk) -> bool:
    """Count that a worker fell silent at it, as one does that is killed for its memory; whether that was the
    last try.
    """
    tries = chunk.tries + 1
    over = tries >= MOST_TRIES
    error = f"Its worker died or fell silent {MOST_TRIES} times." if over else ""
    state = Chunk.State.FAILED if over else chunk.state
    Chunk.objects.filter(pk=chunk.pk, fence=chunk.fence).update(tries=tries, state=state, error=error)
    return over


def _count_active_chunks(run: Run, now: datetime) -> int:
    """How many chunks are being worked at: of the task where it is single-instance, else of the run."""
    working = Chunk.objects.filter(is_beating(now), state=Chunk.State.WORKING)
    return (
        working.filter(run__task_id=run.task_id).count()
        if run.single_instance
        else working.filter(run=run).count()
    )


def _count_wanted_workers(run: Run) -> int:
    return 1 if run.single_instance else run.workers_wanted


def _take(run: Run, chunk: Chunk, worker: str, now: datetime) -> Chunk | None:
    number = run.fence + 1
    Run.objects.filter(pk=run.pk).update(fence=number)
    # As it was read, or not at all: its worker may have ended it while we waited for the row.
    as_read = Chunk.objects.filter(pk=chunk.pk, fence=chunk.fence, state=chunk.state)
    if not as_read.update(state=Chunk.State.WORKING, fence=number, worker=worker, beat_at=now, error=""):
        return None
    return Chunk.objects.select_related("run", "run__task").get(pk=chunk.pk)
