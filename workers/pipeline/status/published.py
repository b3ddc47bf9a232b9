"""The data that the pipeline process publishes: its status (`weir:pipeline`) and its log (`weir:pipeline:log`).

The status is written after each inter-event batch and every second. The top level has the figures of all applications
together, and `applications` has each one's own document (`status`). A process that starts reads cumulative counts
there. The log has the newest lines; those of the previous process stay until there are newer ones, since they say why
it ended.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import redis

from common.stored_document import BadDocument, decode_document, decode_readable_document, encode_document
from queues import keys
from queues.control.replies import expect_bytes
from workers.documents.pipeline import (
    FAILED,
    RUNNING,
    STALLED,
    STARTING,
    STOPPED,
    STOPPING,
    ApplicationStatus,
    LogLine,
    PatternCounts,
    PipelineLog,
    PipelineReport,
)
from workers.pipeline.declaration.declaration import Application
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.status.status import StatusBoard

WORST_FIRST = (FAILED, STALLED, STOPPED, STARTING, STOPPING, RUNNING)
SUMMED = (
    "in_per_second",
    "kept_per_second",
    "alerts_per_second",
    "waiting_events",
    "offered_per_second",
    "shed_per_second",
)
GREATEST = ("batch", "batch_seconds", "watermark_lag_seconds")


class Statuses:
    """The boards of all applications. Thread-safe."""

    def __init__(
        self,
        control: redis.Redis,
        clock: Callable[[], float] = time.time,
        ahead_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """ahead_seconds: how far the host's clock is ahead of the control server's."""
        self._control, self._clock, self._ahead_seconds = control, clock, ahead_seconds
        self._lock = threading.Lock()
        self._boards: dict[str, StatusBoard] = {}
        left = decode_readable_document(PipelineReport, expect_bytes(control).get(keys.PIPELINE))
        self._state = STARTING
        # How the previous process ended without a request: its error, or that it exited unexpectedly.
        self._end_before: str | None = None
        if left is not None and left.state == FAILED and left.error:
            self._end_before = left.error.rstrip(".")  # it is part of a sentence
        elif left is not None and left.state != STOPPING:
            silent_seconds = max(0.0, clock() - left.at)
            self._end_before = f"its process exited unexpectedly, {silent_seconds:,.0f} s before this start"
        self._error = self._end_before
        self._before = {**left.carried, **left.applications} if left else {}
        self.cores: int | None = None  # number of Spark's cores

    def board(self, application: Application) -> StatusBoard:
        """Return a board for an application, or for another version of it, which continues the counts."""
        name = application.name
        former = self._boards.get(name)
        before = (
            former.document(expect_bytes(self._control).hgetall(keys.HEARTBEATS)) if former else self._before.get(name)
        )
        results, dispatches = ResultQueue(self._control, name), Dispatches(self._control, name)
        board = StatusBoard(results, dispatches, application, before, self.write)
        with self._lock:
            self._boards[name] = board
        return board

    @property
    def stuck_seconds(self) -> float:
        """Return the value of the application that is stuck for longest."""
        with self._lock:
            return max((board.stuck_seconds for board in self._boards.values()), default=0.0)

    def forget(self, name: str) -> None:
        """Forget an application that is no longer requested."""
        with self._lock:
            self._boards.pop(name, None)
            self._before.pop(name, None)

    def expect(self, wanted: Collection[str]) -> None:
        """Drop what is carried for applications that will not start."""
        with self._lock:
            for name in self._before.keys() - set(wanted):
                del self._before[name]

    def enter_state(self, state: str, error: str | None = None) -> None:
        """Set the state of the process, which is shown as long as it has no application.

        Starting says how the previous process ended, unless that was requested.
        """
        self._state, self._error = state, self._end_before if state == STARTING else error
        self.write()

    def write(self) -> None:
        """Write the current status. If the control server is unavailable or full, the age of the status shows it."""
        try:
            heartbeats = expect_bytes(self._control).hgetall(keys.HEARTBEATS)
            with self._lock:
                documents = {name: board.document(heartbeats) for name, board in self._boards.items()}
                carried = {name: left for name, left in self._before.items() if name not in documents}
            self._control.set(keys.PIPELINE, encode_document(self.document(documents, carried)))
        except redis.RedisError:
            return

    def document(
        self, applications: dict[str, ApplicationStatus], carried: dict[str, ApplicationStatus]
    ) -> PipelineReport:
        every = list(applications.values())
        states = [application.state for application in every]
        if self._state == FAILED or not states:
            states = [self._state]
        own = self._error if self._state == FAILED or not applications else None
        errors = [own, *(application.error for application in every)]
        together: dict[str, Any] = {name: _join_known(sum, every, name) for name in SUMMED}
        together |= {name: _join_known(max, every, name) for name in GREATEST}
        outbox: Counter[str] = Counter()
        for application in every:
            outbox.update(application.outbox)
        free = [application.result_queue.free_bytes for application in every]
        known = [room for room in free if room is not None]
        return PipelineReport(
            state=min(states, key=WORST_FIRST.index),
            error=next((error for error in errors if error), None),
            hindrance=next((application.hindrance for application in every if application.hindrance), None),
            at=self._clock(),
            ahead_seconds=round(self._ahead_seconds(), 3),
            **together,
            late_events=sum(application.late_events for application in every),
            outbox=dict(outbox),
            shed_events=sum(application.shed_events for application in every),
            cores=self.cores,
            result_free_bytes=sum(known) if known else None,
            patterns={
                name: PatternCounts(matches=pattern.matches, quiet=pattern.quiet, seconds=pattern.seconds)
                for application in every
                for name, pattern in application.patterns.items()
            },
            rules=[rule for application in every for rule in application.rules],
            skipped_nodes=sorted({node for application in every for node in application.skipped_nodes}),
            applications=applications,
            carried=carried,
        )


class ReplicaStatuses(Statuses):
    """The boards of a replica process. Only its watchdog reads them, because the main process writes the status."""

    def write(self) -> None:
        with self._lock, suppress(redis.RedisError):
            for board in self._boards.values():
                board.document({})


def _join_known(join: Callable[[list[float]], float], applications: list[ApplicationStatus], name: str) -> float | None:
    values = [value for application in applications if (value := getattr(application, name)) is not None]
    return join(values) if values else None


MAX_LINES = 60
MAX_TEXT = 400


class RecentLog(logging.Handler):
    """A handler of the root logger. `write` is called every second, and writes what is new."""

    def __init__(self, control: redis.Redis) -> None:
        super().__init__(logging.INFO)
        self._control = control
        self._lines = deque(_load_lines(control), MAX_LINES)
        self._is_new = False

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())[:MAX_TEXT]
        self._lines.append(LogLine(at=round(record.created, 3), level=record.levelname, text=text))
        self._is_new = True

    def write(self) -> None:
        """Write new lines. If the control server is unavailable or full, they are written with the next line."""
        if not self._is_new:
            return
        self._is_new = False
        try:
            self._control.set(keys.PIPELINE_LOG, encode_document(PipelineLog(lines=list(self._lines))))
        except redis.RedisError:
            self._is_new = True


def list_newest_lines(control: redis.Redis) -> list[LogLine]:
    return list(reversed(_load_lines(control)))


def _load_lines(control: redis.Redis) -> list[LogLine]:
    try:
        text = expect_bytes(control).get(keys.PIPELINE_LOG)
        return decode_document(PipelineLog, text, "log").lines if text else []
    except (BadDocument, redis.ConnectionError, redis.TimeoutError):
        return []
