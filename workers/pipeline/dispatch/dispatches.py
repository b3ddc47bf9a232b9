"""The dispatches of one application on the control server: the cursor, and each replica's assignments.

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
from typing import cast

import redis
from redis.typing import EncodableT

from common.errors import WeirError
from common.redis_types import Entries
from queues import keys
from queues.control.connection import await_entry
from queues.lua.script import load_script
from workers.pipeline.dispatch.assignment import Assignment
from workers.pipeline.dispatch.cursor import Cursor


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
        """Return the cursor, or None before the first dispatch.

        Raises `BadInput` if it is of another version.
        """
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
            raise DispatcherOvertaken("another process dispatches events for this application; stop it.")

    def list_after(self, replica: str, tick: int, count: int | None = None) -> list[Assignment]:
        """Return a replica's assignments of later dispatches, in order."""
        entries = cast(Entries, self._control.xrange(self._stream(replica), f"({tick}-0", "+", count))
        return [Assignment.from_document(json.loads(fields[b"d"])) for _, fields in entries]

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
        """Remove everything."""
        streams = list(self._control.scan_iter(self._stream("*")))
        self._control.delete(self._cursor, *streams)

    def _stream(self, replica: str) -> str:
        return keys.PIPELINE_ASSIGNED.build(self._application, replica)
