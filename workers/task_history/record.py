"""A task's record, and how the events of its life change it.

Adapters translate the events of their system to `TaskUpdate`. The history knows no Celery.
"""

import ast
from dataclasses import dataclass
from typing import Any

import msgspec

from workers.task_history.fingerprint import compute_fingerprint

SENT, RECEIVED, STARTED = "sent", "received", "started"
SUCCEEDED, FAILED, RETRIED, REVOKED, REJECTED = "succeeded", "failed", "retried", "revoked", "rejected"
STATES = (SENT, RECEIVED, STARTED, SUCCEEDED, FAILED, RETRIED, REVOKED, REJECTED)
FINISHED = frozenset({SUCCEEDED, FAILED, REVOKED, REJECTED})
OPEN = "open"  # in searches: any state of a task that has not finished


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUpdate:
    """The facts about a task that one event contains; None: unknown. All texts are redacted and bounded by the adapter.

    state: the state that the task enters. at: when Weir received the event; time: when it was sent, by the clock of
    the worker or producer; both in seconds since 1970. are_exact: whether args and kwargs are complete and unaltered.
    parent, root: "" for none.
    """

    id: str
    state: str
    at: float
    time: float | None = None
    worker: str = ""
    name: str = ""
    args: str | None = None
    kwargs: str | None = None
    are_exact: bool = False
    queue: str = ""
    eta: str = ""
    retries: int | None = None
    parent: str | None = None
    root: str | None = None
    run_seconds: float | None = None
    result: str = ""
    error: str = ""
    traceback: str = ""


class TaskRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A task with everything that its events have said.

    at: when Weir last heard of it. sent, received, started, ended: by the clocks of producer and worker. All are
    seconds since 1970; None: not heard. args, kwargs: as Python prints them, redacted; `are_exact` if they are complete
    and unaltered. error, traceback: of the last failure or retry. failure: the fingerprint of a failed task's group.
    retried: how many attempts ended with a retry.
    """

    id: str
    state: str
    at: float
    plant: str = ""
    name: str = ""
    worker: str = ""
    queue: str = ""
    args: str = ""
    kwargs: str = ""
    are_exact: bool = False
    result: str = ""
    error: str = ""
    traceback: str = ""
    failure: str = ""
    sent: float | None = None
    received: float | None = None
    started: float | None = None
    ended: float | None = None
    eta: str = ""
    run_seconds: float | None = None
    retries: int = 0
    retried: int = 0
    parent: str = ""
    root: str = ""

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    @property
    def wait_seconds(self) -> float | None:
        """Return the time between receipt and start, by the worker's clock; None if it is unknown."""
        if self.started is None or self.received is None:
            return None
        return max(0.0, self.started - self.received)

    def parse_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Return the positional and named arguments; None if they are not known exactly."""
        if not self.are_exact:
            return None
        try:
            args, kwargs = ast.literal_eval(self.args or "()"), ast.literal_eval(self.kwargs or "{}")
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
        if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
            return None
        return (tuple(args), kwargs) if all(isinstance(name, str) for name in kwargs) else None


def apply_update(record: TaskRecord | None, change: TaskUpdate) -> TaskRecord:
    """Return the record with the change; a new one if there is none. The given record is changed.

    Events of one worker arrive in their order. Those of the producer and of the worker of the next attempt may overtake
    them: `sent` never takes a state back, and `retried` ends only the attempt that it is about.
    """
    if record is None:
        record = TaskRecord(id=change.id, state=change.state, at=0.0)
        is_overtaken = False
    else:
        is_overtaken = _is_overtaken(record, change)
    record.at = max(record.at, round(change.at * 1_000) / 1_000)
    _describe(record, change)
    if change.state == SENT:
        record.sent = change.time if record.sent is None else record.sent
        return record
    if change.state == RETRIED:
        record.retried += 1
    if is_overtaken:
        record.error = record.error or change.error
        return record
    if change.state == RECEIVED:
        _begin_attempt(record, change)
    elif change.state == STARTED:
        record.started, record.ended, record.run_seconds = change.time, None, None
    else:
        _end_attempt(record, change)
    record.state = change.state
    record.worker = change.worker or record.worker
    return record


def _is_overtaken(record: TaskRecord, change: TaskUpdate) -> bool:
    """Return whether the change is about an earlier time than the state of the record."""
    if change.state == SENT:
        return True
    return change.state == RETRIED and record.retries > record.retried


def _describe(record: TaskRecord, change: TaskUpdate) -> None:
    """Take what stays the same during the life of a task."""
    record.name = change.name or record.name
    record.queue = change.queue or record.queue
    record.eta = change.eta or record.eta
    record.parent = change.parent or record.parent
    record.root = change.root or record.root
    if change.args is not None and change.kwargs is not None:
        record.args, record.kwargs, record.are_exact = change.args, change.kwargs, change.are_exact
    if change.retries is not None:
        record.retries = max(record.retries, change.retries)
        # The end of the last attempt may still be on its way; those of earlier attempts were lost.
        record.retried = max(record.retried, record.retries - 1)


def _begin_attempt(record: TaskRecord, change: TaskUpdate) -> None:
    record.received, record.started, record.ended, record.run_seconds = change.time, None, None, None
    record.result = ""


def _end_attempt(record: TaskRecord, change: TaskUpdate) -> None:
    record.ended, record.run_seconds = change.time, change.run_seconds
    if record.run_seconds is None and change.time is not None and record.started is not None:
        record.run_seconds = max(0.0, change.time - record.started)
    record.result, record.traceback = change.result, change.traceback
    is_failed = change.state == FAILED
    record.failure = compute_fingerprint(record.name, change.error, change.traceback) if is_failed else ""
    record.error = change.error or ("" if change.state == SUCCEEDED else record.error)
