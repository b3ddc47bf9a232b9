r"""What operators remember between batches: one value per operator and key group, kept on the control server
with the batch that wrote it.

A place (`operator/group`) is stored with the batch that wrote it, in one script with the matches of that
batch and with all other places of the task. So a task is either written or not: one that is written is not
worked again, and one that is not starts from the state of the batch before. A writer of an older batch (a
process that was thought dead) is refused.

| key | type | holds |
|---|---|---|
| `weir:pipeline:state:{app}` | hash | `{operator}/{group}` state, `…:batch` |
| `weir:pipeline:pending:{app}` | hash | place → event time (µs) at which it is due without events |
| `weir:pipeline:between:{app}:{batch}` | hash | name → complex events for other operators (Arrow stream) |
| `weir:pipeline:outbox:{app}` | hash | `{queue}\|{batch}/{run}/…/{events}` → complex events to be published |
| `weir:pipeline:recent:{app}` | list | the newest complex events that were published, JSON |
| `weir:pipeline:late:{app}` | stream | `d` late events (Arrow), `n` how many; LATE_RETAINED units |
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
import redis
from redis.typing import EncodableT

from queues import keys
from queues.errors import WeirError
from queues.lua.script import script
from queues.redis_types import Entries, Fields
from queues.stored_document import decode_document
from workers.documents.pipeline import ComplexEvent
from workers.pipeline.events.arrow_blob import decode, encode

LATE_RETAINED = 100  # units of batches with late events
RETAINED = 30  # complex events that are shown


class StateFromTheFuture(WeirError):  # noqa: N818
    """State of a later batch than the one at work: the checkpoint is older than the state, or another run has
    taken over.
    """


def outbox_name(queue: str, batch: int, run: str, place: str, rows: pa.RecordBatch) -> str:
    """The name of complex events in the outbox: where they go, what made them, and how many they are. After a
    reset batches count anew, and what waits is of another run.
    """
    return f"{queue}|{batch}/{run}/{place}/{rows.num_rows}"


def queue_of(name: str) -> str:
    """Where complex events of the outbox go."""
    return name.partition("|")[0]


def _age(name: str) -> tuple[int, str]:
    """By which the oldest come first."""
    batch, _, rest = name.partition("|")[2].partition("/")
    return int(batch), rest


@dataclass(frozen=True)
class WrittenState:
    """What a task made of a batch. places: place → (state, event time (µs) at which it has to be checked
    again without events, or None). between, outbox: name → complex events. late: the newest of late_events
    rows that came too late.
    """

    places: Mapping[str, tuple[bytes, int | None]]
    between: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    outbox: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    late: pa.RecordBatch | None = None
    late_events: int = 0

    def arguments(self, batch: int) -> list[EncodableT]:
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
        self._write = control.register_script(script("pipeline/write_state"))

    def load(self, places: list[str], batch: int) -> dict[str, bytes] | None:
        """The places' state before `batch`, without those that have none; None when the batch is written
        already. Raises StateFromTheFuture.
        """
        fields = [name for place in places for name in (place, f"{place}:batch")]
        values = cast(list[bytes | None], self._control.hmget(self._state, fields) if fields else [])
        found: dict[str, bytes] = {}
        for index, place in enumerate(places):
            state, number = values[2 * index : 2 * index + 2]
            if number is not None and int(number) > batch:
                raise StateFromTheFuture(
                    f"{place} has the state of batch {int(number)}, but batch {batch} is at work: the "
                    "checkpoint is older than the state. "
                    "Put the newer checkpoint back, or start once with --reset."
                )
            if number is not None and int(number) == batch:
                return None
            if state:
                found[place] = state
        return found

    def write(self, batch: int, written: WrittenState) -> None:
        """State, due times and outputs, whole or not at all. Raises StateFromTheFuture."""
        places = [self._state, self._pending, self._build_between_key(batch), self._outbox, self._late]
        if not self._write(keys=places, args=written.arguments(batch)):
            raise StateFromTheFuture(
                f"a later batch than {batch} is already written: another run has taken over."
            )

    def due(self, watermark_us: int) -> dict[str, list[int]]:
        """Operator → groups that are to be checked when event time is there, events or none."""
        due_groups: dict[str, list[int]] = {}
        for place, due_us in cast(Fields, self._control.hgetall(self._pending)).items():
            if int(due_us) <= watermark_us:
                operator, _, group = place.decode().rpartition("/")
                due_groups.setdefault(operator, []).append(int(group))
        return due_groups

    def read_between(self, batch: int) -> list[pa.RecordBatch]:
        """What operators have emitted for operators in this batch so far."""
        found = cast(Fields, self._control.hgetall(self._build_between_key(batch)))
        return [rows for name in sorted(found) for rows in decode(found[name])]

    def forget_between(self, batch: int) -> None:
        """Of a batch that is done."""
        self._control.delete(self._build_between_key(batch))

    def output_names(self, refused: Collection[str] = ()) -> list[str]:
        """Of complex events that are still to be published, those of the oldest batches first: for a pipeline
        that reads them, later ones would make them late. refused: queues whose events are left out.
        """
        names = [name.decode() for name in cast(list[bytes], self._control.hkeys(self._outbox))]
        return sorted((name for name in names if queue_of(name) not in refused), key=_age)

    def outputs(self, names: Sequence[str]) -> dict[str, bytes]:
        """Those of these names that are there, in their order."""
        values = cast(list[bytes | None], self._control.hmget(self._outbox, names)) if names else []
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    def count_waiting_outputs(self) -> dict[str, int]:
        """How many complex events are still to be published, by queue."""
        waiting: Counter[str] = Counter()
        for name in cast(list[bytes], self._control.hkeys(self._outbox)):
            queue, _, place = name.decode().partition("|")
            waiting[queue] += int(place.rpartition("/")[2])
        return dict(waiting)

    def record_published(self, names: Iterable[str], newest: Iterable[bytes] = ()) -> None:
        """Called after their publishing was acknowledged. newest: events to be shown, the newest first."""
        # By itself: a server whose memory is full shows nothing new, and would let nothing go with it.
        self._control.hdel(self._outbox, *names)
        if shown := list(newest):
            pipeline = self._control.pipeline(transaction=True)
            pipeline.lpush(self._recent, *reversed(shown))
            pipeline.ltrim(self._recent, 0, RETAINED - 1)
            with suppress(redis.ResponseError):
                pipeline.execute()

    def recent(self) -> list[ComplexEvent]:
        """The newest complex events, newest first, their attributes read."""
        texts = self._control.lrange(self._recent, 0, RETAINED - 1)
        return [decode_document(ComplexEvent, text, "complex event") for text in texts]

    def late(self, most: int) -> list[pa.RecordBatch]:
        """The newest late events, newest first."""
        entries = cast(Entries, self._control.xrevrange(self._late, count=most))
        return [rows for _, fields in entries for rows in decode(fields[b"d"])]

    def forget_others(self, operators: Collection[str]) -> None:
        """What operators remember that are not at work any more: if they come back, what came in between is
        unknown to them.
        """
        for key in (self._state, self._pending):
            names = cast(list[bytes], self._control.hkeys(key))
            old = [name for name in names if name.decode().rpartition("/")[0] not in operators]
            if old:
                self._control.hdel(key, *old)

    def clear(self) -> None:
        """Forgets everything but what is still to be published, and what came late."""
        between = list(self._control.scan_iter(self._build_between_key("*")))
        self._control.delete(self._state, self._pending, *between)

    def _build_between_key(self, batch: int | str) -> str:
        return keys.PIPELINE_BETWEEN.build(self._application, batch)
