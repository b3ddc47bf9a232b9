"""Damage to the append-only file of a paused server, before it is killed and started again.

Each function changes the file, and returns how many events of a queue it has destroyed at most: the plant promises
nothing about bytes that a host has lost or inverted, except that it never processes them.
"""

import re
from pathlib import Path
from random import Random

from bench.queues.bit_flips import find_log, flip_bit
from queues import keys

MAX_CUT_BYTES = 64 * 1024
SEARCHED_BYTES = 8 * 2**20  # at the end of the file: more than a flush
_TRANSACTION = b"*1\r\n$5\r\nMULTI\r\n"
_EVENTS = re.compile(rb"\r\n\$1\r\nn\r\n\$\d+\r\n(\d+)\r\n")
_DATA = re.compile(rb"\r\n\$1\r\nd\r\n\$(\d+)\r\n")


def tear(folder: Path, queue: str, chance: Random) -> int:
    """Add the first part of a command that was never complete, as if the host had stopped during a write."""
    command = b"*13" + _start_command(queue) + b"$1\r\n*\r\n$1\r\nc\r\n$16\r\n0123456789abcdef\r\n"
    with find_log(folder).open("ab") as file:
        file.write(command[: chance.randrange(1, len(command))])
    return 0


def cut(folder: Path, queue: str, chance: Random) -> int:
    """Cut off up to MAX_CUT_BYTES, as if the host had lost writes that were not synced."""
    path = find_log(folder)
    size = path.stat().st_size
    cut_bytes = chance.randint(1, max(1, min(MAX_CUT_BYTES, size)))
    end = _read_end(path, max(SEARCHED_BYTES, cut_bytes))
    kept = len(end) - min(cut_bytes, len(end))
    with path.open("r+b") as file:
        file.truncate(size - min(cut_bytes, size))
    # The server drops a transaction that is not complete.
    return _count_events(end[max(0, end.rfind(_TRANSACTION, 0, kept)) :], queue)


def flip(folder: Path, queue: str, chance: Random) -> int:
    """Invert one bit of the data of the newest block of a queue; nothing if no block is near the end of the file."""
    path = find_log(folder)
    end = _read_end(path, SEARCHED_BYTES)
    start = end.rfind(_start_command(queue))
    data = _DATA.search(end, start) if start >= 0 else None
    if data is None:
        return 0
    place = chance.randrange(data.end(), data.end() + int(data[1]))
    with path.open("r+b") as file:
        file.seek(place - len(end), 2)
        file.write(flip_bit(end[place : place + 1], chance.randrange(8)))
    return _count_events(end[start : data.end()], queue)


def _start_command(queue: str) -> bytes:
    stream = keys.SEGMENT.build(queue).encode()
    return b"\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n" % (len(stream), stream)


def _count_events(commands: bytes, queue: str) -> int:
    """Return the events of the blocks that these commands add to a queue."""
    blocks = commands.split(_start_command(queue))[1:]
    return sum(int(found[1]) for block in blocks if (found := _EVENTS.search(block)))


def _read_end(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read()
