"""What the pipeline says of itself: key `weir:pipeline` on the control server, JSON, after each batch and
each second. Unknown is null.

Rates are over the last WINDOW_SECONDS: `in_per_second` read, `kept_per_second` after the rules,
`alerts_per_second` complex events; per rule `in` and `out` a second. Per pattern `matches` and `quiet` count
on over restarts; `seconds` is the matcher's time for one candidate event.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis

from workers.pipeline.offset import Offset
from workers.pipeline.operators import BatchCount

KEY = "weir:pipeline"
WINDOW_SECONDS = 10.0
_COUNTED = ("inserted_events", "removed_events")


@dataclass(frozen=True)
class BatchRecord:
    """One finished batch. at: monotonic seconds."""

    at: float
    events: int
    kept: int
    alerts: int
    seconds: float
    rules: list[dict[str, Any]]


@dataclass
class Totals:
    """What counts on over restarts."""

    matches: dict[str, int] = field(default_factory=dict)
    quiet: dict[str, int] = field(default_factory=dict)
    late_events: int = 0

    @classmethod
    def read(cls, text: bytes | None) -> "Totals":
        """Of the status that a process before has left; nothing when it can't be read."""
        try:
            before = json.loads(text or b"{}")
            patterns = before.get("patterns", {})
            matches = {name: int(pattern["matches"]) for name, pattern in patterns.items()}
            quiet = {name: int(pattern["quiet"]) for name, pattern in patterns.items()}
            return cls(matches, quiet, int(before.get("late_events") or 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()


class StatusBoard:
    """Collects what happens and writes the status. Used by the driver's main thread and by the one that works
    batches.
    """

    def __init__(
        self,
        control: redis.Redis,
        application: str,
        queues: tuple[str, ...],
        rules: tuple[str, ...],
        patterns: tuple[str, ...],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control = control
        self._clock, self._monotonic = clock, monotonic
        self._application, self._queues, self._rules, self._patterns = application, queues, rules, patterns
        self._totals = Totals.read(control.get(KEY))
        self._records: deque[BatchRecord] = deque()
        self._started = monotonic()
        self._lock = threading.Lock()
        self._offset: Offset | None = None
        self._batch: int | None = None
        self._seconds_per_event: dict[str, float] = {}
        self._state, self._error = "starting", None
        self.outbox_events = 0

    def turn(self, state: str, error: str | None = None) -> None:
        """To starting, running, stopping or failed; written at once."""
        with self._lock:
            self._state, self._error = state, error
        self.write()

    def batch(self, batch: int, offset: Offset, count: BatchCount, rules: list[dict], seconds: float) -> None:
        """A batch has been worked."""
        alerts = sum(pattern.matches for pattern in count.patterns.values())
        record = BatchRecord(self._monotonic(), offset.events_total, count.kept, alerts, seconds, rules)
        with self._lock:
            self._batch, self._offset = batch, offset
            self._records.append(record)
            self._totals.late_events += count.late
            for name, pattern in count.patterns.items():
                self._totals.matches[name] = self._totals.matches.get(name, 0) + pattern.matches
                self._totals.quiet[name] = self._totals.quiet.get(name, 0) + pattern.quiet
                if pattern.candidates:
                    self._seconds_per_event[name] = pattern.seconds / pattern.candidates
        self.write()

    def write(self) -> None:
        """The status as of now. An unreachable control server is left to whoever watches the status' age."""
        try:
            heartbeats = self._control.hgetall("weir:heartbeats")
            self._control.set(KEY, json.dumps(self.document(heartbeats)))
        except (redis.ConnectionError, redis.TimeoutError):
            return

    def document(self, heartbeats: dict[bytes, bytes]) -> dict[str, Any]:
        with self._lock:
            now = self._monotonic()
            # One batch behind the window stays: a rate needs the time since the batch before.
            while len(self._records) > 1 and self._records[1].at < now - WINDOW_SECONDS:
                self._records.popleft()
            offset = self._offset
            return {
                "application": self._application,
                "state": self._state,
                "error": self._error,
                "at": self._clock(),
                "batch": self._batch,
                **self._rates(now),
                "batch_seconds": self._records[-1].seconds if self._records else None,
                "watermark_lag_seconds": self._lag(offset),
                "waiting_events": waiting_events(heartbeats, self._queues),
                "patterns": {name: self._pattern(name) for name in self._patterns},
                "late_events": self._totals.late_events,
                "outbox_events": self.outbox_events,
                "skipped_nodes": list(offset.skipped) if offset else [],
                "controls": offset.controls.to_document() if offset else None,
            }

    def _rates(self, now: float) -> dict[str, Any]:
        recent = [record for record in self._records if record.at >= now - WINDOW_SECONDS]
        window = min(WINDOW_SECONDS, max(now - self._started, 1.0))

        def rate(values: list[int]) -> float:
            return round(sum(values) / window, 2)

        return {
            "in_per_second": rate([record.events for record in recent]),
            "kept_per_second": rate([record.kept for record in recent]),
            "alerts_per_second": rate([record.alerts for record in recent]),
            "rules": [
                {
                    "name": name,
                    "in": rate([record.rules[place]["in"] for record in recent]),
                    "out": rate([record.rules[place]["out"] for record in recent]),
                }
                for place, name in enumerate(self._rules)
            ],
        }

    def _lag(self, offset: Offset | None) -> float | None:
        if offset is None or offset.watermark_us is None:
            return None
        return round(self._clock() - offset.watermark_us / 1_000_000, 3)

    def _pattern(self, name: str) -> dict[str, Any]:
        return {
            "matches": self._totals.matches.get(name, 0),
            "quiet": self._totals.quiet.get(name, 0),
            "seconds": self._seconds_per_event.get(name),
        }


def waiting_events(heartbeats: dict[bytes, bytes], queues: tuple[str, ...]) -> int | None:
    """What waits in the application's containers, by the nodes' last heartbeats; null without any."""
    found: list[int] = []
    for text in heartbeats.values():
        containers = json.loads(text).get("containers", {})
        for queue in queues:
            counters = containers.get(queue)
            if counters and all(counters.get(name) is not None for name in _COUNTED):
                found.append(counters["inserted_events"] - counters["removed_events"])
    return sum(found) if found else None
