"""The assignments of replicas: ranges of containers, cut by the replicas' shares.

A dispatch cuts what it admits into one contiguous piece for each replica, in proportion to its share. Blocks stay
whole, and a small dispatch goes to one replica only; the difference is carried over to the next dispatch, so that the
shares are right on average for any sizes.

One script moves the cursor and stores the assignments, and only if no other process did so in the meantime. An event is
therefore in exactly one assignment, whichever process crashes in between.

| key | type | holds |
|---|---|---|
| `weir:pipeline:cursor:{app}` | hash | `tick`, `cursor` (JSON) |
| `weir:pipeline:assigned:{app}:{replica}` | stream | entry `{tick}-0`: `d` an assignment (JSON) |
| `weir:pipeline:room:{app}` | hash | `in_flight_events`: dispatched, no result yet; see `result_queue` |
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import redis
from redis.typing import EncodableT

from common.errors import WeirError
from queues import keys
from queues.control.connection import await_entry
from queues.control.replies import expect_bytes
from queues.lua.script import load_script
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.cursor import BEGINNING, Cursor, Entry, VersionedDocument

MIN_PIECE_EVENTS = 2_000  # fewer events are not worth a batch of their own
MAX_BATCH_ASSIGNMENTS = 64
MAX_OWED_EVENTS = 200_000.0


class AssignedRange(NamedTuple):
    """Entries of one container (`queue/node`), after one id and up to and including another."""

    container: str
    after: str
    through: str
    events: int


class Assignment(VersionedDocument, frozen=True):
    """The piece of one dispatch that one replica processes.

    watermark_us: the settled event time while this piece is not processed, which is the watermark of the previous
    dispatch. at_seconds: when it was dispatched (seconds since 1970).
    """

    what = "assignment"
    tick: int
    parts: tuple[AssignedRange, ...]
    watermark_us: int | None
    controls: Controls
    at_seconds: float = 0.0

    @property
    def events(self) -> int:
        return sum(part.events for part in self.parts)


def divide(
    start: Cursor,
    end: Cursor,
    admitted: Mapping[str, tuple[Entry, ...]],
    shares: Mapping[str, float],
    now_seconds: float,
) -> tuple[dict[str, Assignment], dict[str, float]]:
    """Divide the admitted entries, and return each replica's assignment and the events now owed to it.

    Every admitted entry is in exactly one assignment. shares: replica → share, at least one of them above 0.
    """
    # Each entry is a range of its own that starts where the previous one ends.
    waiting: list[AssignedRange] = []
    for container, entries in sorted(admitted.items()):
        after = start.ids.get(container, BEGINNING)
        for entry in entries:
            waiting.append(AssignedRange(container, after, entry.entry_id, entry.events))
            after = entry.entry_id
    left = sum(part.events for part in waiting)
    whole = sum(shares.values())
    targets = {name: share / whole * left + start.owed.get(name, 0.0) for name, share in shares.items() if share > 0}
    assignments: dict[str, Assignment] = {}
    place = 0
    order = sorted(targets, key=lambda name: (-targets[name], name))
    for name in order:
        first, taken = place, 0
        last = name == order[-1]
        while place < len(waiting) and (last or left < MIN_PIECE_EVENTS or taken < targets[name]):
            taken, left = taken + waiting[place].events, left - waiting[place].events
            place += 1
        targets[name] = max(-MAX_OWED_EVENTS, min(MAX_OWED_EVENTS, targets[name] - taken))
        if place > first:  # unreadable entries may count no events
            parts = _join_ranges(waiting[first:place])
            assignments[name] = Assignment(end.tick, parts, start.watermark_us, end.controls, now_seconds)
    return assignments, targets


def _join_ranges(parts: list[AssignedRange]) -> tuple[AssignedRange, ...]:
    joined: list[AssignedRange] = []
    for part in parts:
        if joined and joined[-1].container == part.container:
            before = joined.pop()
            part = AssignedRange(part.container, before.after, part.through, before.events + part.events)
        joined.append(part)
    return tuple(joined)


class DispatcherOvertaken(WeirError):  # noqa: N818
    """Raised when another process dispatches for the same application."""


class Dispatches:
    """Reads and writes the keys above."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control, self._application = control, application
        self._cursor = keys.PIPELINE_CURSOR.build(application)
        self._room = keys.PIPELINE_ROOM.build(application)
        self._dispatch = control.register_script(load_script("pipeline/dispatch"))

    def load_cursor(self) -> Cursor | None:
        """Return the cursor, or None before the first dispatch. Raises `BadInput` if it is of another version."""
        text = self._control.hget(self._cursor, "cursor")
        return Cursor.from_document(json.loads(text)) if text else None

    def commit(self, start: Cursor, end: Cursor, assignments: Mapping[str, Assignment]) -> None:
        """Commit a dispatch, atomically and once: committing the same dispatch again changes nothing.

        Raises `DispatcherOvertaken` if the cursor is at neither `start` nor `end`.
        """
        places = [self._cursor, self._room, *(self._stream(name) for name in assignments)]
        documents = [json.dumps(assignment.to_document()) for assignment in assignments.values()]
        events = sum(assignment.events for assignment in assignments.values())
        written: list[EncodableT] = [start.tick, end.tick, json.dumps(end.to_document()), events, *documents]
        if not self._dispatch(keys=places, args=written):
            raise DispatcherOvertaken("another process dispatches events for this application. Stop it.")

    def list_after(self, replica: str, tick: int, count: int | None = None) -> list[Assignment]:
        """Return a replica's assignments of later dispatches, in order."""
        entries = expect_bytes(self._control).xrange(self._stream(replica), f"({tick}-0", "+", count)
        return [Assignment.from_document(json.loads(fields[b"d"])) for _, fields in entries]

    def list_batch(self, replica: str, tick: int) -> list[Assignment]:
        """Return a replica's first assignments of later dispatches, as many as make a batch; at least one, if any."""
        batch: list[Assignment] = []
        events = 0
        for assignment in self.list_after(replica, tick, MAX_BATCH_ASSIGNMENTS):
            events += assignment.events
            if batch and events > assignment.controls.admit_events_per_batch:
                break
            batch.append(assignment)
        return batch

    def await_after(self, replica: str, tick: int, seconds: float) -> None:
        """Wait until a replica has an assignment of a later dispatch, or until the time is over."""
        await_entry(self._control, self._stream(replica), f"{tick}-0", seconds)

    def list_replicas(self) -> set[str]:
        """Return every replica that ever had an assignment."""
        return {name.decode().rpartition(":")[2] for name in self._control.scan_iter(self._stream("*"))}

    def forget(self, replica: str, tick: int) -> None:
        """Remove the assignments up to `tick`, whose results are in the queue."""
        self._control.xtrim(self._stream(replica), minid=f"{tick + 1}-0", approximate=False)

    def clear(self) -> None:
        streams = list(self._control.scan_iter(self._stream("*")))
        self._control.delete(self._cursor, *streams)

    def _stream(self, replica: str) -> str:
        return keys.PIPELINE_ASSIGNED.build(self._application, replica)
