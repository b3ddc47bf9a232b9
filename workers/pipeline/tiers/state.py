r"""The memory of operators between batches: one value per operator and key group, on the control server.

A place (`operator/group`) is stored with the number of the batch that wrote it, in one script with the matches of that
batch and with all other places of the task. A task is therefore either written or not: one that is written is not
repeated, and one that is not starts from the state of the previous batch. A writer of an older batch (a process that
was thought dead) is rejected.

| key | type | holds |
|---|---|---|
| `weir:pipeline:state:{app}` | hash | `{operator}/{group}` state, `…:batch` |
| `weir:pipeline:pending:{app}` | hash | place → event time (µs) at which it is due without events |
| `weir:pipeline:between:{app}:{batch}` | hash | name → complex events for other operators (Arrow stream) |
| `weir:pipeline:outbox:{app}` | hash | `{queue}\|{batch}/{run}/…/{events}` → match rows to be completed and published |
| `weir:pipeline:recent:{app}` | list | the newest complex events that were published, JSON |
| `weir:pipeline:late:{app}` | stream | `d` late events (Arrow), `n` how many; LATE_RETAINED units |
"""

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
import redis
from redis.typing import EncodableT

from common.errors import WeirError
from common.stored_document import decode_document
from queues import keys
from queues.control.replies import expect_bytes
from queues.lua.script import load_script
from workers.documents.pipeline import ComplexEvent
from workers.pipeline.events.layout import decode, encode

LATE_RETAINED = 100  # units of batches with late events
RETAINED = 30  # number of complex events that are shown


class NewerState(WeirError):  # noqa: N818
    """Raised for state of a later batch than the current one: another process has taken over."""


def format_outbox_name(queue: str, batch: int, run: str, place: str, rows: pa.RecordBatch) -> str:
    """Return the name of complex events in the outbox: their destination, origin, and number.

    After a reset batches are counted from the start again, and waiting events belong to another run.
    """
    return f"{queue}|{batch}/{run}/{place}/{rows.num_rows}"


def queue_of(name: str) -> str:
    """Return the destination of complex events in the outbox."""
    return name.partition("|")[0]


@dataclass(frozen=True)
class WrittenState:
    """The data that a task wrote for a batch.

    places: place → (state, event time (µs) at which it has to be checked again without events, or None).
    between: name → complex events. outbox: name → match rows (`complex_event.build_match_rows`). late: the newest of
    late_events rows that arrived too late.
    """

    places: Mapping[str, tuple[bytes, int | None]]
    between: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    outbox: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    late: pa.RecordBatch | None = None
    late_events: int = 0

    def build_arguments(self, batch: int) -> list[EncodableT]:
        arguments_: list[EncodableT] = [batch, len(self.places)]
        for place, (state, due_us) in self.places.items():
            arguments_ += [place, state, "" if due_us is None else due_us]
        for blobs in (self.between, self.outbox):
            arguments_.append(len(blobs))
            for name, rows in blobs.items():
                arguments_ += [name, encode(rows)]
        if self.late is None or not self.late.num_rows:
            return [*arguments_, 0]
        return [*arguments_, 1, encode(self.late), self.late_events, LATE_RETAINED]


class StateStore:
    """The keys above, of one application."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control, self._application = control, application
        self._state = keys.PIPELINE_STATE.build(application)
        self._pending = keys.PIPELINE_PENDING.build(application)
        self._outbox = keys.PIPELINE_OUTBOX.build(application)
        self._recent = keys.PIPELINE_RECENT.build(application)
        self._late = keys.PIPELINE_LATE.build(application)
        self._write = control.register_script(load_script("pipeline/write_state"))

    def load(self, places: list[str], batch: int) -> dict[str, bytes] | None:
        """Return the places' state before `batch`, without those that have none.

        Return None if the batch is already written. Raises `NewerState`.
        """
        fields = [name for place in places for name in (place, f"{place}:batch")]
        values = expect_bytes(self._control).hmget(self._state, fields) if fields else []
        stored_values: dict[str, bytes] = {}
        for index, place in enumerate(places):
            state, number = values[2 * index : 2 * index + 2]
            if number is not None and int(number) > batch:
                raise NewerState(
                    f"{place} has the state of batch {int(number)}, but the current batch is {batch}: another process "
                    "has finished it, or the plan is older than the state. In the second case, start once with --reset."
                )
            if number is not None and int(number) == batch:
                return None
            if state:
                stored_values[place] = state
        return stored_values

    def write(self, batch: int, written: WrittenState) -> None:
        """Write state, due times, and outputs, atomically. Raises `NewerState`."""
        places = [self._state, self._pending, self._build_between_key(batch), self._outbox, self._late]
        if not self._write(keys=places, args=written.build_arguments(batch)):
            raise NewerState(f"a later batch than {batch} is already written: another run has taken over.")

    def list_due_groups(self, now_us: int) -> dict[str, list[int]]:
        """Return, per operator, the groups to be checked at this event time, even without events."""
        due_groups: dict[str, list[int]] = {}
        for place, due_us in expect_bytes(self._control).hgetall(self._pending).items():
            if int(due_us) <= now_us:
                operator, _, group = place.decode().rpartition("/")
                due_groups.setdefault(operator, []).append(int(group))
        return due_groups

    def read_between(self, batch: int) -> list[pa.RecordBatch]:
        """Return what operators have emitted for operators in this batch so far."""
        values = expect_bytes(self._control).hgetall(self._build_between_key(batch))
        return [rows for name in sorted(values) for rows in decode(values[name])]

    def forget_between(self, batch: int) -> None:
        """Remove what operators emitted for operators in a batch that is done."""
        self._control.delete(self._build_between_key(batch))

    def list_output_names(self, refused: Collection[str] = ()) -> list[str]:
        """Return the names of unpublished complex events, those of the oldest batches first.

        In a pipeline that reads them, later ones would make them late. refused: queues whose events are left out.
        """
        names = [name.decode() for name in expect_bytes(self._control).hkeys(self._outbox)]
        origins = {name: name.partition("|")[2].partition("/") for name in names if queue_of(name) not in refused}
        return sorted(origins, key=lambda name: (int(origins[name][0]), origins[name][2]))

    def load_outputs(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the existing ones of these names, in their order."""
        values = expect_bytes(self._control).hmget(self._outbox, names) if names else []
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    def count_waiting_outputs(self) -> dict[str, int]:
        """Return the number of unpublished complex events by queue."""
        waiting: Counter[str] = Counter()
        for name in expect_bytes(self._control).hkeys(self._outbox):
            queue, _, place = name.decode().partition("|")
            waiting[queue] += int(place.rpartition("/")[2])
        return dict(waiting)

    def record_published(self, names: Iterable[str], newest: Iterable[bytes] = ()) -> None:
        """Record that events were published and acknowledged. newest: events to be shown, newest first."""
        # Separate: a server whose memory is full shows nothing new, and would otherwise remove nothing either.
        self._control.hdel(self._outbox, *names)
        if shown := list(newest):
            pipeline = self._control.pipeline(transaction=True)
            pipeline.lpush(self._recent, *reversed(shown))
            pipeline.ltrim(self._recent, 0, RETAINED - 1)
            with suppress(redis.ResponseError):
                pipeline.execute()

    def list_recent_events(self) -> list[ComplexEvent]:
        """Return the newest complex events, newest first, with their attributes parsed."""
        texts = self._control.lrange(self._recent, 0, RETAINED - 1)
        return [decode_document(ComplexEvent, text, "complex event") for text in texts]

    def list_late_events(self, most: int) -> list[pa.RecordBatch]:
        """Return the newest late events, newest first."""
        entries = expect_bytes(self._control).xrevrange(self._late, count=most)
        return [rows for _, fields in entries for rows in decode(fields[b"d"])]

    def forget_others(self, operators: Collection[str]) -> None:
        """Remove the state of operators that are no longer used.

        If they come back, they don't know what arrived in between.
        """
        for key in (self._state, self._pending):
            names = expect_bytes(self._control).hkeys(key)
            old = [name for name in names if name.decode().rpartition("/")[0] not in operators]
            if old:
                self._control.hdel(key, *old)

    def clear(self) -> None:
        """Remove everything except unpublished events and late events."""
        between = list(self._control.scan_iter(self._build_between_key("*")))
        self._control.delete(self._state, self._pending, *between)

    def _build_between_key(self, batch: int | str) -> str:
        return keys.PIPELINE_BETWEEN.build(self._application, batch)


_LENGTH = struct.Struct("<I")
SAMPLE = "~sample"  # end of the signature of a part that no match depends on
MAX_STATE_BYTES = 128 * 2**20  # of an application: a quarter of what ./run gives the control server


def place_limit(operators: int, groups: int) -> int:
    """Return how many bytes one key group of one operator may store."""
    return MAX_STATE_BYTES // (operators * groups)


@dataclass
class OperatorMemory:
    """The stored states of an operator.

    groups: all groups of the batch. parts: signature → group → state. The part of a pattern that is no longer used is
    dropped. max_place_bytes: limit of a group. forgotten_bytes: signature → bytes that did not fit, once `written`.
    """

    max_place_bytes: int = MAX_STATE_BYTES
    groups: frozenset[int] = frozenset()
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    forgotten_bytes: dict[str, int] = field(default_factory=dict)
    _kept: dict[int, dict[str, bytes]] = field(default_factory=dict)
    _timers_us: dict[int, int] = field(default_factory=dict)

    @classmethod
    def build(
        cls, places: Mapping[str, bytes], max_place_bytes: int = MAX_STATE_BYTES, groups: Collection[int] = ()
    ) -> "OperatorMemory":
        """Build from the values of places (`operator/group`)."""
        memory = cls(max_place_bytes, frozenset(groups))
        for place, data in places.items():
            group = int(place.rpartition("/")[2])
            (length,) = _LENGTH.unpack_from(data)
            end = _LENGTH.size + length
            for signature, size in orjson.loads(data[_LENGTH.size : end]).items():
                memory.parts.setdefault(signature, {})[group] = data[end : end + size]
                end += size
        return memory

    def get_states(self, signature: str) -> dict[int, bytes]:
        return self.parts.get(signature, {})

    def keep(self, signature: str, states: Mapping[int, bytes], timers_us: Mapping[int, int]) -> None:
        """Keep the states of a pattern. timers_us: group → event time at which it is checked even without events."""
        for group, state in states.items():
            self._kept.setdefault(group, {})[signature] = state
        for group, time_us in timers_us.items():
            self._timers_us[group] = min(self._timers_us.get(group, time_us), time_us)

    def write_places(self, places: list[str]) -> dict[str, tuple[bytes, int | None]]:
        """Return the value of every place, and when it is due."""
        written = {}
        for place in places:
            group, data = int(place.rpartition("/")[2]), b""
            if parts := self._drop_excess_parts(self._kept.get(group, {})):
                head = orjson.dumps({signature: len(state) for signature, state in parts.items()})
                data = b"".join((_LENGTH.pack(len(head)), head, *parts.values()))
            written[place] = data, self._timers_us.get(group)
        return written

    def _drop_excess_parts(self, parts: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Leave out the largest parts of a group, samples first, until the rest fits, and count the omitted parts."""
        total = sum(map(len, parts.values()))
        left = dict(parts)
        for signature in sorted(parts, key=lambda name: (not name.endswith(SAMPLE), -len(parts[name]))):
            if total <= self.max_place_bytes:
                break
            size = len(left.pop(signature))
            total -= size
            self.forgotten_bytes[signature] = self.forgotten_bytes.get(signature, 0) + size
        return left
