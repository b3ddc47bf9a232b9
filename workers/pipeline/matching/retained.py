"""The events that matchers keep between batches, and their matches, in columns.

Matches have their events one after the other. Events are grouped by key in arrays, which are the input of the array
matchers. The state of a matcher is one value for each key group: JSON values and Arrow rows, packed.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.events.layout import append_batch, decode, encode

# What a match reports of a contributing event, besides its key and the key group of that key.
EVENT = pa.schema(
    [
        pa.field("time", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("type", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("source", pa.string()),
    ]
)
KEYED = EVENT.append(pa.field("match_key", pa.string())).append(pa.field("group", pa.int32()))


def format_read_name(name: str) -> str:
    """Return a column of rows that conditions between events and measures read.

    name: of a column, or `prev(column)`. The rows also have the columns of KEYED, which matches report.
    """
    return f"read {name}"


@dataclass(frozen=True)
class Matches:
    """Matches in columns.

    events: rows of KEYED, match after match in the order of completion. ends: where each match's events end.
    suppressed: per match, whether it is only counted. measures: per match, its measures. explanations: per match, those
    of its conditions between events. Both are empty if the pattern has none.
    """

    events: pa.RecordBatch
    ends: np.ndarray
    suppressed: np.ndarray
    measures: tuple[dict[str, Any], ...] = ()
    explanations: tuple[list[str], ...] = ()

    @classmethod
    def build(cls, events: pa.RecordBatch, ends: np.ndarray) -> "Matches":
        return cls(events, ends, np.zeros(len(ends), bool))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> np.ndarray:
        return np.concatenate((np.zeros(1, np.int64), self.ends[:-1])) if len(self) else self.ends

    @property
    def keys(self) -> pa.Array:
        return self.events.column("match_key").take(pa.array(self.ends - 1))

    @property
    def groups(self) -> np.ndarray:
        groups: np.ndarray = self.events.column("group").to_numpy()
        of_last: np.ndarray = groups[self.ends - 1]
        return of_last

    @property
    def completed_us(self) -> np.ndarray:
        """Return the time of each match's last event."""
        times_us: np.ndarray = self.events.column("time").to_numpy()
        of_last: np.ndarray = times_us[self.ends - 1]
        return of_last

    def get_event_ids(self) -> list[list[str]]:
        ids = self.events.column("id").to_pylist()
        return [ids[start:end] for start, end in self._iterate_bounds()]

    def list_emitted(self) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        """Return, for each match that is not suppressed, its key and its events (values of EVENT)."""
        rows = list(zip(*(self.events.column(name).to_pylist() for name in EVENT.names), strict=True))
        for key, suppressed, (start, end) in zip(
            self.keys.to_pylist(), self.suppressed, self._iterate_bounds(), strict=True
        ):
            if not suppressed:
                yield key, rows[start:end]

    def _iterate_bounds(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)


def build_empty() -> Matches:
    return Matches.build(pa.RecordBatch.from_pylist([], schema=KEYED), np.zeros(0, np.int64))


def build_from_rows(events: pa.RecordBatch, rows: np.ndarray) -> Matches:
    """Build matches with equally many events.

    rows: int64[matches, events], the places in `events`, which are in the order of arrival.
    """
    rows = rows[np.argsort(rows[:, -1])]
    ends = np.arange(1, len(rows) + 1) * rows.shape[1]
    return Matches.build(events.take(pa.array(rows.ravel())), ends)


def concatenate(parts: list[Matches]) -> Matches:
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else build_empty()
    before = np.cumsum([0, *(part.events.num_rows for part in parts[:-1])])
    return Matches(
        pa.concat_batches([part.events for part in parts]),
        np.concatenate([part.ends + rows for part, rows in zip(parts, before, strict=True)]),
        np.concatenate([part.suppressed for part in parts]),
        tuple(measures for part in parts for measures in part.measures),
        tuple(explanations for part in parts for explanations in part.explanations),
    )


_RADIX = 1 << 16  # NumPy sorts 16-bit numbers by radix, several times faster than longer ones


@dataclass(frozen=True)
class KeyedRows:
    """Rows sorted by key, and within a key in their order.

    order: the original place of each row. code: number of its key. starts: first row of its key, for each row. last_us:
    time of the last row of its key, for each row.
    """

    order: np.ndarray
    code: np.ndarray
    time: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def last_us(self) -> np.ndarray:
        last_us: np.ndarray = self.time[self.ends - 1]
        return last_us

    @classmethod
    def build(cls, keys: pa.Array, times_us: np.ndarray) -> "KeyedRows":
        """Build from keys (text, none null) and times_us (in event-time order within each key)."""
        return cls.build_from_codes(keys.dictionary_encode().indices.to_numpy(), times_us)

    @classmethod
    def build_from_codes(cls, code: np.ndarray, times_us: np.ndarray) -> "KeyedRows":
        """Build from the numbers of the keys, from 0 on."""
        order = compute_stable_order(code)
        code = code[order]
        begins = np.flatnonzero(np.diff(code, prepend=-1))
        lengths = np.diff(begins, append=len(code))
        starts = np.repeat(begins, lengths)
        return cls(order, code, times_us[order], starts, starts + np.repeat(lengths, lengths))


def compute_stable_order(code: np.ndarray) -> np.ndarray:
    """Return a stable argsort of numbers from 0 on."""
    most = int(code.max()) if len(code) else 0
    if most < _RADIX:
        return np.argsort(code.astype(np.uint16), kind="stable")
    low = np.argsort((code & (_RADIX - 1)).astype(np.uint16), kind="stable")
    high = (code >> 16)[low]
    return low[np.argsort(high.astype(np.uint16), kind="stable")]


def order_rows(rows: pa.Table, places: np.ndarray | None = None) -> pa.Table:
    """Return the rows at these places (None: all) sorted by (time, id) and without duplicates."""
    times_us = rows.column("time").to_numpy()
    if places is None:
        places = np.arange(rows.num_rows)
    order = places[np.argsort(times_us[places], kind="stable")]
    sorted_us, rows = times_us[order], rows.take(pa.array(order))
    equal = sorted_us[1:] == sorted_us[:-1]
    if not equal.any():
        return rows
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("time", "ascending"), ("id", "ascending")]))
    ids = rows.column("id").combine_chunks()
    copies = equal & np.asarray(pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1)))
    return rows.filter(pa.array(np.concatenate(([True], ~copies)))) if copies.any() else rows


def append_rows(kept: pa.RecordBatch | None, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the kept rows followed by the new rows, as KEYED."""
    new = rows.select(KEYED.names).cast(KEYED)
    return new if kept is None or not kept.num_rows else pa.concat_batches([kept.select(KEYED.names), new])


def append_read_rows(
    kept: pa.RecordBatch, rows: pa.RecordBatch, masks: np.ndarray
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Return the kept rows followed by the new rows, with the columns that conditions read, and the masks of both."""
    if not kept.num_rows:
        return rows, masks
    return append_batch(kept, rows), np.concatenate((kept.column("mask").to_numpy(), masks))


def group_rows(rows: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
    """Return the rows by their column `group`, in their order."""
    groups = rows.column("group").to_numpy()
    order = compute_stable_order(groups)
    groups, rows = groups[order], rows.take(pa.array(order))
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    ends = np.append(begins[1:], len(groups))
    return {
        int(groups[begin]): rows.slice(begin, end - begin)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    }


def find_present_keys(kept: pa.RecordBatch, keys: pa.Array) -> np.ndarray:
    """Return, per key, whether rows of it are among those kept."""
    present: np.ndarray = pc.is_in(keys, kept.column("match_key")).to_numpy(zero_copy_only=False)
    return present


def compute_least_by_group(rows: pa.RecordBatch, column: str) -> dict[int, int]:
    """Return the minimum of a column for each `group`."""
    groups, values = rows.column("group").to_numpy(), rows.column(column).to_numpy()
    order = np.argsort(values, kind="stable")
    groups_present, first = np.unique(groups[order], return_index=True)
    return dict(zip(groups_present.tolist(), values[order][first].tolist(), strict=True))


_LENGTH = struct.Struct("<I")


@dataclass
class GroupParts:
    """The parts of a group. values: JSON values by name. rows: Arrow rows by name. Empty parts are left out."""

    values: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, pa.RecordBatch] = field(default_factory=dict)

    def pack(self) -> bytes:
        streams = {name: encode(rows) for name, rows in self.rows.items()}
        lengths = {name: len(stream) for name, stream in streams.items()}
        head = orjson.dumps({"values": self.values, "rows": lengths})
        return b"".join((_LENGTH.pack(len(head)), head, *streams.values()))

    @classmethod
    def unpack(cls, data: bytes) -> "GroupParts":
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        head = orjson.loads(data[_LENGTH.size : end])
        rows = {}
        for name, size in head["rows"].items():
            (rows[name],) = decode(data[end : end + size])
            end += size
        return cls(head["values"], rows)


class GroupStates:
    """The parts of many groups, combined by name and split again. groups: groups that are stored (None: all)."""

    def __init__(self, states: Mapping[int, bytes] | None = None, groups: Collection[int] | None = None) -> None:
        self._parts = {group: GroupParts.unpack(data) for group, data in (states or {}).items()}
        self._groups = groups

    def select(self, groups: np.ndarray) -> np.ndarray:
        """Return whether each of these groups is stored."""
        if self._groups is None:
            return np.ones(len(groups), bool)
        stored = np.zeros(max(max(self._groups, default=0), int(groups.max(initial=0))) + 1, bool)
        stored[list(self._groups)] = True
        is_stored: np.ndarray = stored[groups]
        return is_stored

    def put_values(self, name: str, values: Mapping[int, Any]) -> None:
        for group, value in values.items():
            if self._groups is None or group in self._groups:
                self._parts.setdefault(group, GroupParts()).values[name] = value

    def put_rows(self, name: str, rows: pa.RecordBatch | None) -> None:
        """Add rows with a column `group`."""
        if rows is not None and self._groups is not None:
            rows = rows.filter(pa.array(self.select(rows.column("group").to_numpy())))
        if rows is not None and rows.num_rows:
            for group, part in group_rows(rows).items():
                self._parts.setdefault(group, GroupParts()).rows[name] = part

    def collect_values(self, name: str) -> dict[int, Any]:
        return {group: parts.values[name] for group, parts in self._parts.items() if name in parts.values}

    def collect_rows(self, name: str) -> pa.RecordBatch | None:
        rows_of_name = [parts.rows[name] for parts in self._parts.values() if name in parts.rows]
        return pa.concat_batches(rows_of_name) if rows_of_name else None

    def pack(self) -> dict[int, bytes]:
        return {group: parts.pack() for group, parts in self._parts.items()}


SCHEMA = KEYED.append(pa.field("mask", pa.int64()))


class RetainedRows:
    """`kept`: the events, in event-time order, with a column `mask` of the bits of their symbols."""

    def __init__(self, within_us: int) -> None:
        self._within_us = within_us
        self.kept = pa.RecordBatch.from_pylist([], schema=SCHEMA)

    def keep(self, events: pa.RecordBatch, masks: np.ndarray, places: np.ndarray) -> None:
        """Keep the events at these places, ascending, and no others."""
        kept = events.take(pa.array(places, pa.int64()))
        self.kept = kept.append_column(SCHEMA.field("mask"), pa.array(masks[places], pa.int64()))

    def build_masks(self) -> np.ndarray:
        masks: np.ndarray = self.kept.column("mask").to_numpy()
        return masks

    @property
    def open_rows(self) -> int:
        """Return how many events are kept."""
        return int(self.kept.num_rows)

    def has_open(self, keys: pa.Array) -> np.ndarray:
        """Return, per key (text, distinct), whether an event of it is kept."""
        return find_present_keys(self.kept, keys)

    def advance(self, now_us: int) -> Matches:
        """Discard the events that no match ending from `now_us` on can contain."""
        if self.kept.num_rows:
            self.kept = self.kept.filter(pc.greater_equal(self.kept.column("time"), now_us - self._within_us))
        return build_empty()

    def finish(self) -> Matches:
        """Finish: no further event will arrive."""
        self.kept = self.kept.slice(0, 0)
        return build_empty()

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the time (µs) from which on `advance` discards something."""
        least = compute_least_by_group(self.kept, "time")
        return {group: time_us + self._within_us + 1 for group, time_us in least.items()}

    def save(self, states: GroupStates) -> None:
        """Store the kept events in the states of their key groups."""
        states.put_rows("open", self.kept)

    def load(self, states: GroupStates) -> None:
        self.kept = states.collect_rows("open") or self.kept
