"""A queue's segment on one node: blocks in a stream, moved by single transactions and scripts.

Every method talks to one node. It raises `NodeUnavailable` if the node does not answer, and `NodeFull` if it rejects a
write for lack of memory. Keys and counters: docs/understand/how/events.md. Every change of a count is in the same
transaction or script as what it counts, so that inserted - removed is what waits, whichever process crashed in between.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import redis
from redis.typing import EncodableT, FieldT

from common.errors import BadInput, MalformedEvent, NodeUnavailable
from queues import keys
from queues.control.connection import know_of_refused_writes
from queues.control.replies import Fields, expect_bytes
from queues.durability import DURABILITIES, MEMORY, Durability
from queues.events.block import MAX_TIME_US, Block, EncodedBlock, decode, find_newest_time_us
from queues.fairness import LaneWeights
from queues.segments.checksum import (
    DAMAGED,
    Damage,
    compute_checksum,
    encode_header,
    find_damage,
    get_data,
    parse_count,
)
from queues.segments.gauge import COUNTERS, GROUP, SCRIPTS, Gauge, read_gauges
from queues.segments.node_errors import convert_node_errors, format_address
from queues.segments.synced_write import check_synced, encode_waits, list_waits, run_synced

# A flush: all blocks for one node in one MULTI, written straight to the socket.
#
# The protocol is encoded here, not by the general client: a big payload then goes from Arrow's buffer to the socket
# without a copy, and the small pieces around it are joined.

JOIN_BELOW_BYTES = 16_384
_MULTI = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC = b"*1\r\n$4\r\nEXEC\r\n"


class Flush:
    """The commands of one flush: MULTI, one XADD per block, three HINCRBY, EXEC; WAITAOF for a durable queue."""

    def __init__(
        self, queue: str, blocks: Sequence[EncodedBlock], durability: Durability = DURABILITIES[MEMORY]
    ) -> None:
        self.blocks = blocks
        self._durability = durability
        self._stream = _encode_bulk_string(keys.SEGMENT.build(queue).encode())
        self._counters = _encode_bulk_string(keys.COUNTERS.build(queue).encode())

    def build_pieces(self) -> list[Any]:
        """Return the bytes to send, in order."""
        pieces: list[Any] = []
        pending = bytearray(_MULTI)
        # `c` comes first: if its name is damaged into another field's, the later, intact field counts.
        head = b"*13\r\n$4\r\nXADD\r\n" + self._stream + b"$1\r\n*\r\n$1\r\nc\r\n"
        for block in self.blocks:
            size = len(block.data)
            header = encode_header(block.block_id, block.events, block.newest_time_us)
            checksum, (block_id, events, newest) = compute_checksum(*header, block.data), header
            pending += head
            pending += (
                b"$%d\r\n%b\r\n$1\r\ni\r\n$%d\r\n%b\r\n$1\r\nn\r\n$%d\r\n%b\r\n$1\r\nt\r\n$%d\r\n%b\r\n$1\r\nd\r\n$%d\r\n"
            ) % (len(checksum), checksum, len(block_id), block_id, len(events), events, len(newest), newest, size)
            if size < JOIN_BELOW_BYTES:
                pending += block.data
            else:
                pieces += (bytes(pending), block.data)
                pending = bytearray()
            pending += b"\r\n"
        pieces.append(bytes(pending + self._encode_counts() + _EXEC + encode_waits(self._durability)))
        return pieces

    def send(self, node: redis.Redis) -> None:
        """Send it and read every reply. Raises redis-py's errors; all except a rejection drop the connection."""
        connection = node.connection_pool.get_connection()
        try:
            connection.send_packed_command(self.build_pieces(), check_health=False)
            self._read(connection)
        except redis.ResponseError:
            raise
        except BaseException:
            # A reply may still be under way: no other caller may read it as its own.
            connection.disconnect()
            raise
        finally:
            node.connection_pool.release(connection)

    def _read(self, connection: redis.Connection) -> None:
        """Read the replies: +OK, a +QUEUED (or a rejection) for each command, the results, and those of the waits."""
        commands = len(self.blocks) + 5
        replies = [_read_reply(connection) for _ in range(commands + len(list_waits(self._durability)))]
        for reply in replies:
            # The first rejection says why; EXEC's own error only says that there was one.
            if isinstance(reply, Exception):
                raise reply
        for part in replies[commands - 1]:
            if isinstance(part, Exception):
                raise part
        if self._durability.waits:
            check_synced(self._durability, replies[-1])

    def _encode_counts(self) -> bytes:
        added = {
            b"inserted_events": sum(block.events for block in self.blocks),
            b"inserted_blocks": len(self.blocks),
            b"inserted_bytes": sum(len(block.data) for block in self.blocks),
        }
        head = b"*4\r\n$7\r\nHINCRBY\r\n" + self._counters
        return b"".join(
            head + _encode_bulk_string(name) + _encode_bulk_string(b"%d" % count) for name, count in added.items()
        )


def _read_reply(connection: redis.Connection) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


def _encode_bulk_string(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


CHUNK = 256
# How long a node remembers what was transferred to it: a source that crashes between two steps of a transfer
# and returns within this time sends nothing twice.
REMEMBERED_SECONDS = 7 * 86_400.0
CLAIM_BLOCKS = 4096
# The node copies what is claimed, and the worker decodes it: the same number of large events would take gigabytes.
CLAIM_BYTES = 32 * 2**20
# Together, diverted keys have the weight of this many ordinary keys. One that splits itself gains no more than that.
MAX_DIVERTED_WEIGHT = 2.0
# Of diverted events that fill a claim, unless a worker knows how many it handles in a short time.
MAX_DIVERTED_EVENTS = 256
READ_BYTES, FIRST_READ_BLOCKS = 8 * 2**20, 8
know_of_refused_writes()


@dataclass(frozen=True)
class ClaimedBlock:
    """A block that a worker has claimed.

    `tries` counts deliveries, this one included; times by the node's clock. A block with `damage` must not be handled.
    """

    entry_id: str
    block_id: str
    events: int
    tries: int
    newest_time_us: int
    data: bytes
    inserted_at_seconds: float
    damage: Damage | None = None

    def block(self) -> Block:
        """Return the decoded block. Raises `MalformedEvent` if it is damaged, or can't be read."""
        if self.damage is not None:
            raise MalformedEvent("block", f"{self.block_id[:80]} is damaged.")
        return decode(self.block_id, self.data)


@dataclass(frozen=True)
class Removal:
    """The events that left a segment: only events that were still there, so a second removal counts nothing."""

    events: int
    blocks: int

    def __add__(self, other: "Removal") -> "Removal":
        return Removal(self.events + other.events, self.blocks + other.blocks)


class WaitingBlock(NamedTuple):
    """A waiting block without its payload."""

    entry_id: str
    events: int
    newest_time_us: int
    block_id: str = ""


class StoredBlock(NamedTuple):
    """A block as it was read. A block with `damage` must not be processed."""

    entry_id: str
    block_id: str
    data: bytes
    damage: Damage | None


class DepartingBlock(NamedTuple):
    """A block on its way to another node; workers here no longer get it.

    checksum: as stored; "" for a block of an earlier version. A block with `damage` must not be sent.
    """

    entry_id: str
    target: str
    block_id: str
    events: int
    newest_time_us: int
    data: bytes
    checksum: bytes = b""
    damage: Damage | None = None


class Segment:
    """The segment of one queue on one node; `node` is a `redis.Redis` with `decode_responses` off.

    durability: of the queue. What it adds is stored with it, and what a person does here, too. Removals of handled
    events are not waited for: after a power failure, such events are handled again.
    """

    def __init__(self, node: redis.Redis, queue: str, durability: str = MEMORY) -> None:
        self.node = node
        self.queue = queue
        self._durability = DURABILITIES[durability]
        self.stream = keys.SEGMENT.build(queue)
        self._keys = keys.list_queue_keys(queue)
        self._scripts = {name: node.register_script(text) for name, text in SCRIPTS.items()}

    def publish(self, blocks: Sequence[EncodedBlock]) -> None:
        """Store the blocks in one MULTI with their counts: all of them, or none.

        After `NodeUnavailable` they may be there or not, or be lost if the host loses power: send them again elsewhere
        under the same ids.
        """
        if not blocks:
            return
        try:
            with self.convert_errors():
                Flush(self.queue, blocks, self._durability).send(self.node)
        except redis.RedisError as error:
            # Whatever this node rejects, another one may accept.
            raise NodeUnavailable(f"{format_address(self.node)} rejected a flush ({error}).") from error

    def claim(
        self,
        worker: str,
        limit_events: int,
        idle_seconds: float,
        most_bytes: int = CLAIM_BYTES,
        weights: LaneWeights | None = None,
        diverted_events: int = MAX_DIVERTED_EVENTS,
    ) -> list[ClaimedBlock]:
        """Claim up to `limit_events`, and about `most_bytes`, for a worker.

        Claims at least one block if there is one. Due retries come first, then blocks idle for `idle_seconds` (their
        worker is dead), then new ones. weights: those of lanes, if the queue is fair. Blocks that are parked in lanes
        are given out by weight, also after fairness is disabled. diverted_events: the maximum events of such blocks
        that fill a claim without enough ordinary events.
        """
        limits, idle_ms = (limit_events, most_bytes), round(idle_seconds * 1000)
        with self.convert_errors():
            if weights is not None:
                return self._claim_lanes(worker, (*limits, idle_ms, diverted_events), weights)
            reclaimed, *waiting, length, parked = self.run_script("reclaim", worker, *limits, idle_ms)
            claimed = [_parse_claim(entry_id, fields, int(tries)) for entry_id, fields, tries in reclaimed]
            left = (
                limit_events - sum(block.events for block in claimed),
                most_bytes - sum(len(block.data) for block in claimed),
            )
            if parked:
                return claimed + self._claim_lanes(worker, (*left, idle_ms, diverted_events), LaneWeights())
            # Whole blocks of the average size that still fit; the first claim takes one in any case.
            count = min(most * length // total if total > 0 else 0 for most, total in zip(left, waiting, strict=True))
            if claimed and count < 1:
                return claimed
            return claimed + self._read_new(worker, min(max(count, 1), CLAIM_BLOCKS))

    def keep_alive(self, worker: str, entry_ids: Sequence[str]) -> list[str]:
        """Record that the worker is still processing these entries, and return those it still holds."""
        return [name.decode() for name in self._run_for_each("keep_alive", entry_ids, worker)]

    def acknowledge(self, entry_ids: Sequence[str]) -> Removal:
        """Remove handled entries. Only an entry that is still there counts, so repeating it changes nothing."""
        events, blocks = 0, 0
        for chunk in _iterate_chunks(entry_ids):
            with self.convert_errors():
                gone = self.run_script("acknowledge", *chunk)
            events, blocks = events + gone[0], blocks + gone[1]
        return Removal(events, blocks)

    def retry(self, claimed: ClaimedBlock, worker: str, delay_seconds: float, *, untried: bool = False) -> bool:
        """Delay a block by `delay_seconds` before it can be claimed again.

        untried: this claim does not count as a try. Returns False if the block is no longer the worker's: it is gone,
        or another worker has it.
        """
        delay_ms = round(delay_seconds * 1000)
        with self.convert_errors():
            return bool(self.run_script("retry", claimed.entry_id, worker, delay_ms, int(untried)))

    def move_to_dead_letters(
        self, claimed: ClaimedBlock, worker: str, rows: Sequence[tuple[pa.RecordBatch, str]]
    ) -> Removal:
        """Move poison rows (batch with explicit ids, error) to the dead letters and acknowledge the entry.

        This is atomic. Rows of the block that are not given were handled. If the entry is no longer the worker's
        (another worker has it, or has finished it), nothing is moved. Raises `BadInput` if a row's id is null: cut rows
        from `Block.explicit()`.
        """
        letters = encode_letters(claimed.block_id, rows)
        with self.convert_errors():
            gone = self.run_script("dead_letter", claimed.entry_id, worker, claimed.tries, claimed.block_id, *letters)
        return Removal(gone[0], gone[1])

    def quarantine(self, entry_id: str, damage: Damage, finder: str) -> Removal:
        """Move a damaged block to the dead letters, as one letter of the kind `damaged` that contains its bytes.

        finder: the process that found it. Only an entry that is still there is moved, whoever holds it: no process may
        handle it.
        """
        place = format_address(self.node)
        at_us = round(parse_entry_seconds(entry_id.encode()) * 1e6)
        data = damage.build_event(place, at_us).serialize().to_pybytes()
        header = encode_header(damage.block_id, damage.events, damage.newest_time_us)
        letter = (*header, data, compute_checksum(*header, data), damage.format_sentence(place), DAMAGED)
        with self.convert_errors():
            gone = self.run_script("quarantine", entry_id, finder, *letter)
        return Removal(gone[0], gone[1])

    def scan(self, after_id: str = "0-0", limit_events: int = 100_000, *, anew: bool = False) -> list[WaitingBlock]:
        """Return the blocks that wait after an entry, without payloads, up to `limit_events`.

        Returns at least one block if any waits. anew: start from the beginning if the entry belongs to an earlier
        stream: its node came back empty, with an earlier clock. All ids are smaller then.
        """
        with self.convert_errors():
            rows = self.run_script("scan", after_id or "0-0", limit_events, int(anew))
        return [
            WaitingBlock(entry_id.decode(), int(n), int(t), block_id.decode(errors="backslashreplace"))
            for entry_id, n, t, block_id in rows
        ]

    def read(self, after_id: str, through_id: str, most_bytes: int = READ_BYTES) -> Iterator[StoredBlock]:
        """Yield the blocks after `after_id` up to and including `through_id`.

        The range may be read repeatedly. A request is for about `most_bytes`, estimated from the size of earlier
        blocks.
        """
        start, count = after_id or "0-0", FIRST_READ_BLOCKS
        while True:
            with self.convert_errors():
                entries = expect_bytes(self.node).xrange(self.stream, f"({start}", through_id, count)
            size_bytes = 0
            for entry_id, fields in entries:
                data = get_data(fields)
                size_bytes += len(data)
                damage = find_damage(entry_id, fields)
                yield StoredBlock(entry_id.decode(), _block_id(entry_id, fields), data, damage)
            if len(entries) < count:
                return
            start = entries[-1][0].decode()
            count = max(1, min(CHUNK, most_bytes * count // max(1, size_bytes)))

    def trim(self, through_id: str) -> Removal:
        """Remove everything up to and including `through_id`.

        The counters stay exact, whatever was removed before. Does nothing if the id belongs to an earlier stream.
        """
        total = Removal(0, 0)
        while True:
            with self.convert_errors():
                gone = self.run_script("trim", through_id, CHUNK)
            total += Removal(gone[0], gone[1])
            if gone[1] < CHUNK:
                return total

    def depart(self, weights: Mapping[str, int], most_blocks: int, most_bytes: int) -> list[DepartingBlock]:
        """Return blocks to transfer, each marked with its target node, up to the first beyond `most_bytes`.

        Blocks that are marked already come first, repeatedly until they are confirmed; only those for nodes in
        `weights` are given. New ones are distributed by weight; nodes with weight 0 get none.
        """
        pairs = [part for node, weight in weights.items() for part in (node, weight)]
        with self.convert_errors():
            rows = self.run_script("depart", most_blocks, most_bytes, *pairs)
        return [_parse_departing(entry_id, target.decode(), _pair_fields(fields)) for entry_id, target, fields in rows]

    def receive(self, source: str, block: DepartingBlock) -> bool:
        """Take a block from node `source`, once: returns False if it was taken before.

        The block keeps the checksum of its publisher. Raises `NodeFull`, and `MalformedEvent` if it is damaged.
        """
        if block.damage is not None:
            raise MalformedEvent("block", f"{block.block_id[:80]} is damaged.")
        # The entry, not the block alone: a block may come back one day, and is then to be taken again.
        passage = f"{source}/{block.entry_id}/{block.block_id}"
        kept_ms = round(REMEMBERED_SECONDS * 1000)
        content = (block.block_id, block.events, block.newest_time_us, block.data, block.checksum)
        with self.convert_errors():
            return bool(self.run_synced_script("receive", passage, kept_ms, *content))

    def confirm(self, entry_ids: Sequence[str]) -> Removal:
        """Remove blocks that have been received elsewhere; only marked ones, and each counts once."""
        events, blocks = 0, 0
        for chunk in _iterate_chunks(entry_ids):
            with self.convert_errors():
                gone = self.run_script("confirm", *chunk)
            events, blocks = events + gone[0], blocks + gone[1]
        return Removal(events, blocks)

    def list_marked_nodes(self) -> set[str]:
        """Return the nodes that blocks and dead letters here are marked for."""
        marks = keys.LEAVING.build(self.queue), keys.LEAVING_LETTERS.build(self.queue)
        with self.convert_errors():
            names = [name for key in marks for name in expect_bytes(self.node).hvals(key)]
        return {name.decode() for name in names}

    def stay(self, nodes: Sequence[str]) -> int:
        """Unmark blocks and dead letters for nodes that no longer exist. They stay here. Returns how many."""
        with self.convert_errors():
            return int(self.run_script("stay", *nodes)) if nodes else 0

    def get_counters(self) -> dict[str, int]:
        """Return the cumulative counters; one that never counted is 0."""
        with self.convert_errors():
            counts = self.node.hgetall(keys.COUNTERS.build(self.queue))
        return {name: int(counts.get(name.encode(), 0)) for name in COUNTERS}

    def recount(self) -> None:
        """Set the counters so that they count what is here as waiting.

        Use it after filling the segment in another way (restoring a backup) while no other process writes. No counter
        goes back: what is missing counts as removed.
        """
        counts, held, after = self.get_counters(), [0, 0, 0], "-"
        while True:
            with self.convert_errors():
                *page, last = self.run_script("held", after, CHUNK)
            held = [sum(pair) for pair in zip(held, page, strict=True)]
            if page[1] < CHUNK:
                break
            after = f"({last.decode()}"
        right: dict[str, int] = {}
        for unit, count in zip(("events", "blocks", "bytes"), held, strict=True):
            inserted = max(counts[f"inserted_{unit}"], counts[f"removed_{unit}"] + count)
            right |= {f"inserted_{unit}": inserted, f"removed_{unit}": inserted - count}
        changed: dict[FieldT, EncodableT] = {name: value for name, value in right.items() if value != counts[name]}
        if changed:
            with self.convert_errors():
                self.node.hset(keys.COUNTERS.build(self.queue), mapping=changed)

    def measure(self) -> Gauge:
        """Return counters, lengths, and the age of the oldest entry; see `queues.segments.gauge`."""
        with self.convert_errors():
            return read_gauges(self.node, [self.queue])[self.queue]

    def sweep(self, idle_seconds: float = 60.0) -> int:
        """Remove consumers (ended workers) without pending blocks that were not seen for `idle_seconds`."""
        with self.convert_errors():
            return int(self.run_script("sweep", round(idle_seconds * 1000)))

    def _claim_lanes(self, worker: str, limits: Sequence[int], weights: LaneWeights) -> list[ClaimedBlock]:
        own = [part for pair in weights.own.items() for part in pair]
        rows = self.run_script("claim_lanes", worker, *limits, weights.ordinary, MAX_DIVERTED_WEIGHT, *own)
        return [_parse_claim(entry_id, fields, int(tries)) for entry_id, fields, tries in rows]

    def _read_new(self, worker: str, count: int) -> list[ClaimedBlock]:
        try:
            reply = self.node.xreadgroup(GROUP, worker, {self.stream: ">"}, count)
        except redis.ResponseError as error:
            # The group is gone: the node came back empty between the script and this read.
            if "NOGROUP" not in str(error):
                raise
            return []
        entries = _extract_entries(reply)
        return [_parse_claim(entry_id, fields, 1) for entry_id, fields in entries]

    def _run_for_each(self, name: str, entry_ids: Sequence[str], *arguments: str | float | bytes) -> list[Any]:
        result: list[Any] = []
        for chunk in _iterate_chunks(entry_ids):
            with self.convert_errors():
                result += self.run_script(name, *arguments, *chunk)
        return result

    def run_script(self, name: str, *arguments: str | float | bytes) -> Any:
        """Return the reply of one of `queues.segments.gauge`. Raises redis-py's errors: call it within `errors`."""
        return self._scripts[name](keys=self._keys, args=[GROUP, *arguments])

    def run_synced_script(self, name: str, *arguments: str | float | bytes) -> Any:
        """Return the reply of a script, as `run_script`, once its writes are stored with the queue's durability."""
        if not self._durability.waits:
            return self.run_script(name, *arguments)
        return run_synced(self.node, self._durability, self._scripts[name], self._keys, [GROUP, *arguments])

    def convert_errors(self) -> AbstractContextManager[None]:
        """Return a context that converts redis-py's errors to Weir's."""
        return convert_node_errors(self.node)


def _extract_entries(reply: Any) -> list[Any]:
    """Return the entries of an XREADGROUP reply of one stream, in either protocol's shape."""
    if not reply:
        return []
    entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    # RESP3 wraps the entries of a stream once more.
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _parse_claim(entry_id: bytes, fields: Fields | Sequence[bytes], tries: int) -> ClaimedBlock:
    if not isinstance(fields, dict):
        fields = _pair_fields(fields)
    damage = find_damage(entry_id, fields)
    events, newest_time_us = _read_header(fields, damage)
    return ClaimedBlock(
        entry_id=entry_id.decode(),
        block_id=_block_id(entry_id, fields),
        events=events,
        tries=tries,
        newest_time_us=min(newest_time_us, MAX_TIME_US - 1),
        data=get_data(fields),
        inserted_at_seconds=parse_entry_seconds(entry_id),
        damage=damage,
    )


def _parse_departing(entry_id: bytes, target: str, fields: Fields) -> DepartingBlock:
    damage = find_damage(entry_id, fields)
    events, newest_time_us = _read_header(fields, damage)
    return DepartingBlock(
        entry_id=entry_id.decode(),
        target=target,
        block_id=_block_id(entry_id, fields),
        events=events,
        newest_time_us=newest_time_us,
        data=get_data(fields),
        checksum=fields.get(b"c", b""),
        damage=damage,
    )


def _read_header(fields: Fields, damage: Damage | None) -> tuple[int, int]:
    """Return the events and the newest time (µs) of an entry."""
    if damage is not None:
        return damage.events, damage.newest_time_us
    return parse_count(fields[b"n"]), parse_count(fields[b"t"])


def _pair_fields(parts: Sequence[bytes]) -> Fields:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def encode_letters(block_id: str, rows: Sequence[tuple[pa.RecordBatch, str]]) -> list[Any]:
    """Return data, error, events, newest time, and checksum of each letter of a block. Raises `BadInput`."""
    letters: list[Any] = []
    for batch, error in rows:
        if batch.num_rows == 0 or batch.column(0).null_count:
            raise BadInput("rows", "must be batches of at least 1 row with explicit IDs (Block.explicit()).")
        data, newest_time_us = batch.serialize().to_pybytes(), find_newest_time_us(batch)
        # The error of a handler may quote text that is not Unicode.
        said = error[:2000].encode(errors="backslashreplace")
        checksum = compute_checksum(*encode_header(block_id, batch.num_rows, newest_time_us), data)
        letters += [data, said, batch.num_rows, newest_time_us, checksum]
    return letters


def parse_entry_seconds(entry_id: bytes) -> float:
    """Return the time of a stream id. The id starts with the node's clock in milliseconds, or with a foreign value."""
    return min(int(entry_id.split(b"-")[0]) / 1000, MAX_TIME_US / 1e6 - 1)


def _block_id(entry_id: bytes, fields: Mapping[bytes, bytes]) -> str:
    return fields.get(b"i", entry_id).decode(errors="backslashreplace")


def _iterate_chunks(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
