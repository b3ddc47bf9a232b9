"""Weir's own work in the task history: ended runs of batch tasks, and dead letters of its queues."""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime

import pyarrow as pa
from django.db import DatabaseError

from common.checks import make_storable
from workers.task_history.fingerprint import compute_fingerprint
from workers.task_history.record import FAILED, REVOKED, SUCCEEDED, TaskRecord
from workers.task_history.recorder import record_finished

# State of a run → state of a task.
RUN_STATES = {"done": SUCCEEDED, "failed": FAILED, "cancelled": REVOKED}
MAX_ID, MAX_ARGUMENTS, MAX_ERROR = 255, 1_100, 500
MAX_LETTERS = 1_000  # of one block
logger = logging.getLogger(__name__)


def record_run(
    plant: str,
    run: int,
    task: str,
    state: str,
    parameters: object,
    error: str,
    created_at: datetime,
    started_at: datetime | None,
    ended_at: datetime,
) -> None:
    """Store an ended run. A run that was resumed is stored at each end."""
    ended = ended_at.timestamp()
    started = None if started_at is None else started_at.timestamp()
    record = TaskRecord(
        id=f"run-{run}-{ended:.0f}",
        state=RUN_STATES[state],
        at=round(ended, 3),
        name=task,
        kwargs=repr(parameters)[:MAX_ARGUMENTS],
        error=make_storable(error)[:MAX_ERROR],
        failure=compute_fingerprint(task, error, "") if state == "failed" else "",
        received=created_at.timestamp(),
        started=started,
        ended=ended,
        run_seconds=None if started is None else max(0.0, ended - started),
        root=f"run-{run}",
    )
    record_finished(plant, [record])


def record_dead_letters(plant: str, queue: str, rows: Sequence[tuple[pa.RecordBatch, str]], now: float) -> None:
    """Store events that became dead letters. The letters are on their node, so a failure is only logged."""
    try:
        record_finished(plant, list(_iterate_letters(queue, rows, now))[:MAX_LETTERS])
    except DatabaseError as error:
        logger.warning("Dead letters of %s can't be stored in the task history: %s", queue, error)


def _iterate_letters(queue: str, rows: Sequence[tuple[pa.RecordBatch, str]], now: float) -> Iterator[TaskRecord]:
    for batch, error in rows:
        for event_id, content in iterate_events(batch):
            yield build_letter_record(queue, f"handle {queue}", event_id, content, error, now, now)


def iterate_events(batch: pa.RecordBatch) -> Iterator[tuple[str, str]]:
    """Return the ID and the content of each event of a dead letter, at most MAX_LETTERS."""
    for event in batch.slice(0, MAX_LETTERS).to_pylist():
        content = {name: value for name, value in event.items() if value is not None and name not in ("id", "time")}
        yield str(event["id"]), repr(content)


def build_letter_record(
    queue: str, name: str, event_id: str, content: str, error: str, at: float, ended: float
) -> TaskRecord:
    """Return an event that became a dead letter as a failed task. name: what failed. Times: seconds since 1970."""
    return TaskRecord(
        id=make_storable(f"{queue}/{event_id}")[:MAX_ID],
        state=FAILED,
        at=round(at, 3),
        name=name,
        queue=queue,
        kwargs=make_storable(content)[:MAX_ARGUMENTS],
        error=make_storable(error)[:MAX_ERROR],
        failure=compute_fingerprint(name, error, ""),
        ended=ended,
    )
