"""The dead letters of a queue on one node: events that were given up, kept until a person decides.

A letter is identified by its id, and its displayed content by its digest (SHA-1 of the batch as it is stored). Each
change is one script that compares both: a letter is requeued, amended, or discarded once, as it was shown, or not at
all. A crash loses or doubles nothing: a letter that moves to another node is marked here first. From then on, nobody
can change it here, and it goes to no other node. It is removed here when the other node has it.

A letter has the checksum of its events, which each read checks. A letter of the kind `damaged` holds
a block that was damaged in its segment. Damaged letters can only be downloaded and discarded.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from common.errors import BadInput, WeirError
from queues import keys
from queues.control.replies import Fields, expect_bytes
from queues.events.block import BlockIds, decode, find_newest_time_us
from queues.segments.checksum import Damage, compute_checksum, encode_header, find_damage, parse_count
from queues.segments.node_errors import format_address
from queues.segments.segment import (
    CHUNK,
    FIRST_READ_BLOCKS,
    READ_BYTES,
    REMEMBERED_SECONDS,
    Segment,
    encode_letters,
    parse_entry_seconds,
)

GONE, CHANGED, REFUSED, MOVING = 0, -1, -2, -3
WORDS = {
    GONE: "was requeued, amended, or discarded in the meantime",
    CHANGED: "has changed since it was shown; open it again",
    REFUSED: "is damaged, so its events can't be requeued or changed; download or discard it",
    MOVING: "is being moved to another node; try again when the move is complete",
}
# Letters to requeue at a time: their events are read first, to be checked.
REQUEUED_AT_ONCE = 16
FOUND = b"found"  # a field of a moved letter whose damage was found, and counted, on another node
NAMES_IN_BLOCK = {b"c": b"c", b"block": b"i", b"n": b"n", b"t": b"t", b"e": b"d"}  # the fields of the checksum
FIELDS = NAMES_IN_BLOCK.keys() | {b"error", b"tries", b"worker", b"since", b"fixes", b"kind", FOUND}


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


class DepartingLetter(NamedTuple):
    """A dead letter on its way to another node. content: its fields and values as stored, and since when it is dead."""

    dead_id: str
    target: str
    content: Sequence[bytes]


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
        return self._build_letters(entries)

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
        return next(iter(self._build_letters(entries)), None)

    def requeue(self, shown: Mapping[str, str], ids: BlockIds | None = None) -> dict[str, int]:
        """Requeue dead letters into the segment, each as a new block whose events keep their ids.

        Returns dead id → events requeued, GONE, CHANGED, REFUSED, or MOVING. A requeued letter leaves the dead letters
        in the same step.
        """
        ids = ids or BlockIds()
        results: dict[str, int] = {}
        names = list(shown)
        for start in range(0, len(names), REQUEUED_AT_ONCE):
            results |= self._requeue_chunk({name: shown[name] for name in names[start : start + REQUEUED_AT_ONCE]}, ids)
        return results

    def discard(self, shown: Mapping[str, str]) -> dict[str, int]:
        """Delete dead letters for good. Returns dead id → its events, GONE, CHANGED, or MOVING."""
        return self._run_for_each("discard", shown, lambda dead_id: [dead_id, shown[dead_id]])

    def amend(self, dead_id: str, digest: str, batch: pa.RecordBatch) -> str:
        """Replace the events of a letter, and return its new id.

        Its cause, its tries, and its age stay. Raises `BadInput` if it is gone, changed, damaged, or being moved, or if
        a row has no id.
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

    def depart(
        self, target: str | None, nodes: Collection[str], most_letters: int, most_bytes: int
    ) -> list[DepartingLetter]:
        """Return letters to transfer, each marked with its target node, up to the first beyond `most_bytes`.

        Letters marked for one of `nodes` come first, repeatedly until they are confirmed. Then the oldest others are
        marked for `target`; with None, no other departs.
        """
        with self._segment.convert_errors():
            limits = most_letters, most_bytes
            rows = self._segment.run_script("depart_dead_letters", *limits, target or "", *nodes)
        stored = [(dead_id, node, dict(zip(parts[::2], parts[1::2], strict=True))) for dead_id, node, parts in rows]
        letters = self._build_letters((dead_id, fields) for dead_id, _, fields in stored)
        return [
            DepartingLetter(letter.dead_id, node.decode(), _list_content(dead_id, fields, letter.damage != ""))
            for letter, (dead_id, node, fields) in zip(letters, stored, strict=True)
        ]

    def receive(self, source: str, letter: DepartingLetter) -> bool:
        """Receive a letter from node `source`, once: returns False if it was received before."""
        passage, kept_ms = f"{source}/dead/{letter.dead_id}", round(REMEMBERED_SECONDS * 1000)
        with self._segment.convert_errors():
            return bool(self._segment.run_synced_script("receive_dead_letter", passage, kept_ms, *letter.content))

    def add(self, entry_id: str, worker: str, block_id: str, rows: Sequence[tuple[pa.RecordBatch, str]]) -> bool:
        """Add poison rows (batch with explicit ids, error) of an entry.

        The entry is read by stream id and removed by `trim`. Once for each entry: returns False if they are here
        already.
        """
        passage, kept_ms = f"{worker}/{entry_id}/{block_id}", round(REMEMBERED_SECONDS * 1000)
        words = (passage, kept_ms, worker, block_id, *encode_letters(block_id, rows))
        with self._segment.convert_errors():
            return bool(self._segment.run_synced_script("add_dead_letters", *words))

    def confirm(self, dead_ids: Sequence[str]) -> int:
        """Remove letters that another node has received; only marked ones. Returns how many were still here."""
        with self._segment.convert_errors():
            return int(self._segment.run_script("confirm_dead_letters", *dead_ids)) if dead_ids else 0

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
        letters = {name: self._build_letters(entries) for name, entries in zip(dead_ids, answers, strict=True)}
        return {name: next(iter(found), None) for name, found in letters.items()}

    def _build_letters(self, entries: Iterable[tuple[bytes, Fields]]) -> list[DeadLetter]:
        """Return stored letters. Each damaged one is counted once at its node, so that an alert names it."""
        letters = []
        for dead_id, fields in entries:
            damage = _find_damage(dead_id, fields)
            if damage is not None and FOUND not in fields:
                self._count_damage(dead_id.decode(), damage)
            letters.append(_build_letter(dead_id, fields, damage))
        return letters

    def _count_damage(self, dead_id: str, damage: Damage) -> None:
        sentence = damage.format_sentence(format_address(self._segment.node), "Dead letter of block")
        passage, kept_ms = f"damaged/{dead_id}", round(REMEMBERED_SECONDS * 1000)
        # A failure must not hide the letter. The next read counts it.
        with suppress(WeirError), self._segment.convert_errors():
            self._segment.run_script("count_damaged_letter", passage, kept_ms, sentence)

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


def _list_content(dead_id: bytes, fields: Fields, is_damaged: bool) -> list[bytes]:
    """Return the fields and values with which a letter is stored on another node."""
    # It gets another id there, so its age becomes a field.
    content = {b"since": dead_id.split(b"-")[0]} | fields | ({FOUND: b"1"} if is_damaged else {})
    return [part for pair in content.items() for part in pair]


def _build_letter(dead_id: bytes, fields: Fields, damage: Damage | None) -> DeadLetter:
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
        damage="" if damage is None else _describe_damage(damage, fields),
    )


def _find_damage(dead_id: bytes, fields: Fields) -> Damage | None:
    """Return the damage of a stored letter; None if it is intact, or of a version without checksums."""
    if b"c" not in fields and fields.keys() <= FIELDS:
        return None
    # Its checksum is that of a block with its events.
    parts = {name: value for name, value in fields.items() if name in NAMES_IN_BLOCK or name not in FIELDS}
    return find_damage(dead_id, {NAMES_IN_BLOCK.get(name, name): value for name, value in parts.items()})


def _describe_damage(damage: Damage, fields: Fields) -> str:
    if unknown := sorted(fields.keys() - FIELDS):
        return f"The dead letter is damaged: unknown field {unknown[0].decode(errors='backslashreplace')[:80]}."
    return f"The dead letter is damaged: checksum {damage.expected[:80]}, computed {damage.computed[:80]}."


def _build_block(block_id: str, letter: DeadLetter) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the header and the checksum of the block that a requeued letter becomes."""
    header = encode_header(block_id, letter.events, letter.newest_time_us)
    return (*header, compute_checksum(*header, letter.data))


def _decode_field(fields: dict[bytes, bytes], name: bytes) -> str:
    return fields.get(name, b"").decode(errors="backslashreplace").replace("\0", "\\0")
