"""The matcher: finds one pattern in events that arrive in event-time order, batch by batch.

Pure: no Spark, no Redis, no clock.

Plain sequences are matched over whole batches at a time (`sequence_once`, `sequence_rows`; with conditions between
steps: `cross_once`, `threshold_once`, `cross_rows`). All other patterns are matched event by event
(`conjunction_once`, `interpreted`). All matchers are exact, however the events are divided into batches. State belongs
to key groups, with one value for each, so that groups can be processed anywhere.

A matcher searches an event only if something of its key is open, or an earlier event of the batch may start a match.
All other events can add to no match, whatever follows: `once` gives an event to an open attempt or starts one with it,
and `skip-past-last` searches from the first event that may start. A search without them therefore finds the same
matches, in the same order, and leaves the same state. Events that a NOT forbids are never left out. The decision
depends on the state at the start of the batch, so it is the same in every replay. It takes a small part of the time of
a search event by event, but a tenth of that of one in arrays. The array matchers therefore only use it if much may be
left out (`is_rare`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import BadInput
from workers.pipeline.events.layout import append_batch
from workers.pipeline.matching.attempt_matcher import AttemptMatcher
from workers.pipeline.matching.conjunction_once import ConjunctionOnceMatcher
from workers.pipeline.matching.cross_once import CrossOnceMatcher
from workers.pipeline.matching.cross_rows import CrossRows
from workers.pipeline.matching.interpreted import AutomatonMatcher
from workers.pipeline.matching.open_attempts import AttemptTable
from workers.pipeline.matching.retained import (
    KEYED,
    GroupStates,
    KeyedRows,
    Matches,
    compute_least_by_group,
    format_read_name,
)
from workers.pipeline.matching.search_limit import SearchLimit
from workers.pipeline.matching.sequence_once import SequenceOnceMatcher
from workers.pipeline.matching.sequence_rows import SequenceRows
from workers.pipeline.matching.step_conditions import StepConditions
from workers.pipeline.matching.threshold import Threshold
from workers.pipeline.matching.threshold_once import ThresholdOnceMatcher
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.predicate import format_previous_name
from workers.pipeline.patterns.shedding import label_events

# Per key (text, distinct) whether a matcher has something of it open.
OpenKeys = Callable[[pa.Array], np.ndarray]
RARE_SHARE, SAMPLED_ROWS = 0.25, 512


def is_rare(keys: pa.Array, relevant: int, beginning: int, open_rows: int, is_open: OpenKeys) -> bool:
    """Return whether most events of a batch may be left out.

    That is the case if few of them start a match, few are retained, and most of a sample have keys of which nothing is
    open. keys: of all rows. relevant, beginning: how many of them satisfy any symbol, and one that a match may start
    with.
    """
    if beginning + open_rows > RARE_SHARE * relevant:
        return False
    places = np.linspace(0, len(keys) - 1, min(len(keys), SAMPLED_ROWS)).astype(np.int64)
    sample = keys.take(pa.array(places)).dictionary_encode()
    is_open_of_rows = is_open(sample.dictionary)[sample.indices.to_numpy()]
    return bool(is_open_of_rows.mean() < 1 / 2)


def find_without_partner(keys: pa.Array, masks: np.ndarray, begins: int, absent: int, is_open: OpenKeys) -> np.ndarray:
    """Return a bool per row, for rows in event-time order.

    keys: text, none null. masks: the bits of the symbols that each row satisfies. begins: bits that may start a match.
    absent: bits that a NOT forbids.
    """
    beginning = np.flatnonzero(masks & begins)
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    # Per key the place of its first event that may start a match: it is written last, and stays.
    first = np.full(len(encoded.dictionary), len(masks))
    first[codes[beginning[::-1]]] = beginning[::-1]
    first[is_open(encoded.dictionary)] = 0
    alone: np.ndarray = (masks != 0) & (masks & absent == 0) & (np.arange(len(masks)) < first[codes])
    return alone


# A key that was silent for this long starts over: the last events of all past keys can't be kept.
RETAINED_US = 86_400_000_000


def compute_previous_places(rows: KeyedRows) -> np.ndarray:
    """Return, for each row in event-time order, the place of the previous row of its key; -1 at the first."""
    first = rows.starts == np.arange(len(rows.order))
    before = np.empty(len(rows.order), np.int64)
    before[rows.order] = np.where(first, -1, np.roll(rows.order, 1))
    return before


def build_previous_columns(
    pattern: Pattern, columns: Mapping[str, pa.Array], rows: pa.RecordBatch
) -> dict[str, pa.Array]:
    """Return the columns of the previous event that a pattern reads, for a closed set of rows in event-time order."""
    if not pattern.reads_previous:
        return {}
    places = compute_previous_places(KeyedRows.build(rows.column("match_key"), rows.column("time").to_numpy()))
    taken = pa.array(places, mask=places < 0)
    return {format_previous_name(name): columns[name].take(taken) for name in sorted(pattern.previous)}


class PreviousEvents:
    """The last event of each key, with the columns that the predicates read."""

    def __init__(self, pattern: Pattern) -> None:
        self._columns = tuple(sorted(pattern.previous))
        self._kept_us = max(RETAINED_US, pattern.within_us)
        self.last: pa.RecordBatch | None = None

    def build_columns(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns of the previous event for each row in event-time order; null at the first row of a key."""
        own = dict.fromkeys(("time", "match_key", "group", *self._columns))
        rows, kept = rows.select(list(own)), 0
        if self.last is not None:
            # An earlier version may have read the columns with another type.
            rows, kept = append_batch(self.last, rows), self.last.num_rows
        keyed = KeyedRows.build(rows.column("match_key"), rows.column("time").to_numpy())
        before = compute_previous_places(keyed)
        places = pa.array(before[kept:], mask=before[kept:] < 0)
        last = keyed.order[keyed.ends == np.arange(len(keyed.order)) + 1]
        self.last = rows.take(pa.array(np.sort(last)))
        return {format_previous_name(name): rows.column(name).take(places) for name in self._columns}

    def advance(self, now_us: int) -> None:
        if self.last is not None:
            self.last = self.last.filter(pc.greater_equal(self.last.column("time"), now_us - self._kept_us))

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the time (µs) from which on `advance` removes something."""
        least = {} if self.last is None else compute_least_by_group(self.last, "time")
        return {group: time_us + self._kept_us + 1 for group, time_us in least.items()}

    def save(self, states: GroupStates) -> None:
        states.put_rows("previous", self.last)

    def load(self, states: GroupStates) -> None:
        self.last = states.collect_rows("previous")


class Suppression:
    """The keys within their suppression interval: per key its group and when it last emitted (µs).

    within_us: the window of the pattern. A match that is found only when its window is over was completed at most that
    long before, and still has to be suppressed.
    """

    def __init__(self, suppression_us: int, within_us: int) -> None:
        self._suppression_us, self._kept_us = suppression_us, suppression_us + within_us
        self.last: dict[str, tuple[int, int]] = {}

    def mark_suppressed(self, matches: Matches) -> Matches:
        """Mark the matches that fall into a suppression interval."""
        if not self._suppression_us or not len(matches):
            return matches
        rows = zip(matches.keys.to_pylist(), matches.groups.tolist(), matches.completed_us.tolist(), strict=True)
        suppressed = [not self._emits(key, group, at_us) for key, group, at_us in rows]
        return replace(matches, suppressed=np.array(suppressed, bool))

    def _emits(self, key: str, group: int, at_us: int) -> bool:
        last = self.last.get(key)
        if last is not None and at_us - last[1] < self._suppression_us:
            return False
        self.last[key] = group, at_us
        return True

    def advance(self, now_us: int) -> None:
        self.last = {key: last for key, last in self.last.items() if now_us - last[1] < self._kept_us}

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the time (µs) from which on `advance` removes something."""
        timers: dict[int, int] = {}
        for group, last_us in self.last.values():
            timers[group] = min(timers.get(group, last_us + self._kept_us), last_us + self._kept_us)
        return timers

    def save(self, states: GroupStates) -> None:
        by_group: dict[int, dict[str, int]] = {}
        for key, (group, last_us) in self.last.items():
            by_group.setdefault(group, {})[key] = last_us
        states.put_values("quiet", by_group)

    def load(self, states: GroupStates) -> None:
        for group, last in states.collect_values("quiet").items():
            self.last.update({key: (group, last_us) for key, last_us in last.items()})


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


def create_raw_matcher(pattern: Pattern, refuses_excess: bool = False, limit: SearchLimit | None = None) -> RawMatcher:
    if pattern.bindings:
        steps = StepConditions.build(pattern)
        if steps and pattern.consume == "skip-past-last":
            return CrossRows(steps)
        if steps and pattern.is_relaxed:
            threshold = Threshold.build(steps)
            return ThresholdOnceMatcher(steps, threshold) if threshold else CrossOnceMatcher(steps)
        return AutomatonMatcher(pattern, refuses_excess, limit)
    if pattern.plain and pattern.consume == "skip-past-last":
        return SequenceRows(pattern)
    if pattern.plain and pattern.is_relaxed:
        return SequenceOnceMatcher(pattern)
    if pattern.needed and pattern.consume == "once" and pattern.is_relaxed:
        return ConjunctionOnceMatcher(pattern)
    return AutomatonMatcher(pattern, limit=limit)


class Matcher:
    """The open state of one pattern, for all keys that it receives.

    `partnerless` counts the received events that were not searched, since they could add to no match (`partners`).
    refuses_excess: raise `Forbidden` if an attempt has too many branches, instead of dropping some. limit: of a search
    event by event; a search of whole batches takes little time.
    """

    def __init__(self, pattern: Pattern, refuses_excess: bool = False, limit: SearchLimit | None = None) -> None:
        self.pattern = pattern
        self._raw_matcher = create_raw_matcher(pattern, refuses_excess, limit)
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

    @property
    def open_attempts(self) -> AttemptTable | None:
        """Return the open attempts if they have indexes, which take long to build when a matcher resumes; or None."""
        return self._raw_matcher.attempts if isinstance(self._raw_matcher, AttemptMatcher) else None

    @property
    def excess(self) -> int:
        """Return how often an attempt dropped branches because it had too many."""
        return self._raw_matcher.excess if isinstance(self._raw_matcher, AutomatonMatcher) else 0

    def save(self, groups: Collection[int] | None = None) -> dict[int, bytes]:
        """Return the state of each key group that has some. groups: only of these groups (None: of all groups)."""
        states = GroupStates(groups=groups)
        self._raw_matcher.save(states)
        self._suppression.save(states)
        if self._previous:
            self._previous.save(states)
        return states.pack()

    def compute_timers(self) -> dict[int, int]:
        """Return the event time (µs) from which on each key group has work of `advance` without events."""
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

    def take(
        self, rows: pa.RecordBatch, masks: np.ndarray | None = None, columns: Mapping[str, pa.Array] | None = None
    ) -> Matches:
        """Process rows in event-time order, also relative to earlier calls.

        The rows have the columns of KEYED, and the key is never null. masks: int64, the bits of the symbols that each
        row satisfies (`masks_of`). None: they are computed here, as they must be if a predicate reads the previous
        event. Only rows of mask 0 may have been left out, and not even those if the pattern `needs_every_event`.
        columns: the columns that conditions read, with `time` in seconds; None: the columns of the rows.
        """
        before = self._previous.build_columns(rows) if self._previous and masks is None else {}
        if masks is None:
            masks = compute_masks(self.pattern, rows, before)
        if self.pattern.bindings:
            rows = _add_read_columns(self.pattern, rows, columns or build_condition_columns(self.pattern, rows, before))
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


@dataclass(frozen=True)
class LabeledRows:
    """Rows with the masks and labels (`label_events`) that they have for a pattern.

    masks: None if the matcher has to compute them, since the predicates read previous events.
    """

    rows: pa.RecordBatch
    masks: np.ndarray | None
    labels: pa.DictionaryArray

    @classmethod
    def build(cls, pattern: Pattern, rows: pa.RecordBatch, whole_types: Collection[str]) -> "LabeledRows":
        """Build from rows. whole_types: types whose label does not name symbols."""
        masks = None if pattern.reads_previous else compute_masks(pattern, rows)
        return cls(rows, masks, label_events(pattern, rows, masks, whole_types))


def compute_masks(
    pattern: Pattern, rows: pa.RecordBatch, before: Mapping[str, pa.Array] | None = None, in_seconds: bool = False
) -> np.ndarray:
    """Return int64 per row: bit i is set if the row satisfies symbol i.

    before: columns of the previous events (`PreviousEvents`). A predicate sees `time` in seconds; in_seconds says that
    the column already is. Raises `BadInput` if the type of a column does not fit.
    """
    columns = build_condition_columns(pattern, rows, before or {}, in_seconds)
    _check_bound_types(pattern, columns)
    total = np.zeros(rows.num_rows, np.int64)
    for symbol, bit in pattern.bits.items():
        held = _find_satisfied(pattern, symbol, columns, rows.num_rows)
        total |= held.to_numpy(zero_copy_only=False).astype(np.int64) * bit
    return total


def build_condition_columns(
    pattern: Pattern, rows: pa.RecordBatch, before: Mapping[str, pa.Array], in_seconds: bool = False
) -> dict[str, pa.Array]:
    """Return the columns that conditions and measures read, with `time` in seconds."""
    own = set(rows.schema.names)
    # Only the complex events that the pattern reads may have a measure as a column.
    columns = {name: rows.column(name) if name in own else pa.nulls(rows.num_rows) for name in pattern.columns}
    columns.update(before)
    for name in set() if in_seconds else {"time", format_previous_name("time")} & set(columns):
        columns[name] = pc.divide(columns[name].cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
    return columns


def _add_read_columns(pattern: Pattern, rows: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return the rows as KEYED, with the columns that conditions between events and measures read."""
    assert pattern.bindings is not None
    names = pattern.bindings.names
    arrays = [*(rows.column(field.name) for field in KEYED), *(columns[name] for name in names)]
    return pa.RecordBatch.from_arrays(arrays, names=[*KEYED.names, *map(format_read_name, names)])


def _check_bound_types(pattern: Pattern, columns: Mapping[str, pa.Array]) -> None:
    """Raise `BadInput` if a condition between events, or a measure, does not fit the types of the columns."""
    expressions = {f"define.{symbol}": part for symbol, part in pattern.bound_conditions.items()}
    expressions |= {f"measures.{name}": part for name, part in pattern.measures.items()}
    for field, expression in expressions.items():
        try:
            expression.check_types(columns)
        except pa.ArrowException as error:
            raise BadInput(field, _describe_misfit(expression.text, error)) from None


def _describe_misfit(text: str, error: pa.ArrowException) -> str:
    return f"{text!r} is not valid for the events: {' '.join(str(error).split())}"


def _find_satisfied(pattern: Pattern, symbol: str, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
    predicate = pattern.defines[symbol]
    try:
        return predicate.mask(columns, rows)
    except pa.ArrowException as error:
        raise BadInput(f"define.{symbol}", _describe_misfit(predicate.text, error)) from None


_OF_SQL: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "double": pa.float64(),
    "float": pa.float32(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "boolean": pa.bool_(),
    "timestamp": pa.int64(),  # patterns see it as microseconds
}


def check_conditions(patterns: Iterable[Pattern], kinds: Mapping[str, str]) -> None:
    """Raise `BadInput` that names the pattern and its condition if a condition doesn't fit the columns.

    kinds: column → its SQL type. If a pattern reads a column of another type than these, it is only checked on its
    first events.
    """
    known = {name: _OF_SQL[kind] for name, kind in kinds.items() if kind in _OF_SQL}
    none = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in known.values()], list(known))
    before = {format_previous_name(name): none.column(name) for name in known}
    for pattern in patterns:
        if not pattern.columns <= set(known):
            continue
        try:
            compute_masks(pattern, none, before)
        except BadInput as error:
            raise BadInput(f"{pattern.name}.{error.field}", error.message) from None
