"""Events that can't be worked (attributes not as declared, a time far in the future): to the dead letters of
the container they came from, with the cause, once.

A task keeps them on the control server, bound to its attempt at the batch: another one, with a later clock or
another declaration, may find other faults. When the batch's result is published they are due, and are
delivered until their node has them. Who delivers again delivers nothing: a segment takes the dead letters of
an entry once.

| key | type | holds |
|---|---|---|
| `weir:pipeline:faults:{app}:{replica}:{tick}` | hash | `queue/node/entry/block/place` → cause and rows |
"""

from typing import cast

import pyarrow as pa
import redis
from redis.typing import EncodableT

from queues import keys
from queues.errors import NodeFull, NodeUnavailable
from queues.lua.script import script
from queues.redis_types import Fields
from queues.segments.dead_letters import DeadLetters
from queues.topology import KnownTopology, Topology
from workers.pipeline.events.arrow_blob import decode, encode
from workers.pipeline.events.containers import Faults, Nodes

WORKER = "pipeline"

_Letters = dict[bytes, tuple[str, list[pa.RecordBatch]]]
"""Of one entry: field → (cause, events)."""


class FaultStore:
    """The keys above, of one application."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control, self._application = control, application
        self._put = control.register_script(script("pipeline/put_result"))
        self._known = KnownTopology()

    def keep(self, replica: str, tick: int, attempt: str, faults: Faults) -> None:
        """What a task of an attempt found; nothing where that attempt is over. The same entry again replaces
        what was kept of it.
        """
        kept: dict[str, bytes] = {
            "/".join((*origin, str(place))): _one_line(cause) + encode(rows)
            for origin, found in faults.found.items()
            for place, (rows, cause) in enumerate(found)
        }
        if kept:
            room = keys.PIPELINE_ROOM.of(self._application)
            written: list[EncodableT] = [replica, attempt, *(part for each in kept.items() for part in each)]
            self._put(keys=[room, self._key(replica, tick)], args=written)

    def deliver(self, nodes: Nodes, published: dict[str, int]) -> int:
        """Everything of published batches to its segment; how many events. A node that is away is tried at
        the next call.
        """
        delivered = 0
        topology: Topology | None = None
        for key in self._control.scan_iter(self._key("*", "*")):
            replica, tick = key.decode().rsplit(":", 2)[1:]
            if published.get(replica, 0) < int(tick):
                continue
            topology = topology or self._known.read(self._control.get(keys.TOPOLOGY))
            for entry, letters in _by_entry(cast(Fields, self._control.hgetall(key))).items():
                delivered += self._letters(nodes, topology, key, entry, letters)
        return delivered

    def _letters(self, nodes: Nodes, topology: Topology, key: bytes, entry: str, letters: _Letters) -> int:
        queue, node, entry_id, block_id = entry.split("/", 3)  # a block that is none may be named anything
        rows = [(batch, cause) for cause, batches in letters.values() for batch in batches]
        if node in topology.nodes:
            try:
                segment = nodes.segment(queue, topology.nodes[node].url)
                DeadLetters(segment).add(entry_id, WORKER, block_id, rows)
            except (NodeUnavailable, NodeFull):
                return 0
        self._control.hdel(key, *letters)
        return sum(batch.num_rows for batch, _ in rows)

    def abandon(self, replica: str, tick: int) -> None:
        """What attempts before have kept, of a batch that another one begins."""
        self._control.delete(self._key(replica, tick))

    def clear(self) -> None:
        """Forgets everything: what it holds is read again."""
        if found := list(self._control.scan_iter(self._key("*", "*"))):
            self._control.delete(*found)

    def _key(self, replica: str, tick: int | str) -> str:
        return keys.PIPELINE_FAULTS.of(self._application, replica, tick)


def _by_entry(found: Fields) -> dict[str, _Letters]:
    entries: dict[str, _Letters] = {}
    for name, value in found.items():
        cause, _, data = value.partition(b"\n")
        entry = name.decode().rpartition("/")[0]
        entries.setdefault(entry, {})[name] = (cause.decode(), decode(data))
    return entries


def _one_line(cause: str) -> bytes:
    """A cause as it is kept: to its end of line."""
    return cause.replace("\n", " ").encode(errors="backslashreplace") + b"\n"
