"""The status of the pipeline process: key `weir:pipeline` on the control server, JSON.

It is written after each inter-event batch and every second. The top level has the figures of all applications together,
and `applications` has each one's own document (`status`). A process that starts reads cumulative counts there.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

import redis

from common.redis_types import Fields
from common.stored_document import BadDocument, decode_document, encode_document
from queues import keys
from workers.documents.pipeline import (
    FAILED,
    RUNNING,
    STALLED,
    STARTING,
    STOPPED,
    STOPPING,
    ApplicationStatus,
    PatternCounts,
    PatternStatus,
    PipelineReport,
)
from workers.pipeline.declaration.declaration import Application
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
        left = _load_previous(cast(bytes | None, control.get(keys.PIPELINE)))
        self._state = STARTING
        self._end_before = self._error = _end_of(left, clock()) if left else None
        self._before = {**left.carried, **left.applications} if left else {}

    def board(self, application: Application) -> StatusBoard:
        """Return a board for an application, or for another version of it, which continues the counts."""
        name = application.name
        former = self._boards.get(name)
        before = former.document(self._load_heartbeats()) if former else self._before.get(name)
        board = StatusBoard(self._control, application, before, self.write)
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
        """Write the current status.

        If the control server is unavailable or full, the age of the status shows it.
        """
        try:
            heartbeats = self._load_heartbeats()
            with self._lock:
                documents = {name: board.document(heartbeats) for name, board in self._boards.items()}
                carried = {name: left for name, left in self._before.items() if name not in documents}
            self._control.set(keys.PIPELINE, encode_document(self.document(documents, carried)))
        except redis.RedisError:
            return

    def _load_heartbeats(self) -> Fields:
        return cast(Fields, self._control.hgetall(keys.HEARTBEATS))

    def document(
        self, applications: dict[str, ApplicationStatus], carried: dict[str, ApplicationStatus]
    ) -> PipelineReport:
        """Return the document of all applications together."""
        states = [application.state for application in applications.values()]
        if self._state == FAILED or not states:
            states = [self._state]
        own = self._error if self._state == FAILED or not applications else None
        errors = [own, *(application.error for application in applications.values())]
        together = {name: _list_known(sum, applications, name) for name in SUMMED}
        together |= {name: _list_known(max, applications, name) for name in GREATEST}
        free = [application.result_queue.free_bytes for application in applications.values()]
        known = [room for room in free if room is not None]
        patterns = {
            name: pattern for application in applications.values() for name, pattern in application.patterns.items()
        }
        return PipelineReport(
            state=min(states, key=WORST_FIRST.index),
            error=next((error for error in errors if error), None),
            hindrance=next(
                (application.hindrance for application in applications.values() if application.hindrance), None
            ),
            at=self._clock(),
            ahead_seconds=round(self._ahead_seconds(), 3),
            **together,
            late_events=sum(application.late_events for application in applications.values()),
            outbox=_sum_counts(application.outbox for application in applications.values()),
            shed_events=sum(application.shed_events for application in applications.values()),
            result_free_bytes=sum(known) if known else None,
            patterns={name: _build_counts(pattern) for name, pattern in patterns.items()},
            rules=[rule for application in applications.values() for rule in application.rules],
            skipped_nodes=sorted({node for application in applications.values() for node in application.skipped_nodes}),
            applications=applications,
            carried=carried,
        )


def _load_previous(text: bytes | None) -> PipelineReport | None:
    """Return the status that the previous process left; None if it is missing or unreadable."""
    try:
        return decode_document(PipelineReport, text, "pipeline") if text else None
    except BadDocument:
        return None


def _end_of(left: PipelineReport, now: float) -> str | None:
    """Return how the previous process ended without a request: its error, or that it exited unexpectedly."""
    if left.state == STOPPING:
        return None
    if left.state == FAILED and left.error:
        return left.error.rstrip(".")  # it is part of a sentence
    return f"its process exited unexpectedly, {max(0.0, now - left.at):,.0f} s before this start"


def _list_known(join: Callable[[list[Any]], Any], applications: dict[str, ApplicationStatus], name: str) -> Any:
    values = [value for application in applications.values() if (value := getattr(application, name)) is not None]
    return join(values) if values else None


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _build_counts(pattern: PatternStatus) -> PatternCounts:
    return PatternCounts(matches=pattern.matches, quiet=pattern.quiet, seconds=pattern.seconds)
