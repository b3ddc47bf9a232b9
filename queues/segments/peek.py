"""A few of the events that wait in a segment, for display: nothing is claimed, moved, or counted.

The cost is limited: blocks are read one by one, until there are enough events, bytes, or seconds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from common.errors import MalformedEvent
from queues.control.replies import expect_bytes
from queues.events.block import decode
from queues.segments.checksum import find_damage, get_data
from queues.segments.segment import Segment, parse_entry_seconds

MAX_EVENTS = 100
MAX_BYTES = 4 * 2**20
MAX_SECONDS = 2.0
MAX_TEXT = 2_000  # characters of one field


@dataclass(frozen=True)
class WaitingEvent:
    """A waiting event.

    event: its fields, long texts cut; None if its block can't be read: `error` says why. inserted_at: by the node's
    clock (s since 1970). block: the id of its block.
    """

    block: str
    inserted_at: float
    event: dict[str, Any] | None
    error: str = ""


def peek(
    segment: Segment, events: int, newest: bool, monotonic: Callable[[], float]
) -> tuple[list[WaitingEvent], bool]:
    """Return up to `events` events, newest or oldest first, and whether there may be more after them.

    Blocks that a worker has claimed are among them. Raises `NodeUnavailable`.
    """
    waiting: list[WaitingEvent] = []
    read_bytes, end = 0, monotonic() + MAX_SECONDS
    for entry_id, fields in _iterate_entries(segment, newest):
        waiting += _decode_events(entry_id, fields, events - len(waiting), newest)
        read_bytes += len(get_data(fields))
        if len(waiting) >= events or read_bytes >= MAX_BYTES or monotonic() >= end:
            return waiting, True
    return waiting, False


def _iterate_entries(segment: Segment, newest: bool) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """Yield one entry at a time: a block may be large, and the first may be enough."""
    last = ""
    while True:
        with segment.convert_errors():
            if newest:
                entries = expect_bytes(segment.node).xrevrange(segment.stream, f"({last}" if last else "+", "-", 1)
            else:
                entries = expect_bytes(segment.node).xrange(segment.stream, f"({last}" if last else "-", "+", 1)
        if not entries:
            return
        yield entries[0]
        last = entries[0][0].decode()


def _decode_events(entry_id: bytes, fields: dict[bytes, bytes], most: int, newest: bool) -> list[WaitingEvent]:
    block, at = fields.get(b"i", entry_id).decode(errors="backslashreplace")[:80], parse_entry_seconds(entry_id)
    if find_damage(entry_id, fields) is not None:
        return [WaitingEvent(block, at, None, "is damaged. Weir moves it to the dead letters when a process takes it.")]
    try:
        rows = decode(block, get_data(fields)).build_explicit_batch()
        rows = rows.slice(max(0, rows.num_rows - most)) if newest else rows.slice(0, most)
        events = rows.to_pylist()
    except MalformedEvent as error:
        return [WaitingEvent(block, at, None, error.message)]
    except (ValueError, OverflowError) as error:  # a time that is in no calendar
        return [WaitingEvent(block, at, None, f"can't be read ({str(error)[:200]}).")]
    if newest:
        events.reverse()
    return [WaitingEvent(block, at, {name: _cut(value) for name, value in event.items()}) for event in events]


def _cut(value: object) -> object:
    """Return a text as far as it is shown."""
    if not isinstance(value, str) or len(value) <= MAX_TEXT:
        return value
    return f"{value[:MAX_TEXT]}… ({len(value):,} characters)"
