"""The dispatches of one application, on the control server: the cursor, and what each replica was given.

A dispatch moves the cursor and hands out its assignments in one script, and only if nobody else did
meanwhile: an event is in exactly one assignment, whoever died in between.

| key | type | holds |
|---|---|---|
| `weir:pipeline:cursor:{app}` | hash | `tick`, `cursor` (JSON) |
| `weir:pipeline:assigned:{app}:{replica}` | stream | entry `{tick}-0`: `d` an assignment (JSON) |
| `weir:pipeline:room:{app}` | hash | `in_flight_events`: dispatched, no result yet; see `result_queue` |
"""

import json
from collections.abc import Mapping

import redis

from queues.errors import WeirError
from workers.pipeline.dispatch.assignment import Assignment
from workers.pipeline.dispatch.cursor import Cursor

# KEYS cursor, room, then a stream per assignment; ARGV tick before, tick, cursor, events, an assignment each.
_DISPATCH = """
local tick = redis.call('HGET', KEYS[1], 'tick') or '0'
if tick ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'tick', ARGV[2], 'cursor', ARGV[3])
redis.call('HINCRBY', KEYS[2], 'in_flight_events', ARGV[4])
for i = 3, #KEYS do redis.call('XADD', KEYS[i], ARGV[2] .. '-0', 'd', ARGV[i + 2]) end
return 1
"""


class DispatcherOvertaken(WeirError):  # noqa: N818
    """Somebody else dispatches for the same application."""


class Dispatches:
    """Reads and writes the keys above."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control = control
        self._cursor = f"weir:pipeline:cursor:{application}"
        self._room = f"weir:pipeline:room:{application}"
        self._assigned = f"weir:pipeline:assigned:{application}"
        self._dispatch = control.register_script(_DISPATCH)

    def cursor(self) -> Cursor | None:
        """None before the first dispatch. Raises BadInput when it is of another version."""
        text = self._control.hget(self._cursor, "cursor")
        return Cursor.from_document(json.loads(text)) if text else None

    def commit(self, start: Cursor, end: Cursor, assignments: Mapping[str, Assignment]) -> None:
        """Whole or not at all. Raises Overtaken when the cursor is not at `start` any more."""
        keys = [self._cursor, self._room, *(self._stream(name) for name in assignments)]
        documents = [json.dumps(each.to_document()) for each in assignments.values()]
        events = sum(each.events for each in assignments.values())
        written = [start.tick, end.tick, json.dumps(end.to_document()), events, *documents]
        if not self._dispatch(keys=keys, args=written):
            raise DispatcherOvertaken("another process dispatches for this application; stop one of them.")

    def after(self, replica: str, tick: int, count: int | None = None) -> list[Assignment]:
        """A replica's assignments of later dispatches, in order."""
        entries = self._control.xrange(self._stream(replica), f"({tick}-0", "+", count)
        return [Assignment.from_document(json.loads(fields[b"d"])) for _, fields in entries]

    def replicas(self) -> set[str]:
        """Every replica that was ever given something."""
        return {name.decode().rpartition(":")[2] for name in self._control.scan_iter(f"{self._assigned}:*")}

    def forget(self, replica: str, tick: int) -> None:
        """Assignments through `tick`: their results are in the queue."""
        self._control.xtrim(self._stream(replica), minid=f"{tick + 1}-0", approximate=False)

    def clear(self) -> None:
        """Forgets everything."""
        streams = list(self._control.scan_iter(f"{self._assigned}:*"))
        self._control.delete(self._cursor, *streams)

    def _stream(self, replica: str) -> str:
        return f"{self._assigned}:{replica}"
