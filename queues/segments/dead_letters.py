"""The dead letters of a queue on one node: events that were given up, kept until a person decides.

A letter is identified by its id, and its displayed content by its digest (SHA-1 of the batch as it is stored). Each
change is one script that compares both: a letter is requeued, amended, or discarded once, as it was shown, or not at
all. A crash loses or doubles nothing, since no letter is ever in two places or in none.

A letter has the checksum of its events, which is checked before they are requeued. A letter of the kind `damaged` holds
a block that was damaged in its segment. Damaged letters can only be downloaded and discarded.
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
from queues.segments.checksum import compute_checksum, encode_header, parse_count
from queues.segments.segment import (
    CHUNK,
    FIRST_READ_BLOCKS,
    READ_BYTES,
    REMEMBERED_SECONDS,
    Segment,
    encode_letters,
    parse_entry_seconds,
)

GONE, CHANGED, REFUSED = 0, -1, -2
WORDS = {
    GONE: "was requeued, amended, or discarded in the meantime",
    CHANGED: "has changed since it was shown; open it again",
    REFUSED: "is damaged, so its events can't be requeued or changed; download or discard it",
}
# Letters to requeue at a time: their events are read first, to be checked.
REQUEUED_AT_ONCE = 16
FIELDS = frozenset((b"c", b"e", b"error", b"n", b"t", b"tries", b"worker", b"block", b"since", b"fixes", b"kind"))


@dataclass(frozen=True)
class DeadLetter:
    """Events that were given up, as they are stored, with explicit ids.

    The fields say how many events, why, after how many tries, by which worker, and since when. `fixes`: how often a
    person has changed its events. kind: `damaged` for a damaged block, or else "". damage: why the letter itself is
    damaged; "" if it is intact, or of a version without checksums.
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
    newest_time_us: int = 0
    kind: str = ""
    damage: str = ""

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

    @property
    def is_damaged(self) -> bool:
        """Return whether its events must not be processed again. A damaged kind counts, too."""
        return self.kind != "" or self.damage != ""


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

        Returns dead id → events moved, GONE, CHANGED, or REFUSED. A moved letter leaves the dead letters in the same
        step.
        """
        ids = ids or BlockIds()
        results: dict[str, int] = {}
        names = list(shown)
        for start in range(0, len(names), REQUEUED_AT_ONCE):
            results |= self._requeue_chunk({name: shown[name] for name in names[start : start + REQUEUED_AT_ONCE]}, ids)
        return results

    def discard(self, shown: Mapping[str, str]) -> dict[str, int]:
        """Delete dead letters for good. Returns dead id → its events, GONE or CHANGED."""
        return self._run_for_each("discard", shown, lambda dead_id: [dead_id, shown[dead_id]])

    def amend(self, dead_id: str, digest: str, batch: pa.RecordBatch) -> str:
        """Replace the events of a letter, and return its new id.

        Its cause, its tries, and its age stay. Raises `BadInput` if it is gone, changed, or damaged, or if a row has no
        id.
        """
        if batch.num_rows == 0 or batch.column(0).null_count:
            raise BadInput("event", "must have at least one event, and every event must have an ID.")
        letter = self.find(dead_id)
        if letter is None or letter.is_damaged:
            raise BadInput("letter", f"{dead_id} {WORDS[REFUSED if letter else GONE]}.")
        data, newest_time_us = batch.serialize().to_pybytes(), find_newest_time_us(batch)
        checksum = compute_checksum(*encode_header(letter.block_id, batch.num_rows, newest_time_us), data)
        with self._segment.convert_errors():
            content = (data, batch.num_rows, newest_time_us, checksum)
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
        words = (passage, kept_ms, worker, block_id, *encode_letters(block_id, rows))
        with self._segment.convert_errors():
            return bool(self._segment.run_synced_script("add_dead_letters", *words))

    def forget(self, dead_ids: Sequence[str]) -> int:
        """Remove what another node has received. Returns how many were still here."""
        with self._segment.convert_errors():
            return int(self._segment.node.xdel(self._key, *dead_ids)) if dead_ids else 0

    def _requeue_chunk(self, shown: Mapping[str, str], ids: BlockIds) -> dict[str, int]:
        letters = self._find_all(list(shown))
        results = {name: GONE if letter is None else REFUSED for name, letter in letters.items()}
        blocks = {
            name: _build_block(ids(), letter) for name, letter in letters.items() if letter and not letter.is_damaged
        }
        # The script compares each digest again: it requeues what was checked, or nothing.
        return results | self._run_for_each("requeue", blocks, lambda name: [name, shown[name], *blocks[name]])

    def _find_all(self, dead_ids: Sequence[str]) -> dict[str, DeadLetter | None]:
        """Return the letters with these ids, None for each that is no longer here."""
        with self._segment.convert_errors(), self._segment.node.pipeline(transaction=False) as pipe:
            for dead_id in dead_ids:
                pipe.xrange(self._key, dead_id, dead_id)
            answers = pipe.execute()
        return {
            name: _build_letter(*entries[0]) if entries else None
            for name, entries in zip(dead_ids, answers, strict=True)
        }

    def _run_for_each(
        self, script: str, shown: Iterable[str], words_of: Callable[[str], Iterable[str | bytes]]
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
        events=parse_count(fields.get(b"n")),
        error=_decode_field(fields, b"error"),
        tries=parse_count(fields.get(b"tries")),
        worker=_decode_field(fields, b"worker"),
        block_id=_decode_field(fields, b"block"),
        at_seconds=parse_entry_seconds(dead_id if since_ms is None else b"%d" % parse_count(since_ms)),
        fixes=parse_count(fields.get(b"fixes")),
        newest_time_us=parse_count(fields.get(b"t")),
        kind=_decode_field(fields, b"kind"),
        damage=_describe_damage(fields),
    )


def _describe_damage(fields: dict[bytes, bytes]) -> str:
    """Return why a stored letter is damaged; "" if it is intact, or of a version without checksums."""
    if unknown := sorted(fields.keys() - FIELDS):
        return f"The dead letter is damaged: unknown field {unknown[0].decode(errors='backslashreplace')[:80]}."
    stored = fields.get(b"c")
    if stored is None:
        return ""
    computed = compute_checksum(*(fields.get(name, b"") for name in (b"block", b"n", b"t", b"e")))
    if stored == computed:
        return ""
    said = stored.decode(errors="backslashreplace")[:80]
    return f"The dead letter is damaged: checksum {said}, computed {computed.decode(errors='backslashreplace')}."


def _build_block(block_id: str, letter: DeadLetter) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the header and the checksum of the block that a requeued letter becomes."""
    header = encode_header(block_id, letter.events, letter.newest_time_us)
    return (*header, compute_checksum(*header, letter.data))


def _decode_field(fields: dict[bytes, bytes], name: bytes) -> str:
    return fields.get(name, b"").decode(errors="backslashreplace").replace("\0", "\\0")
