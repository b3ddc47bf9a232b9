"""The checksum of a stored block: written by its publisher, and checked by each process that takes or moves the block.

A block's entry has the fields `c`, `i` (block ID), `n` (events), `t` (newest event time, µs), and `d` (data):

    header = i + " " + n + " " + t
    tail   = " " + n + " " + SHA-1(header)[:8]
    c      = XXH3-64(header + tail, seed = XXH3-64(d)) in 16 hex digits + tail

XXH3 covers everything. Scripts on a node can't compute it, but they use `n` and `t` to count and to sort. They use the
tail: the SHA-1 shows whether the header is intact, and the copy of `n` replaces a damaged one if the header is intact
with it. The counters of the segment therefore stay exact if one field is damaged.

Blocks of versions before this one have exactly the fields `i`, `n`, `t`, and `d`. They are accepted without a check.
Any other set of fields is damaged; a damaged name of a field would otherwise disable the check.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import xxhash

from queues.events.block import EPOCH, MAX_TIME_US, build_unreadable_event

FIELDS = frozenset((b"c", b"i", b"n", b"t", b"d"))
UNCHECKED_FIELDS = FIELDS - {b"c"}
# The kind of a dead letter that holds a damaged block. It is never requeued.
DAMAGED = "damaged"
HASH_DIGITS = 16
MAX_QUOTED = 80  # characters of a damaged field in a sentence
_COPY = re.compile(rb" (\d+) ([0-9A-Fa-f]{8})\Z")  # the end of `c`: the events, and the digest of the header


@dataclass(frozen=True)
class Damage:
    """The readable content of a damaged block, and how the damage was detected.

    events, newest_time_us: of the intact header, or else the copy of the events, and 0. expected: the stored checksum.
    computed: the checksum of what is stored, or the fields if they are not those of a block.
    """

    block_id: str
    events: int
    newest_time_us: int
    data: bytes
    expected: str
    computed: str
    fields: Mapping[str, str]  # without the data

    def format_sentence(self, place: str, what: str = "Block") -> str:
        """Return what was damaged where, in one sentence. what: its kind, before the ID of its block."""
        newest = EPOCH + timedelta(microseconds=self.newest_time_us)
        time = f"newest {newest:%Y-%m-%d %H:%M:%S} UTC" if self.newest_time_us else "time unknown"
        return (
            f"{what} {self.block_id[:MAX_QUOTED]} on {place} is damaged: {self.events:,} events, {time}, "
            f"{len(self.data):,} bytes; checksum {self.expected[:MAX_QUOTED] or 'missing'}, "
            f"computed {self.computed[:MAX_QUOTED]}."
        )

    def build_event(self, place: str, at_us: int) -> pa.RecordBatch:
        """Return the damaged block as one event of type `damaged`, which contains its bytes."""
        details = {
            "node": place,
            "events": self.events,
            "newest_time_us": self.newest_time_us,
            "bytes": len(self.data),
            "expected": self.expected,
            "computed": self.computed,
            "fields": dict(self.fields),
        }
        return build_unreadable_event(self.block_id, at_us, self.data, DAMAGED, details)


def compute_checksum(block_id: bytes, events: bytes, newest_time_us: bytes, data: Any) -> bytes:
    """Return the field `c` of an entry with these fields. data: bytes or a buffer, which is not copied."""
    header = b"%b %b %b" % (block_id, events, newest_time_us)
    tail = b" %b %b" % (events, _digest_header(header))
    return _hash(header + tail, data) + tail


def encode_header(block_id: str, events: int, newest_time_us: int) -> tuple[bytes, bytes, bytes]:
    """Return the fields `i`, `n`, and `t` as they are stored."""
    return block_id.encode(), b"%d" % events, b"%d" % newest_time_us


def find_damage(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Damage | None:
    """Return the damage of an entry; None if it is intact, or if it is of an earlier version and has no checksum."""
    if fields.keys() == FIELDS:
        stored = fields[b"c"]
        tail = stored[HASH_DIGITS:]
        computed = _hash(b"%b %b %b%b" % (fields[b"i"], fields[b"n"], fields[b"t"], tail), fields[b"d"]) + tail
        return None if computed == stored else _describe(entry_id, fields, _decode(computed))
    if fields.keys() == UNCHECKED_FIELDS:
        return None
    names = ", ".join(sorted(map(_decode, fields)))
    return _describe(entry_id, fields, f"for the fields {names[:MAX_QUOTED]}")


def read_header(fields: Mapping[bytes, bytes]) -> tuple[int, int]:
    """Return the events and the newest time (µs) of an entry that may be damaged, as the scripts of the node do."""
    events, newest_time_us = parse_count(fields.get(b"n")), parse_count(fields.get(b"t"))
    copy = _COPY.search(fields.get(b"c", b""))
    block_id, stored, newest = (fields.get(name, b"") for name in (b"i", b"n", b"t"))
    if copy is None or _digest_header(b"%b %b %b" % (block_id, stored, newest)) == copy[2]:
        return events, newest_time_us
    # A copy with which the header is not intact either is damaged itself.
    is_right = _digest_header(b"%b %b %b" % (block_id, copy[1], newest)) == copy[2]
    return parse_count(copy[1]) if is_right else events, 0


def parse_count(text: bytes | None) -> int:
    """Return a stored number; 0 for any other value, since a foreign value must not stop a process."""
    return int(text) if text is not None and text.isdigit() and len(text) < 17 else 0


def get_data(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the events of an entry.

    If it has none, return the longest field of a block whose field was renamed, or else everything, to be inspected.
    """
    stored = fields.get(b"d")
    if stored is not None:
        return stored
    if b"c" in fields:
        return max(fields.values(), key=len)
    return b"\n".join(part + b"=" + value for part, value in fields.items())


def _hash(text: bytes, data: Any) -> bytes:
    return b"%016x" % xxhash.xxh3_64_intdigest(text, xxhash.xxh3_64_intdigest(data))


def _digest_header(header: bytes) -> bytes:
    return hashlib.sha1(header, usedforsecurity=False).hexdigest()[:8].encode()


def _describe(entry_id: bytes, fields: Mapping[bytes, bytes], computed: str) -> Damage:
    events, newest_time_us = read_header(fields)
    data = get_data(fields)
    return Damage(
        block_id=_decode(fields.get(b"i", entry_id)),
        events=events,
        newest_time_us=min(newest_time_us, MAX_TIME_US - 1),
        data=data,
        expected=_decode(fields.get(b"c", b"")),
        computed=computed,
        fields={_decode(name): _decode(value) for name, value in fields.items() if value is not data},
    )


def _decode(value: bytes) -> str:
    return value.decode(errors="backslashreplace").replace("\0", "\\0")
