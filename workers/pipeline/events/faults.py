"""Events that can't be processed (invalid attributes, a time far in the future).

They go to the dead letters of their container, with the cause, once. A task stores them on the control server, bound to
its attempt at the batch: another attempt, with a later clock or another declaration, may find other faults. They are
due when the result of the batch is published, and are delivered until their node has them. Delivering them again has no
effect, since a segment accepts the dead letters of an entry once.

| key | type | holds |
|---|---|---|
| `weir:pipeline:faults:{app}:{replica}:{tick}` | hash | `queue/node/entry/block/place` → cause and rows |
| `weir:pipeline:faulty:{app}` | set | `{replica}:{tick}` of the stored hashes |
"""

import pyarrow as pa
import redis
from redis.typing import EncodableT

from common.errors import NodeFull, NodeUnavailable
from queues import keys
from queues.control.replies import Fields, expect_bytes
from queues.lua.script import load_script
from queues.segments.dead_letters import DeadLetters
from queues.topology import KnownTopology, Topology
from workers.pipeline.events.containers import Faults, Nodes
from workers.pipeline.events.layout import decode, encode

WORKER = "pipeline"
AT_ONCE = 1_000  # keys scanned by one call

_DeadLetters = dict[bytes, tuple[str, list[pa.RecordBatch]]]
"""The faults of one entry: field → (cause, events)."""


class FaultStore:
    """The keys above, of one application."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control, self._application = control, application
        self._put = control.register_script(load_script("pipeline/put_faults"))
        self._delivered = control.register_script(load_script("pipeline/delivered_faults"))
        self._faulty = keys.PIPELINE_FAULTY.build(application)
        self._has_all = False  # whether the set of faulty batches includes what an older version has stored
        self._known = KnownTopology()

    def keep(self, replica: str, tick: int, attempt: str, faults: Faults) -> None:
        """Keep what a task of a current attempt found. The same entry again replaces what was kept of it."""
        kept: dict[str, bytes] = {
            "/".join((*origin, str(place))): (cause.replace("\n", " ").encode(errors="backslashreplace") + b"\n")
            + encode(rows)
            for origin, fault_rows in faults.rows.items()
            for place, (rows, cause) in enumerate(fault_rows)
        }
        if kept:
            room = keys.PIPELINE_ROOM.build(self._application)
            pairs = [part for kept_row in kept.items() for part in kept_row]
            written: list[EncodableT] = [replica, attempt, tick, *pairs]
            self._put(keys=[room, self._build_key(replica, tick), self._faulty], args=written)

    def deliver(self, nodes: Nodes, published: dict[str, int]) -> int:
        """Deliver the faults of published batches to their segments, and return the number of events.

        A node that is unreachable is tried again at the next call.
        """
        delivered = 0
        topology: Topology | None = None
        away: set[str] = set()  # nodes that accepted nothing: each further entry would cost another timeout
        for batch in sorted(self._list_faulty_batches()):
            replica, tick = batch.rsplit(":", 1)
            if published.get(replica, 0) < int(tick):
                continue
            topology = topology or self._known.read(self._control.get(keys.TOPOLOGY))
            faults_by_entry = _group_by_entry(expect_bytes(self._control).hgetall(self._build_key(replica, tick)))
            for entry, letters in faults_by_entry.items():
                delivered += self._store_letters(nodes, topology, batch, entry, letters, away)
        return delivered

    def _list_faulty_batches(self) -> set[str]:
        """Return `{replica}:{tick}` of the batches with faults.

        The keys of the server are scanned only once: it has thousands, and this is called every second.
        """
        if not self._has_all:
            if kept := self._load_kept():
                self._control.sadd(self._faulty, *(":".join(name.rsplit(":", 2)[1:]) for name in kept))
            self._has_all = True
        return {name.decode() for name in expect_bytes(self._control).smembers(self._faulty)}

    def _load_kept(self) -> list[str]:
        return [name.decode() for name in self._control.scan_iter(self._build_key("*", "*"), AT_ONCE)]

    def _store_letters(
        self, nodes: Nodes, topology: Topology, batch: str, entry: str, letters: _DeadLetters, away: set[str]
    ) -> int:
        queue, node, entry_id, block_id = entry.split("/", 3)  # an unreadable block may have any name
        if node in away:
            return 0
        rows = [(events, cause) for cause, faults in letters.values() for events in faults]
        if node in topology.nodes:
            try:
                durability = topology.get_durability(queue, node)
                segment = nodes.get_segment(queue, topology.nodes[node].url, durability)
                DeadLetters(segment).add(entry_id, WORKER, block_id, rows)
            except (NodeUnavailable, NodeFull):
                away.add(node)
                return 0
        key = self._build_key(*batch.rsplit(":", 1))
        self._delivered(keys=[key, self._faulty], args=[batch, *letters])
        return sum(events.num_rows for events, _ in rows)

    def abandon(self, replica: str, tick: int) -> None:
        """Remove what earlier attempts have kept of a batch that a new attempt starts."""
        key = self._build_key(replica, tick)
        if places := expect_bytes(self._control).hkeys(key):
            self._delivered(keys=[key, self._faulty], args=[f"{replica}:{tick}", *places])

    def clear(self) -> None:
        """Remove everything: its events are read again."""
        self._control.delete(self._faulty, *self._load_kept())

    def _build_key(self, replica: str, tick: int | str) -> str:
        return keys.PIPELINE_FAULTS.build(self._application, replica, tick)


def _group_by_entry(found: Fields) -> dict[str, _DeadLetters]:
    entries: dict[str, _DeadLetters] = {}
    for name, value in found.items():
        cause, _, data = value.partition(b"\n")
        entry = name.decode().rpartition("/")[0]
        entries.setdefault(entry, {})[name] = (cause.decode(), decode(data))
    return entries
