"""What the matcher remembers between batches: one value per key group, kept on the control server with the
batch that wrote it.

A group is stored as (batch, new, previous). Whoever works a batch again finds its own number there and starts
from `previous`, so the same batch gives the same state and the same matches; they are written together with
the matches, in one script. A writer of an older batch (a process that was thought dead) is refused.

| key | type | holds |
|---|---|---|
| `weir:pipeline:state:{app}` | hash | `{group}` state, `{group}:previous`, `{group}:batch` |
| `weir:pipeline:pending:{app}` | hash | group → earliest event time (µs) that it keeps back |
| `weir:pipeline:outbox:{app}` | hash | event id → complex event (JSON) that is still to be published |
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import redis

from queues.errors import WeirError

_LENGTH = struct.Struct("<I")

# KEYS state, outbox, pending; ARGV group, batch, state, earliest buffered time or '', then (id, event) pairs.
_WRITE = """
local stored = redis.call('HGET', KEYS[1], ARGV[1] .. ':batch')
if stored and tonumber(stored) > tonumber(ARGV[2]) then return 0 end
if stored ~= ARGV[2] then
  local previous = redis.call('HGET', KEYS[1], ARGV[1])
  if previous then redis.call('HSET', KEYS[1], ARGV[1] .. ':previous', previous) end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3], ARGV[1] .. ':batch', ARGV[2])
if ARGV[4] == '' then redis.call('HDEL', KEYS[3], ARGV[1]) else redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
end for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end return 1
"""


class StateFromTheFuture(WeirError):  # noqa: N818
    """State of a later batch than the one at work: the checkpoint is older than the state, or another run has
    taken over.
    """


@dataclass(frozen=True)
class GroupState:
    """machines: pattern signature → a matcher's snapshot. buffer: candidates that wait for the watermark."""

    machines: Mapping[str, Any] = field(default_factory=dict)
    buffer: pa.RecordBatch | None = None

    def encode(self) -> bytes:
        head = orjson.dumps(self.machines)
        if self.buffer is None or self.buffer.num_rows == 0:
            return _LENGTH.pack(len(head)) + head
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.buffer.schema) as writer:
            writer.write_batch(self.buffer)
        return b"".join((_LENGTH.pack(len(head)), head, sink.getvalue().to_pybytes()))

    @classmethod
    def decode(cls, data: bytes | None) -> "GroupState":
        if not data:
            return cls()
        (length,) = _LENGTH.unpack_from(data)
        head, rest = data[_LENGTH.size : _LENGTH.size + length], data[_LENGTH.size + length :]
        buffer = pa.ipc.open_stream(rest).read_next_batch() if rest else None
        return cls(orjson.loads(head), buffer)


@dataclass(frozen=True)
class Written:
    """What a batch made of one group. due_us: the earliest event time that is still buffered. outputs: (id,
    complex event as JSON).
    """

    group: int
    state: bytes
    due_us: int | None
    outputs: tuple[tuple[str, bytes], ...]


class StateStore:
    """The three keys of one application."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control = control
        self._state = f"weir:pipeline:state:{application}"
        self._pending = f"weir:pipeline:pending:{application}"
        self._outbox = f"weir:pipeline:outbox:{application}"
        self._write = control.register_script(_WRITE)

    def load(self, groups: list[int], batch: int) -> dict[int, GroupState]:
        """The groups' state before `batch`. Raises StateFromTheFuture."""
        fields = [name for group in groups for name in (f"{group}", f"{group}:previous", f"{group}:batch")]
        values = self._control.hmget(self._state, fields) if fields else []
        return {
            group: GroupState.decode(self._before(values[3 * index : 3 * index + 3], group, batch))
            for index, group in enumerate(groups)
        }

    @staticmethod
    def _before(stored: list[bytes | None], group: int, batch: int) -> bytes | None:
        new, previous, number = stored
        if number is None or int(number) < batch:
            return new
        if int(number) > batch:
            raise StateFromTheFuture(
                f"key group {group} has the state of batch {int(number)}, but batch {batch} is at work: "
                "the checkpoint is older than the state. "
                "Put the newer checkpoint back, or start once with --reset."
            )
        return previous

    def write(self, batch: int, groups: Iterable[Written]) -> None:
        """State, pending time and outputs, whole or not at all per group. Raises StateFromTheFuture."""
        pipeline = self._control.pipeline(transaction=False)
        for item in groups:
            due = "" if item.due_us is None else item.due_us
            outputs = [part for output in item.outputs for part in output]
            self._write(
                keys=[self._state, self._outbox, self._pending],
                args=[item.group, batch, item.state, due, *outputs],
                client=pipeline,
            )
        if not all(pipeline.execute()):
            raise StateFromTheFuture(
                f"a later batch than {batch} is already written: another run has taken over."
            )

    def due(self, watermark_us: int, batch: int) -> list[int]:
        """Groups that keep events up to the watermark back and have not been worked in this batch."""
        pending = self._control.hgetall(self._pending)
        groups = sorted(int(group) for group, due_us in pending.items() if int(due_us) <= watermark_us)
        batches = self._control.hmget(self._state, [f"{group}:batch" for group in groups]) if groups else []
        return [group for group, at in zip(groups, batches, strict=True) if at is None or int(at) < batch]

    def outputs(self, most: int) -> dict[str, bytes]:
        """Complex events that are still to be published, `most` or a few more."""
        found: dict[str, bytes] = {}
        for name, value in self._control.hscan_iter(self._outbox, count=most):
            found[name.decode()] = value
            if len(found) >= most:
                break
        return found

    def published(self, ids: Iterable[str]) -> None:
        """Called after their publishing was acknowledged."""
        self._control.hdel(self._outbox, *ids)

    def clear(self) -> None:
        """Forgets everything but what is still to be published."""
        self._control.delete(self._state, self._pending)
