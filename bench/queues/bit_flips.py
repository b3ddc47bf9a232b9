"""Bit flips in stored blocks: in the memory of a node's server, and in its append-only file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import redis

from queues.control.replies import expect_bytes
from queues.segments.gauge import GROUP

Parts = list[bytes]
"""The names and values of an entry's fields, in their order."""


def flip_bit(data: bytes, bit: int) -> bytes:
    """Return the data with one bit inverted."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip_random_bit(parts: Sequence[bytes], chance: Random) -> Parts:
    """Return an entry with one bit inverted in a random name or value, so that small fields are hit as often."""
    place = chance.choice([place for place, part in enumerate(parts) if part])
    return [flip_bit(part, chance.randrange(8 * len(part))) if at == place else part for at, part in enumerate(parts)]


def rewrite_entries(node: redis.Redis, stream: str, change: Callable[[int, Parts], Parts]) -> int:
    """Replace the fields of each entry under the same IDs, as damaged memory would. Returns the number of entries.

    change: position and fields of an entry → its new fields. The consumer group and its claims stay.
    """
    read = expect_bytes(node)
    entries = [(name, [part for pair in fields.items() for part in pair]) for name, fields in read.xrange(stream)]
    groups = read.xinfo_groups(stream) if entries else []
    pending = read.xpending_range(stream, GROUP, "-", "+", len(entries)) if groups else []
    last = read.xinfo_stream(stream)["last-generated-id"] if entries else b""
    with node.pipeline() as pipe:
        pipe.delete(stream)
        for position, (name, parts) in enumerate(entries):
            pipe.execute_command("XADD", stream, name, *change(position, parts))
        if entries:
            pipe.execute_command("XSETID", stream, last)
        for group in groups:
            pipe.xgroup_create(stream, group["name"], group["last-delivered-id"])
        for claim in pending:
            name, consumer, times = claim["message_id"], claim["consumer"], claim["times_delivered"]
            pipe.xclaim(stream, GROUP, consumer, 0, [name], retrycount=times, force=True, justid=True)
        pipe.execute()
    return len(entries)


def find_log(folder: Path) -> Path:
    """Return the file to which a stopped server appended its last writes."""
    return max((folder / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)
