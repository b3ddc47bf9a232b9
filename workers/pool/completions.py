"""What the short-lived workers of a host report to it: when they begin, what they complete, when they end.

`weir:done:{host}`: a stream with an entry for each begin (`b`), each round of handled blocks (`d`: JSON
[[instant, events], …], complete up to `u`), and each end (`e`), of process `p`. Instants are of the host's
monotonic clock (s). The host reads it each second (`workers.pool.hosts`), and nobody else; it is cut to
MOST_ENTRIES.
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

MOST_ENTRIES = 4_096
RETAINED_SECONDS = 3_600
Completion = tuple[float, int]  # instant, events


@dataclass(frozen=True, slots=True)
class CompletionReporter:
    """A worker's line to its host; without a host (no pool runs it) nobody is notified."""

    host: str
    slot: int
    monotonic: Callable[[], float] = time.monotonic

    @classmethod
    def open(cls, host: str | None) -> "CompletionReporter":
        """The line of the process that asks."""
        return cls(host or "", os.getpid())

    def began(self, pipe: Any) -> None:
        """Said with the worker's begin, in its pipeline."""
        self._report(pipe, {"b": self.monotonic()})
        if self.host:
            pipe.expire(keys.DONE.build(self.host), RETAINED_SECONDS)

    def record_completions(self, client: Any, done: Sequence[Completion]) -> None:
        """Said after each round of blocks, so that nobody waits for the end of a long worker."""
        if done:
            self._report(client, {"d": orjson.dumps(done), "u": self.monotonic()})

    def record_end(self, pipe: Any) -> None:
        """Said with the worker's end, in its pipeline."""
        self._report(pipe, {"e": self.monotonic()})

    def _report(self, client: Any, fields: Mapping[str, Any]) -> None:
        if self.host:
            entry = {"p": self.slot, **fields}
            client.xadd(keys.DONE.build(self.host), entry, maxlen=MOST_ENTRIES, approximate=True)


def note_time(busy: BusyTime, fields: Mapping[bytes, bytes]) -> None:
    """Add a stream's entry to the time at work: a begin, or an end."""
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
