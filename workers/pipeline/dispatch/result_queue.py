"""The bounded queue between the two tiers, on the control server: the events that passed the replicas' rules.

A replica's batch writes its rows as Arrow blobs and then publishes them, all at once and once only: a batch that is
repeated after it was published changes nothing. An attempt that was thought dead, and continues after another has
started, is rejected, so that their different cuts never mix. A blob stays until the watermark has passed its last row,
so the queue is also the combiner's reorder buffer. The dispatcher bounds its bytes, so that no batch ever waits in the
middle and nothing is dropped.

| key | type | holds |
|---|---|---|
| `weir:pipeline:result:{app}:{replica}:{tick}` | hash | blob name → Arrow stream |
| `weir:pipeline:results:{app}` | stream | `d`: a `Result` (JSON), when it was published |
| `weir:pipeline:room:{app}` | hash | `used_bytes`, `in_flight_events`, `bytes`, `recent_events`, `published:…` … |
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import redis
from redis.typing import EncodableT

from common.errors import WeirError
from common.parsing import parse_digits
from common.stored_document import StoredDocument, decode_document, encode_document, replace_fields
from queues import keys
from queues.control.connection import await_entry
from queues.control.replies import expect_bytes
from queues.lua.script import load_script
from workers.pipeline.events.layout import decode

ASSUMED_BYTES = 120.0  # of an event in the queue, before any was measured
# Each new result reduces the weight of earlier results in the mean size by this factor. With the mean of all results,
# the dispatcher would admit too many events for hours after rules begin to keep more of them, and would oscillate.
RESULT_FADE = 0.9


class AttemptOvertaken(WeirError):  # noqa: N818
    """Raised when another attempt at the batch has started, or has published it: this one leaves no trace."""


class Blob(NamedTuple):
    """Rows of one route (its key column) and slice (of key groups; -1: of all), and their event times."""

    name: str
    route: str
    slice: int
    first_us: int
    last_us: int
    rows: int
    size_bytes: int


class Result(StoredDocument, frozen=True):
    """The result of one batch of a replica.

    tick: of its last dispatch. watermark_us: the settled event time before its first dispatch. entry_id: set when it is
    published.
    """

    replica: str
    tick: int
    watermark_us: int | None
    blobs: tuple[Blob, ...]
    entry_id: str = ""

    @property
    def size_bytes(self) -> int:
        return sum(blob.size_bytes for blob in self.blobs)

    @property
    def published_seconds(self) -> float | None:
        """Return when it was published by the control server's clock (s since 1970); None: not yet."""
        return int(self.entry_id.partition("-")[0]) / 1_000 if self.entry_id else None

    @property
    def last_us(self) -> int | None:
        return max((blob.last_us for blob in self.blobs), default=None)


@dataclass(frozen=True)
class Room:
    """The occupancy of the queue.

    used_bytes: in the queue. in_flight_events: dispatched, not yet in the queue. published: replica → tick.
    bytes_per_event: average over the newest results (a discarded event counts with 0 bytes). released_bytes: bytes that
    have left it so far.
    """

    used_bytes: int
    in_flight_events: int
    published: dict[str, int]
    bytes_per_event: float
    released_bytes: int

    def free_bytes(self, capacity_bytes: int) -> float:
        """Return what is left when everything in flight has arrived."""
        return capacity_bytes - self.used_bytes - self.in_flight_events * self.bytes_per_event


class ResultQueue:
    """Reads and writes the keys above."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control, self._application = control, application
        self._results = keys.PIPELINE_RESULTS.build(application)
        self._room = keys.PIPELINE_ROOM.build(application)
        self._begin = control.register_script(load_script("pipeline/begin_result"))
        self._put = control.register_script(load_script("pipeline/put_result"))
        self._publish = control.register_script(load_script("pipeline/publish_result"))
        self._release = control.register_script(load_script("pipeline/release_result"))

    def begin(self, replica: str, after: int, tick: int) -> str | None:
        """Start an attempt at the batch of the dispatches after one, and return its name for `put` and `publish`.

        Return None unless `after` is the replica's last published dispatch: another attempt has published some of the
        batch. The results of an earlier unfinished attempt are deleted, even if its batch ended at another dispatch.
        """
        attempt = f"{tick}-{secrets.token_hex(8)}"
        ticks = {tick, self.find_attempted_tick(replica) or tick}
        places = [self._room, *(self._build_blobs_key(replica, begun) for begun in ticks)]
        return attempt if self._begin(keys=places, args=[replica, after, attempt]) else None

    def find_attempted_tick(self, replica: str) -> int | None:
        """Return the last dispatch of the batch that was started and not published yet, if any."""
        attempt = expect_bytes(self._control).hget(self._room, f"attempt:{replica}") or b""
        return parse_digits(attempt.decode().partition("-")[0]) if b"-" in attempt else None

    def put(self, replica: str, tick: int, attempt: str, blobs: dict[str, bytes]) -> None:
        """Add blobs to a batch that is not published yet; they are not visible. Raises `AttemptOvertaken`."""
        if not blobs:
            return
        written: list[EncodableT] = [replica, attempt, *(part for blob in blobs.items() for part in blob)]
        if not self._put(keys=[self._room, self._build_blobs_key(replica, tick)], args=written):
            raise _build_overtaken_error(replica, tick)

    def publish(self, result: Result, attempt: str, events: int) -> bool:
        """Publish a result. Returns False if it was published before.

        events: processed by the batch, before its rules. Raises `AttemptOvertaken`.
        """
        written: list[EncodableT] = [result.replica, result.tick, attempt, events, result.size_bytes]
        written += [encode_document(result), RESULT_FADE]
        answer = int(self._publish(keys=[self._room, self._results], args=written))
        if answer < 0:
            raise _build_overtaken_error(result.replica, result.tick)
        return bool(answer)

    def read_after(self, entry_id: str) -> list[Result]:
        """Return the results published after an entry, in the order of publishing."""
        entries = expect_bytes(self._control).xrange(self._results, f"({entry_id}")
        results = [(name.decode(), decode_document(Result, fields[b"d"], "result")) for name, fields in entries]
        return [replace_fields(result, entry_id=name) for name, result in results]

    def await_after(self, entry_id: str, seconds: float) -> None:
        """Wait until a result is published after an entry, or until the time is over."""
        await_entry(self._control, self._results, entry_id, seconds)

    def read(self, result: Result, names: Iterable[str]) -> list[pa.RecordBatch]:
        """Read blobs of a published result. Raises `KeyError` that names a missing one."""
        wanted = list(names)
        key = self._build_blobs_key(result.replica, result.tick)
        values = expect_bytes(self._control).hmget(key, wanted) if wanted else []
        batches: list[pa.RecordBatch] = []
        for name, data in zip(wanted, values, strict=True):
            if data is None:
                raise KeyError(f"{key} {name}")
            batches += decode(data)
        return batches

    def release(self, result: Result) -> None:
        """Release a result that the watermark has passed: its bytes are free. Idempotent."""
        places = [self._room, self._results, self._build_blobs_key(result.replica, result.tick)]
        self._release(keys=places, args=[result.size_bytes, result.entry_id])

    def measure_room(self) -> Room:
        room = expect_bytes(self._control).hgetall(self._room)
        size, used, in_flight = (int(room.get(name, 0)) for name in (b"bytes", b"used_bytes", b"in_flight_events"))
        events, recent = (float(room.get(name, 0)) for name in (b"recent_events", b"recent_bytes"))
        published = {
            name.decode().split(":", 1)[1]: int(tick) for name, tick in room.items() if name.startswith(b"published:")
        }
        return Room(used, in_flight, published, recent / events if events else ASSUMED_BYTES, size - used)

    def clear(self) -> None:
        blobs = list(self._control.scan_iter(self._build_blobs_key("*", "*")))
        self._control.delete(self._results, self._room, *blobs)

    def _build_blobs_key(self, replica: str, tick: int | str) -> str:
        return keys.PIPELINE_RESULT.build(self._application, replica, tick)


def _build_overtaken_error(replica: str, tick: int) -> AttemptOvertaken:
    return AttemptOvertaken(f"another attempt at batch {tick} of {replica} has started; this attempt ends.")
