"""What the short-lived workers of a host report to it: when they start, what they complete, when they end.

`weir:done:{host}`: a stream with an entry for each start (`b`), each round of handled blocks (`d`: JSON
[[instant, events], …], complete up to `u`), and each end (`e`), of process `p`. Instants are of the host's monotonic
clock (s). Only the host reads it, each second (`workers.pool.hosts`); it is cut to MAX_ENTRIES.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from queues import keys
from workers.pool.busy_time import BusyTime
from workers.pool.departures import BEGAN, DONE, ENDED, Departures, WorkerNote

MAX_ENTRIES = 4_096
RETAINED_SECONDS = 3_600
Completion = tuple[float, int]  # instant, events


@dataclass(frozen=True, slots=True)
class CompletionReporter:
    """A worker's reports to its host; without a host (no pool runs it) they are dropped."""

    host: str
    slot: int
    monotonic: Callable[[], float] = time.monotonic

    @classmethod
    def open(cls, host: str | None) -> "CompletionReporter":
        """Return the reporter of the calling process."""
        return cls(host or "", os.getpid())

    def record_start(self, pipe: Any) -> None:
        """Report the worker's start, in its pipeline."""
        self._report(pipe, {"b": self.monotonic()})
        if self.host:
            pipe.expire(keys.DONE.build(self.host), RETAINED_SECONDS)

    def record_completions(self, client: Any, done: Sequence[Completion]) -> None:
        """Report after each round of blocks, so that the host need not wait for the end of a long worker."""
        if done:
            self._report(client, {"d": orjson.dumps(done), "u": self.monotonic()})

    def record_end(self, pipe: Any) -> None:
        """Report the worker's end, in its pipeline."""
        self._report(pipe, {"e": self.monotonic()})

    def _report(self, client: Any, fields: Mapping[str, Any]) -> None:
        if self.host:
            entry = {"p": self.slot, **fields}
            client.xadd(keys.DONE.build(self.host), entry, maxlen=MAX_ENTRIES, approximate=True)


def note_time(busy: BusyTime, fields: Mapping[bytes, bytes]) -> None:
    """Add a stream's entry to the busy time: a start, or an end."""
    if b"b" in fields:
        busy.begin(int(fields[b"p"]), float(fields[b"b"]))
    elif b"e" in fields:
        busy.end(int(fields[b"p"]), float(fields[b"e"]))


def note(departures: Departures, fields: Mapping[bytes, bytes]) -> None:
    """Add a stream's entry to the departures."""
    slot = int(fields[b"p"])
    if b"b" in fields:
        at = float(fields[b"b"])
        departures.add([WorkerNote(at, slot, BEGAN)], at, slot)
    elif b"e" in fields:
        at = float(fields[b"e"])
        departures.add([WorkerNote(at, slot, ENDED)], at, slot)
    else:
        done = [WorkerNote(float(at), slot, DONE, int(events)) for at, events in orjson.loads(fields[b"d"])]
        departures.add(done, float(fields[b"u"]), slot)
