"""A queue's segment on one node: blocks in a stream, moved by single transactions and scripts.

Every method talks to one node and raises `NodeUnavailable` when it does not answer and `NodeFull` when it refuses a
write for lack of memory. Keys and counters are described in ARCHITECTURE.md. Whatever changes a count does so in the
same transaction or script as what it counts, so that inserted - removed is what waits, whoever died in between.
Scripts may run on a full node (`allow-oom`): a node that could not acknowledge could never become empty again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import redis

from queues.block import BLOCK_EVENTS, Block, BlockIds, EncodedBlock, decode, newest_time_us
from queues.errors import BadInput, NodeFull, NodeUnavailable
from queues.flush import Flush

GROUP = "workers"
RETRY_CONSUMER = "retry"
CHUNK = 256
COUNTERS = (
    "inserted_events",
    "inserted_blocks",
    "inserted_bytes",
    "removed_events",
    "removed_blocks",
    "removed_bytes",
    "dead_events",
)


@dataclass(frozen=True)
class Claimed:
    """A block a worker holds. `tries` counts deliveries, this one included; times by the node's clock."""

    entry_id: str
    block_id: str
    events: int
    tries: int
    newest_time_us: int
    data: bytes
    inserted_at_seconds: float

    def block(self) -> Block:
        """The decoded block. Raises `MalformedEvent` when it cannot be read."""
        return decode(self.block_id, self.data)


@dataclass(frozen=True)
class Removed:
    """What left a segment: only what was still there, so a second removal counts nothing."""

    events: int
    blocks: int

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.events + other.events, self.blocks + other.blocks)


@dataclass(frozen=True)
class Surveyed:
    """A waiting block without its payload."""

    entry_id: str
    events: int
    newest_time_us: int


@dataclass(frozen=True)
class DeadLetter:
    """Events that were given up: their batch (ids explicit), why, after how many tries, by whom, of which block."""

    dead_id: str
    batch: pa.RecordBatch
    error: str
    tries: int
    worker: str
    block_id: str
    at_seconds: float


class Segment:
    """The segment of one queue on one node; `node` is a `redis.Redis` with `decode_responses` off."""

    def __init__(self, node: redis.Redis, queue: str) -> None:
        self.node = node
        self.queue = queue
        self.stream = f"weir:{queue}:segment"
        self._counters = f"weir:{queue}:counters"
        self._retry = f"weir:{queue}:retry"
        self._dead = f"weir:{queue}:dead"
        self._keys = [self.stream, self._counters, self._retry, self._dead]
        self._scripts = {name: node.register_script(text) for name, text in SCRIPTS.items()}

    def publish(self, blocks: Sequence[EncodedBlock]) -> None:
        """Store the blocks in one MULTI with their counts: all of them, or (on any error but a lost reply) none.

        `NodeUnavailable` may mean stored or not; sending them again elsewhere under the same ids is then right.
        """
        if blocks:
            with _errors(self.node):
                Flush(self.queue, blocks).send(self.node)

    def claim(self, worker: str, limit_events: int, idle_seconds: float) -> list[Claimed]:
        """Up to `limit_events` for a worker: due retries, then blocks idle for `idle_seconds` (their worker is dead),
        then new ones. At least one block if there is one.
        """
        with _errors(self.node):
            found, waiting, length = self._script(
                "reclaim", worker, limit_events, round(idle_seconds * 1000), BLOCK_EVENTS
            )
            claimed = [_claimed(entry_id, fields, int(tries)) for entry_id, fields, tries in found]
            rest = limit_events - sum(each.events for each in claimed)
            if rest <= 0 or (claimed and rest < BLOCK_EVENTS):
                return claimed
            count = max(1, rest * max(length, 1) // max(waiting, 1)) if waiting else 1
            return claimed + self._read_new(worker, min(count, 4096))

    def keep_alive(self, worker: str, entry_ids: Sequence[str]) -> list[str]:
        """Say that the worker is still at these entries; returns those it still holds."""
        return [name.decode() for name in self._each("keep_alive", entry_ids, worker)]

    def acknowledge(self, entry_ids: Sequence[str]) -> Removed:
        """Remove handled entries. Only an entry that is still there counts, so twice is once."""
        events, blocks = 0, 0
        for chunk in _chunks(entry_ids):
            with _errors(self.node):
                gone = self._script("acknowledge", *chunk)
            events, blocks = events + gone[0], blocks + gone[1]
        return Removed(events, blocks)

    def retry(self, claimed: Claimed, delay_seconds: float) -> bool:
        """Let a block wait `delay_seconds` and then be claimed again. False when it is gone already."""
        with _errors(self.node):
            return bool(self._script("retry", claimed.entry_id, round(delay_seconds * 1000)))

    def bury(self, claimed: Claimed, worker: str, rows: Sequence[tuple[pa.RecordBatch, str]]) -> Removed:
        """Move poison rows (batch with explicit ids, error) to the dead letters and acknowledge the entry, in one.

        Rows of the block that are not given were handled. When the entry is gone already (another worker ended it),
        nothing is moved. Raises `BadInput` when a row's id is null: cut rows from `Block.explicit()`.
        """
        letters: list[Any] = []
        for batch, error in rows:
            if batch.num_rows == 0 or batch.column(0).null_count:
                raise BadInput("rows", "takes batches of 1 row or more with explicit ids (Block.explicit()).")
            data = batch.serialize().to_pybytes()
            letters += [data, error[:2000], batch.num_rows, newest_time_us(batch)]
        with _errors(self.node):
            gone = self._script("bury", claimed.entry_id, worker, claimed.tries, claimed.block_id, *letters)
        return Removed(gone[0], gone[1])

    def dead_letters(self, count: int = 50, after: str = "-") -> list[DeadLetter]:
        """Dead letters behind `after` (an id from here; "-" is the beginning), the oldest first."""
        start = "-" if after in ("", "-") else f"({after}"
        with _errors(self.node):
            entries = self.node.xrange(self._dead, start, "+", count)
        return [_dead_letter(entry_id, fields) for entry_id, fields in entries]

    def requeue(self, dead_ids: Sequence[str], ids: BlockIds | None = None) -> Removed:
        """Put dead letters into the segment again, each as a new block whose events keep their ids."""
        ids = ids or BlockIds()
        events, blocks = 0, 0
        for chunk in _chunks(dead_ids):
            pairs = [text for dead_id in chunk for text in (dead_id, ids())]
            with _errors(self.node):
                moved = self._script("requeue", *pairs)
            events, blocks = events + moved[0], blocks + moved[1]
        return Removed(events, blocks)

    def discard(self, dead_ids: Sequence[str]) -> int:
        """Delete dead letters for good; returns how many were there."""
        with _errors(self.node):
            return sum(int(self.node.xdel(self._dead, *chunk)) for chunk in _chunks(dead_ids))

    def survey(self, after_id: str = "0-0", limit_events: int = 100_000) -> list[Surveyed]:
        """What waits behind an entry, without payloads, up to `limit_events` (at least one block if there is one)."""
        with _errors(self.node):
            rows = self._script("survey", after_id or "0-0", limit_events)
        return [Surveyed(entry_id.decode(), int(n), int(t)) for entry_id, n, t in rows]

    def read(self, after_id: str, through_id: str) -> Iterator[tuple[str, str, bytes]]:
        """(entry id, block id, data) behind `after_id` up to and with `through_id`; a range may be read again."""
        start = after_id or "0-0"
        while True:
            with _errors(self.node):
                entries = self.node.xrange(self.stream, f"({start}", through_id, CHUNK)
            for entry_id, fields in entries:
                yield entry_id.decode(), fields[b"i"].decode(), fields[b"d"]
            if len(entries) < CHUNK:
                return
            start = entries[-1][0].decode()

    def trim(self, through_id: str) -> Removed:
        """Remove everything up to and with `through_id`; exact in the counters, whatever was removed before."""
        total = Removed(0, 0)
        while True:
            with _errors(self.node):
                gone = self._script("trim", through_id, CHUNK)
            total += Removed(gone[0], gone[1])
            if gone[1] < CHUNK:
                return total

    def counters(self) -> dict[str, int]:
        """The cumulative counters; what was never counted is 0."""
        with _errors(self.node):
            found = self.node.hgetall(self._counters)
        return {name: int(found.get(name.encode(), 0)) for name in COUNTERS}

    def measure(self) -> dict[str, int | float | None]:
        """Counters, lengths and the age of the oldest entry (seconds by the node's clock; None when empty)."""
        with _errors(self.node):
            values = self._script("measure", *COUNTERS)
        names = (*COUNTERS, "length_blocks", "pending_blocks", "retry_blocks", "dead_letters")
        measured: dict[str, int | float | None] = dict(zip(names, map(int, values[:-1]), strict=True))
        age_ms = int(values[-1])
        measured["oldest_seconds"] = None if age_ms < 0 else age_ms / 1000
        return measured

    def sweep(self, idle_seconds: float = 60.0) -> int:
        """Forget consumers (ended workers) without pending blocks that were not seen for `idle_seconds`."""
        with _errors(self.node):
            return int(self._script("sweep", round(idle_seconds * 1000)))

    def _read_new(self, worker: str, count: int) -> list[Claimed]:
        try:
            reply = self.node.xreadgroup(GROUP, worker, {self.stream: ">"}, count)
        except redis.ResponseError as error:
            # The group is gone: the node came back empty between the script and this read.
            if "NOGROUP" not in str(error):
                raise
            return []
        entries = _entries(reply)
        return [_claimed(entry_id, fields, 1) for entry_id, fields in entries]

    def _each(self, name: str, entry_ids: Sequence[str], *arguments: Any) -> list[Any]:
        result: list[Any] = []
        for chunk in _chunks(entry_ids):
            with _errors(self.node):
                result += self._script(name, *arguments, *chunk)
        return result

    def _script(self, name: str, *arguments: Any) -> Any:
        return self._scripts[name](keys=self._keys, args=[GROUP, *arguments])


def _entries(reply: Any) -> list[Any]:
    """The entries of an XREADGROUP reply of one stream, in either protocol's shape."""
    if not reply:
        return []
    entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    # RESP3 wraps the entries of a stream once more.
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _claimed(entry_id: bytes, fields: Any, tries: int) -> Claimed:
    if not isinstance(fields, dict):
        fields = dict(zip(fields[::2], fields[1::2], strict=True))
    return Claimed(
        entry_id=entry_id.decode(),
        block_id=fields[b"i"].decode(),
        events=int(fields[b"n"]),
        tries=tries,
        newest_time_us=int(fields[b"t"]),
        data=fields[b"d"],
        inserted_at_seconds=_seconds(entry_id),
    )


def _dead_letter(entry_id: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
    block_id = fields[b"block"].decode()
    return DeadLetter(
        dead_id=entry_id.decode(),
        batch=decode(block_id, fields[b"e"]).batch,
        error=fields[b"error"].decode(errors="replace"),
        tries=int(fields[b"tries"]),
        worker=fields[b"worker"].decode(),
        block_id=block_id,
        at_seconds=_seconds(entry_id),
    )


def _seconds(entry_id: bytes) -> float:
    """A stream id begins with the node's clock in milliseconds."""
    return int(entry_id.split(b"-")[0]) / 1000


def _chunks(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


@contextmanager
def _errors(node: redis.Redis) -> Iterator[None]:
    """Redis' errors as Weir's."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise NodeUnavailable(f"{_address(node)} does not answer ({error}).") from error
    except redis.ResponseError as error:
        if "OOM" in str(error):
            raise NodeFull(f"{_address(node)} is full (maxmemory); free it or move points away.") from error
        if str(error).startswith(("LOADING", "MASTERDOWN", "READONLY", "BUSY ")):
            raise NodeUnavailable(f"{_address(node)} is not ready ({error}).") from error
        raise


def _address(node: redis.Redis) -> str:
    options = node.connection_pool.connection_kwargs
    return f"{options.get('host', options.get('path', 'node'))}:{options.get('port', '')}"


_HEAD = """#!lua flags=allow-oom
local stream, counters, retry, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group = ARGV[1]
local function fields(entry)
  local found = {}
  for i = 1, #entry[2], 2 do found[entry[2][i]] = entry[2][i + 1] end
  return found
end
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function grouped()
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  return made
end
-- Removes one entry and counts it, if it is still there: whoever comes second counts nothing.
local function remove(id)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  redis.pcall('XACK', stream, group, id)
  redis.call('ZREM', retry, id)
  if not entry then return 0, 0 end
  redis.call('XDEL', stream, id)
  local got = fields(entry)
  local n, bytes = tonumber(got.n), #got.d
  redis.call('HINCRBY', counters, 'removed_events', n)
  redis.call('HINCRBY', counters, 'removed_blocks', 1)
  redis.call('HINCRBY', counters, 'removed_bytes', bytes)
  return n, 1
end
"""

SCRIPTS = {
    name: _HEAD + body
    for name, body in {
        # worker, limit in events, idle in ms, events of a block
        "reclaim": """
grouped()
local worker, limit, idle = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found, events, now = {}, 0, now_ms()
local function take(id)
  local tries = redis.call('XPENDING', stream, group, id, id, 1)
  local entry = redis.call('XCLAIM', stream, group, worker, 0, id)[1]
  redis.call('ZREM', retry, id)
  if not entry or not entry[2] then return end
  found[#found + 1] = {id, entry[2], (tries[1] and tries[1][4] or 0) + 1}
  events = events + tonumber(fields(entry).n)
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', retry, '-inf', now, 'LIMIT', 0, 1000)) do
  if events >= limit then break end
  take(id)
end
local from, left = '-', 20
while events < limit and left > 0 do
  local pending = redis.call('XPENDING', stream, group, 'IDLE', idle, from, '+', 100)
  for _, each in ipairs(pending) do
    -- A block that waits for its retry is idle, but not abandoned.
    if events < limit and not redis.call('ZSCORE', retry, each[1]) then take(each[1]) end
    from = '(' .. each[1]
  end
  left = #pending < 100 and 0 or left - 1
end
local count = redis.call('HMGET', counters, 'inserted_events', 'removed_events')
local waiting = (tonumber(count[1]) or 0) - (tonumber(count[2]) or 0)
return {found, waiting, redis.call('XLEN', stream)}
""",
        # worker, ids
        "keep_alive": """
local held = {}
for i = 3, #ARGV do
  -- Only what is still this worker's: a worker that was paused must not steal its entry back.
  local mine = redis.pcall('XPENDING', stream, group, ARGV[i], ARGV[i], 1, ARGV[2])
  if mine[1] and mine[1][1] == ARGV[i] then
    redis.call('XCLAIM', stream, group, ARGV[2], 0, ARGV[i], 'JUSTID')
    held[#held + 1] = ARGV[i]
  end
end
return held
""",
        # ids
        "acknowledge": """
local events, blocks = 0, 0
for i = 2, #ARGV do
  local n, one = remove(ARGV[i])
  events, blocks = events + n, blocks + one
end
return {events, blocks}
""",
        # id, delay in ms
        "retry": """
-- The entry moves to a consumer of its own, so that the worker that ends holds nothing; tries are kept.
local moved = redis.pcall('XCLAIM', stream, group, 'retry', 0, ARGV[2], 'JUSTID')
if moved.err or #moved == 0 then return 0 end
redis.call('ZADD', retry, now_ms() + tonumber(ARGV[3]), ARGV[2])
return 1
""",
        # id, worker, tries, block, then per letter: batch, error, events, newest time
        "bury": """
local events, blocks = remove(ARGV[2])
if blocks == 0 then return {0, 0} end
for i = 6, #ARGV, 4 do
  redis.call('XADD', dead, '*', 'e', ARGV[i], 'error', ARGV[i + 1], 'n', ARGV[i + 2], 't', ARGV[i + 3],
    'tries', ARGV[4], 'worker', ARGV[3], 'block', ARGV[5])
  redis.call('HINCRBY', counters, 'dead_events', ARGV[i + 2])
end
return {events, blocks}
""",
        # pairs of dead id and new block id
        "requeue": """
local events, blocks = 0, 0
for i = 2, #ARGV, 2 do
  local entry = redis.call('XRANGE', dead, ARGV[i], ARGV[i])[1]
  if entry then
    local got = fields(entry)
    redis.call('XADD', stream, '*', 'i', ARGV[i + 1], 'n', got.n, 't', got.t, 'd', got.e)
    redis.call('XDEL', dead, ARGV[i])
    redis.call('HINCRBY', counters, 'inserted_events', got.n)
    redis.call('HINCRBY', counters, 'inserted_blocks', 1)
    redis.call('HINCRBY', counters, 'inserted_bytes', #got.e)
    events, blocks = events + tonumber(got.n), blocks + 1
  end
end
return {events, blocks}
""",
        # after id, limit in events
        "survey": """
local rows, events, from, limit = {}, 0, '(' .. ARGV[2], tonumber(ARGV[3])
while true do
  local entries = redis.call('XRANGE', stream, from, '+', 'COUNT', 16)
  for _, entry in ipairs(entries) do
    local got = fields(entry)
    events = events + tonumber(got.n)
    if #rows > 0 and events > limit then return rows end
    rows[#rows + 1] = {entry[1], got.n, got.t}
    from = '(' .. entry[1]
  end
  if #entries < 16 then return rows end
end
""",
        # through id, most entries
        "trim": """
local events, blocks = 0, 0
while blocks < tonumber(ARGV[3]) do
  local entries = redis.call('XRANGE', stream, '-', ARGV[2], 'COUNT', 16)
  for _, entry in ipairs(entries) do
    local n = remove(entry[1])
    events, blocks = events + n, blocks + 1
  end
  if #entries < 16 then break end
end
return {events, blocks}
""",
        # names of counters
        "measure": """
local values = {}
for i = 2, #ARGV do values[#values + 1] = redis.call('HGET', counters, ARGV[i]) or '0' end
local pending = redis.pcall('XPENDING', stream, group)
values[#values + 1] = redis.call('XLEN', stream)
values[#values + 1] = pending.err and 0 or pending[1]
values[#values + 1] = redis.call('ZCARD', retry)
values[#values + 1] = redis.call('XLEN', dead)
local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local age = -1
if first then age = math.max(0, now_ms() - tonumber(string.match(first[1], '^%d+'))) end
values[#values + 1] = age
return values
""",
        # idle in ms
        "sweep": """
local gone = 0
local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
if consumers.err then return 0 end
for _, each in ipairs(consumers) do
  local about = {}
  for i = 1, #each, 2 do about[each[i]] = each[i + 1] end
  if about.pending == 0 and about.idle >= tonumber(ARGV[2]) and about.name ~= 'retry' then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, about.name)
    gone = gone + 1
  end
end
return gone
""",
    }.items()
}
