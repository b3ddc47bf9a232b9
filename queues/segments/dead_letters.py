"""The dead letters of a queue on one node: events that were given up, kept until a person decides.

A letter is identified by its id, and its displayed content by its digest (SHA-1 of the batch as it is stored). Each
change is one script that compares both: a letter is requeued, amended, or discarded once, as it was shown, or not at
all. A crash loses or doubles nothing, since no letter is ever in two places or in none.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from common.errors import BadInput
from queues import keys
from queues.control.replies import expect_bytes
from queues.events.block import BlockIds, decode, find_newest_time_us
from queues.segments.segment import (
    CHUNK,
    FIRST_READ_BLOCKS,
    READ_BYTES,
    REMEMBERED_SECONDS,
    Segment,
    count_of,
    encode_letters,
    parse_entry_seconds,
)

GONE, CHANGED = 0, -1
WORDS = {
    GONE: "was requeued, amended, or discarded in the meantime",
    CHANGED: "has changed since it was shown; open it again",
}


@dataclass(frozen=True)
class DeadLetter:
    """Events that were given up, as they are stored, with explicit ids.

    The fields say how many events, why, after how many tries, by which worker, and since when. `fixes`: how often a
    person has changed its events.
    """

    dead_id: str
    data: bytes
    events: int
    error: str
    tries: int
    worker: str
    block_id: str
    at_seconds: float
    fixes: int = 0

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """Return the events. They are decoded on demand, since few of many dead letters are inspected.

        Raises `MalformedEvent` if the bytes are not events.
        """
        return decode(self.block_id, self.data).batch

    @property
    def digest(self) -> str:
        """Return the digest that a change compares: it identifies the letter as it was seen."""
        return hashlib.sha1(self.data, usedforsecurity=False).hexdigest()


class DeadLetters:
    """The methods may raise the same errors as those of `Segment`.

    `shown`: dead id → digest as it was seen.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._key = keys.DEAD.build(segment.queue)

    def read(self, count: int = 50, after: str = "-") -> list[DeadLetter]:
        """Return dead letters after `after` (an id from here; "-" is the beginning), oldest first."""
        start = "-" if after in ("", "-") else f"({after}"
        with self._segment.convert_errors():
            entries = expect_bytes(self._segment.node).xrange(self._key, start, "+", count)
        return [_build_letter(dead_id, fields) for dead_id, fields in entries]

    def iterate(self, most: int, most_bytes: int = READ_BYTES) -> Iterator[DeadLetter]:
        """Yield the oldest `most` letters, by requests for about `most_bytes`, estimated from earlier letters."""
        after, count = "-", FIRST_READ_BLOCKS
        while most > 0:
            count = min(count, most)
            page = self.read(count, after)
            yield from page
            if len(page) < count:
                return
            after, most = page[-1].dead_id, most - count
            size_bytes = sum(len(letter.data) for letter in page)
            count = max(1, min(CHUNK, most_bytes * count // max(1, size_bytes)))

    def find(self, dead_id: str) -> DeadLetter | None:
        """Return the letter with that id, or None if it is no longer here."""
        with self._segment.convert_errors():
            entries = expect_bytes(self._segment.node).xrange(self._key, dead_id, dead_id)
        return _build_letter(*entries[0]) if entries else None

    def requeue(self, shown: Mapping[str, str], ids: BlockIds | None = None) -> dict[str, int]:
        """Requeue dead letters into the segment, each as a new block whose events keep their ids.

        Returns dead id → events moved, GONE or CHANGED. A moved letter leaves the dead letters in the same step.
        """
        ids = ids or BlockIds()
        return self._run_for_each("requeue", shown, lambda dead_id: [dead_id, shown[dead_id], ids()])

    def discard(self, shown: Mapping[str, str]) -> dict[str, int]:
        """Delete dead letters for good. Returns dead id → its events, GONE or CHANGED."""
        return self._run_for_each("discard", shown, lambda dead_id: [dead_id, shown[dead_id]])

    def amend(self, dead_id: str, digest: str, batch: pa.RecordBatch) -> str:
        """Replace the events of a letter, and return its new id.

        Its cause, its tries, and its age stay. Raises `BadInput` if it is gone or changed, or if a row has no id.
        """
        if batch.num_rows == 0 or batch.column(0).null_count:
            raise BadInput("event", "must have at least one event, and every event must have an ID.")
        content = (batch.serialize().to_pybytes(), batch.num_rows, find_newest_time_us(batch))
        with self._segment.convert_errors():
            answer = self._segment.run_synced_script("amend", dead_id, digest, *content)
        if isinstance(answer, int):
            raise BadInput("letter", f"{dead_id} {WORDS[answer]}.")
        return str(answer.decode())

    def list_stored(self, count: int) -> list[tuple[str, list[Any]]]:
        """Return (dead id, fields and values) of the oldest, for a transfer.

        The values are as stored, with the time since when they are dead, since they get another id at their
        destination.
        """
        with self._segment.convert_errors():
            entries = expect_bytes(self._segment.node).xrange(self._key, "-", "+", count)
        dated = [(name, {b"since": name.split(b"-")[0]} | fields) for name, fields in entries]
        return [(name.decode(), [part for pair in fields.items() for part in pair]) for name, fields in dated]

    def receive(self, source: str, dead_id: str, content: Sequence[Any]) -> bool:
        """Receive a letter from node `source`, once."""
        passage, kept_ms = f"{source}/dead/{dead_id}", round(REMEMBERED_SECONDS * 1000)
        with self._segment.convert_errors():
            return bool(self._segment.run_synced_script("receive_dead_letter", passage, kept_ms, *content))

    def add(self, entry_id: str, worker: str, block_id: str, rows: Sequence[tuple[pa.RecordBatch, str]]) -> bool:
        """Add poison rows (batch with explicit ids, error) of an entry.

        The entry is read by stream id and removed by `trim`. Once for each entry: returns False if they are here
        already.
        """
        passage, kept_ms = f"{worker}/{entry_id}/{block_id}", round(REMEMBERED_SECONDS * 1000)
        words = (passage, kept_ms, worker, block_id, *encode_letters(rows))
        with self._segment.convert_errors():
            return bool(self._segment.run_synced_script("add_dead_letters", *words))

    def forget(self, dead_ids: Sequence[str]) -> int:
        """Remove what another node has received. Returns how many were still here."""
        with self._segment.convert_errors():
            return int(self._segment.node.xdel(self._key, *dead_ids)) if dead_ids else 0

    def _run_for_each(
        self, script: str, shown: Mapping[str, str], words_of: Callable[[str], Iterable[str]]
    ) -> dict[str, int]:
        results: dict[str, int] = {}
        names = list(shown)
        for start in range(0, len(names), CHUNK):
            chunk = names[start : start + CHUNK]
            with self._segment.convert_errors():
                answers = self._segment.run_synced_script(script, *(word for name in chunk for word in words_of(name)))
            results |= dict(zip(chunk, map(int, answers), strict=True))
        return results


def _build_letter(dead_id: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
    since_ms = fields.get(b"since")
    return DeadLetter(
        dead_id=dead_id.decode(),
        data=fields.get(b"e", b""),
        events=count_of(fields.get(b"n")),
        error=_decode_field(fields, b"error"),
        tries=count_of(fields.get(b"tries")),
        worker=_decode_field(fields, b"worker"),
        block_id=_decode_field(fields, b"block"),
        at_seconds=parse_entry_seconds(dead_id if since_ms is None else b"%d" % count_of(since_ms)),
        fixes=count_of(fields.get(b"fixes")),
    )


def _decode_field(fields: dict[bytes, bytes], name: bytes) -> str:
    return fields.get(name, b"").decode(errors="backslashreplace").replace("\0", "\\0")
