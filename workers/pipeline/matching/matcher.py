"""The matcher: finds one pattern in events that arrive in event-time order, batch by batch.

Pure: no Spark, no Redis, no clock.

Plain sequences are found over whole batches at a time (`sequence_once`, `sequence_rows`), anything else event by event
(`conjunction_once`, `interpreted`). All are exact, however the events are cut into batches. State belongs to key
groups, with one value for each, so that groups can be processed anywhere.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import BadInput
from workers.pipeline.matching.conjunction_once import ConjunctionOnceMatcher
from workers.pipeline.matching.event_by_event.interpreted import AutomatonMatcher
from workers.pipeline.matching.partners import find_without_partner, is_rare
from workers.pipeline.matching.previous import PreviousEvents
from workers.pipeline.matching.retained.group_state import GroupStates
from workers.pipeline.matching.retained.matches import Matches
from workers.pipeline.matching.sequence_once import SequenceOnceMatcher
from workers.pipeline.matching.sequence_rows import SequenceRows
from workers.pipeline.matching.suppression import Suppression
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.predicate import format_previous_name


class RawMatcher(Protocol):
    """Searches for a pattern.

    `masks`: the bits of the symbols that each row satisfies. begins: those that may start a match. open_rows:
    number of events it retains; None if it searches event by event. has_open: per key (text, distinct) whether
    something of it is open.
    """

    @property
    def begins(self) -> int: ...

    @property
    def open_rows(self) -> int | None: ...

    def has_open(self, keys: pa.Array) -> np.ndarray: ...

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> Matches: ...

    def advance(self, now_us: int) -> Matches: ...

    def finish(self) -> Matches: ...

    def compute_timers(self) -> dict[int, int]: ...

    def save(self, states: GroupStates) -> None: ...

    def load(self, states: GroupStates) -> None: ...


def create_raw_matcher(pattern: Pattern) -> RawMatcher:
    """Return the fastest matcher for this pattern."""
    if pattern.plain and pattern.consume == "skip-past-last":
        return SequenceRows(pattern)
    if pattern.plain and pattern.is_relaxed:
        return SequenceOnceMatcher(pattern)
    if pattern.needed and pattern.consume == "once" and pattern.is_relaxed:
        return ConjunctionOnceMatcher(pattern)
    return AutomatonMatcher(pattern)


class Matcher:
    """The open state of one pattern, for all keys that it receives.

    `partnerless` counts the received events that were not searched, since they could add to no match (`partners`).
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._raw_matcher = create_raw_matcher(pattern)
        self._previous = PreviousEvents(pattern) if pattern.reads_previous else None
        self._suppression = Suppression(pattern.suppression_us, pattern.within_us)
        self.partnerless = 0

    @classmethod
    def resume(cls, pattern: Pattern, states: Mapping[int, bytes]) -> "Matcher":
        """Return a matcher that continues from the saved state of some key groups."""
        matcher, parts = cls(pattern), GroupStates(states)
        matcher._raw_matcher.load(parts)
        matcher._suppression.load(parts)
        if matcher._previous:
            matcher._previous.load(parts)
        return matcher

    def save(self) -> dict[int, bytes]:
        """Return the state of each key group that has some."""
        states = GroupStates()
        self._raw_matcher.save(states)
        self._suppression.save(states)
        if self._previous:
            self._previous.save(states)
        return states.pack()

    def compute_timers(self) -> dict[int, int]:
        """Return the event time (µs) from which on each key group has work without events.

        The work is that of `advance`.
        """
        timers: dict[int, int] = {}
        parts = [
            self._raw_matcher.compute_timers(),
            self._suppression.compute_timers(),
            self._previous.compute_timers() if self._previous else {},
        ]
        for part in parts:
            for group, time_us in part.items():
                timers[group] = min(timers.get(group, time_us), time_us)
        return timers

    def take(self, rows: pa.RecordBatch, masks: np.ndarray | None = None) -> Matches:
        """Process rows in event-time order, also relative to earlier calls.

        The rows have the columns of KEYED, and the key is never null. masks: int64, the bits of the symbols that each
        row satisfies (`masks_of`). None: they are computed here, as they must be if a predicate reads the previous
        event. Only rows of mask 0 may have been left out, and not even those if the pattern `needs_every_event`.
        """
        if masks is None:
            before = self._previous.build_columns(rows) if self._previous else {}
            masks = compute_masks(self.pattern, rows, before)
        return self._suppression.mark_suppressed(self._raw_matcher.take(rows, self._select_with_partners(rows, masks)))

    def _select_with_partners(self, rows: pa.RecordBatch, masks: np.ndarray) -> np.ndarray:
        """Return the masks without the events that could add to no match."""
        if self.pattern.needs_every_event:
            return masks
        raw, keys = self._raw_matcher, rows.column("match_key")
        relevant, beginning = (int(np.count_nonzero(mask)) for mask in (masks, masks & raw.begins))
        if beginning == relevant or (
            raw.open_rows is not None and not is_rare(keys, relevant, beginning, raw.open_rows, raw.has_open)
        ):
            return masks
        left_out = find_without_partner(keys, masks, raw.begins, self.pattern.absent_bits, raw.has_open)
        self.partnerless += int(left_out.sum())
        return np.where(left_out, 0, masks) if left_out.any() else masks

    def advance(self, now_us: int) -> Matches:
        """Close what is over: no event before `now_us` will arrive."""
        matches = self._suppression.mark_suppressed(self._raw_matcher.advance(now_us))
        self._suppression.advance(now_us)
        if self._previous:
            self._previous.advance(now_us)
        return matches

    def finish(self) -> Matches:
        """Close everything: no further event will arrive."""
        return self._suppression.mark_suppressed(self._raw_matcher.finish())


def compute_masks(
    pattern: Pattern, rows: pa.RecordBatch, before: Mapping[str, pa.Array] | None = None, in_seconds: bool = False
) -> np.ndarray:
    """Return int64 per row: bit i is set if the row satisfies symbol i.

    before: columns of the previous events (`PreviousEvents`). A predicate sees `time` in seconds; in_seconds says that
    the column already is. Raises `BadInput` if the type of a column does not fit.
    """
    columns = {name: rows.column(name) for name in pattern.columns if name in rows.schema.names}
    columns.update(before or {})
    for name in set() if in_seconds else {"time", format_previous_name("time")} & set(columns):
        columns[name] = pc.divide(columns[name].cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
    total = np.zeros(rows.num_rows, np.int64)
    for symbol, bit in pattern.bits.items():
        held = _find_satisfied(pattern, symbol, columns, rows.num_rows)
        total |= held.to_numpy(zero_copy_only=False).astype(np.int64) * bit
    return total


def _find_satisfied(pattern: Pattern, symbol: str, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
    predicate = pattern.defines[symbol]
    try:
        return predicate.mask(columns, rows)
    except pa.ArrowException as error:
        raise BadInput(
            f"define.{symbol}", f"{predicate.text!r} is not valid for the events: {' '.join(str(error).split())}"
        ) from None
