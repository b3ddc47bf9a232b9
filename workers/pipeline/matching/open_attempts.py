"""The open attempts of a matcher, in columns.

A batch accesses only the attempts that it reads, ends, or continues, and the attempts whose windows have ended. The
time per event therefore does not depend on the number of open attempts. Attempts are numbered in the order of their
first events. Each key has a list of its open attempts (`attempt_lists`), or a queue for each number of events taken
(`number_lists`). Ended attempts leave gaps. If there are too many gaps, the attempts get new numbers.

Arrays take less memory than objects: about 100 bytes for an attempt, depending on the length of its event's ID.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from workers.pipeline.matching.attempt_lists import AttemptLists
from workers.pipeline.matching.key_table import KeyTable
from workers.pipeline.matching.number_lists import StepQueues, count_runs, expand_ranges
from workers.pipeline.matching.retained import KEYED, GroupStates, compute_stable_order
from workers.pipeline.matching.row_pool import GrowingArray, RowPool

MIN_GAPS = 2**17  # with fewer gaps, attempts never get new numbers
GAP_SHARE = 0.5  # maximum share of gaps, relative to the open attempts
_BLOCK = 1_024  # attempts that are searched together
ATTEMPT = (pa.field("attempt", pa.int64()), pa.field("step", pa.int8()), pa.field("first", pa.int64()))
_TYPES = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Changes:
    """The changes of attempts by a batch.

    ended: numbers of the attempts that are complete or forbidden. The other arrays describe the attempts that took
    events and stay open, grouped by key, the oldest first. number: number of the attempt, or -1 for a new attempt. key:
    number of its key. first: time of its first event. rows: int64[attempts, steps], the rows of the batch that it took,
    or -1 for other steps. places: of new attempts in the lists of their keys, if they were reserved. In that case, all
    attempts are new, and their order does not matter.
    """

    ended: np.ndarray
    number: np.ndarray
    key: np.ndarray
    first: np.ndarray
    rows: np.ndarray
    places: np.ndarray | None = None


class AttemptTable:
    """The open attempts. steps: number of events of a match.

    by_step: whether each key has a queue for each step. Otherwise, it has a list, and has_minima says whether the
    attempts in the lists have numbers.
    """

    def __init__(self, within_us: int, steps: int, by_step: bool, has_minima: bool = False) -> None:
        self._within_us, self._steps, self._by_step, self._has_minima = within_us, steps, by_step, has_minima
        self.clear()

    def clear(self) -> None:
        """Remove all attempts."""
        self.keys = KeyTable()
        self._events = RowPool()  # of KEYED, without key and key group, and columns that conditions read
        self._omits_source = True
        self._before = GrowingArray(np.int32)  # per event, the place of the previous event of its attempt
        self._first = GrowingArray(np.int64)  # per attempt, ascending
        self._key, self._last = GrowingArray(np.int32), GrowingArray(np.int32)
        self._taken = GrowingArray(np.int8)  # 0: the attempt has ended
        self._lists = StepQueues(self._steps) if self._by_step else AttemptLists(self._taken, self._has_minima)
        self._oldest = 0
        self._open_of_group = np.zeros(1, np.int64)
        self._oldest_of_group = np.zeros(1, np.int64)  # no earlier attempt of the group is open

    def __len__(self) -> int:
        return int(self._open_of_group.sum())

    @property
    def nbytes(self) -> int:
        """Return the size of all arrays, including gaps and room for more."""
        arrays = (self._before, self._first, self._key, self._last, self._taken)
        return sum(part.nbytes for part in (*arrays, self._events, self.keys, self._lists))

    @property
    def lists(self) -> AttemptLists:
        """Return the lists of attempts, which exist unless each key has a queue for each step."""
        assert isinstance(self._lists, AttemptLists)
        return self._lists

    def has_open(self, keys: pa.Array) -> np.ndarray:
        """Return, for each key (text, distinct), whether the key has an open attempt."""
        numbers = self.keys.find(keys)
        known = np.flatnonzero(numbers >= 0)
        is_open = np.zeros(len(keys), bool)
        is_open[known] = self._lists.has_open(numbers[known])
        return is_open

    def count_expired(self, keys: np.ndarray, now_us: int) -> np.ndarray:
        """Return how many attempts of each key (number, distinct) have expired at this time."""
        expired = np.sort(self._key.values[self._find_expired(now_us)])
        distinct, counts = count_runs(expired)
        if not len(distinct):
            return np.zeros(len(keys), np.int64)
        places = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
        result: np.ndarray = np.where(distinct[places] == keys, counts[places], 0)
        return result

    def read(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of the key of each open attempt, and the attempts of each key, the oldest first.

        keys: numbers of keys, distinct.
        """
        return self.lists.read(keys)

    def read_oldest(self, keys: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of the key of each attempt, and the oldest attempts of each queue, in its order.

        keys: numbers of keys, distinct. most: maximum count from each queue of the key.
        """
        assert isinstance(self._lists, StepQueues)
        return self._lists.read(keys, most)

    def list_open(self) -> np.ndarray:
        """Return all open attempts."""
        return np.flatnonzero(self._taken.values)

    def get_first(self, attempts: np.ndarray) -> np.ndarray:
        """Return the times of the first events (µs)."""
        times: np.ndarray = self._first.values[attempts]
        return times

    @property
    def first_us(self) -> memoryview:
        """Return the times of the first events of all attempts (µs), until attempts are opened."""
        return self._first.values.data

    def get_keys(self, attempts: np.ndarray) -> np.ndarray:
        """Return the numbers of the keys."""
        keys: np.ndarray = self._key.values[attempts]
        return keys

    def get_taken(self, attempts: np.ndarray) -> np.ndarray:
        """Return how many events the attempts have taken."""
        counts: np.ndarray = self._taken.values[attempts]
        return counts

    def get_events(self, attempts: np.ndarray) -> np.ndarray:
        """Return the places of the events of attempts, int64[attempts, steps]; -1 for steps without an event."""
        places = np.full((len(attempts), self._steps), -1, np.int64)
        at, taken = self._last.values[attempts].astype(np.int64), self._taken.values[attempts]
        for step in range(int(taken.max(initial=0)) - 1, -1, -1):
            has = np.flatnonzero(taken > step)
            places[has, step] = at[has]
            at[has] = self._before.values[at[has]]
        return places

    def take_columns(self, places: np.ndarray, names: list[str]) -> pa.RecordBatch:
        """Return some columns of events."""
        return self._events.take(places, names)

    def take_events(self, places: np.ndarray, keys: np.ndarray) -> pa.RecordBatch:
        """Return events as KEYED, followed by the columns that conditions read. keys: numbers of their keys."""
        events = self._events.take(places)
        columns = dict(zip(events.schema.names, events.columns, strict=True))
        columns["type"] = columns["type"].cast(pa.string())
        columns["match_key"] = self.keys.take_texts(keys)
        columns["group"] = pa.array(self.keys.groups.values[keys], pa.int32())
        columns.setdefault("source", columns["match_key"])  # an event's source is its key
        names = [*KEYED.names, *(name for name in events.schema.names if name not in KEYED.names)]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names)

    def add_keys(self, keys: pa.Array, groups: np.ndarray) -> np.ndarray:
        """Return the numbers of keys (text, distinct). groups: their key groups."""
        numbers = self.keys.add(keys, groups)
        self._lists.add_keys(len(self.keys))
        return numbers

    def change(self, rows: pa.RecordBatch, changes: Changes) -> None:
        """End attempts, open attempts, and continue others with their next events.

        Call `expire` first, because an expired attempt must leave its list before a later attempt does.
        """
        self._end(changes.ended[self._taken.values[changes.ended] > 0])
        number = changes.number.copy()
        if self._by_step:
            self._leave_lists(number[number >= 0])
        opened = np.flatnonzero(number < 0)
        # Attempts are numbered in the order of their first events.
        order = _sort_rows(changes.rows[opened, 0], rows.num_rows)
        first = changes.first[opened[order]]
        if (first[1:] < first[:-1]).any():  # saved attempts are in the order of their key groups
            order = order[np.argsort(first, kind="stable")]
        number[opened[order]] = len(self._first) + np.arange(len(opened))
        self._first.append(changes.first[opened[order]])
        self._key.append(changes.key[opened[order]])
        self._taken.append(np.zeros(len(opened), np.int8))
        self._last.append(np.full(len(opened), -1, np.int32))
        self._count(number[opened], 1)
        self._append_events(rows, number, changes.rows)
        if changes.places is None:
            self._join_lists(number if self._by_step else number[opened])
        else:
            self.lists.assign(changes.key, changes.places, number)
        self._limit_gaps()

    def _count(self, attempts: np.ndarray, change: int) -> None:
        """Count attempts as opened (1) or ended (-1)."""
        groups = self._get_groups(attempts)
        counts = np.bincount(groups, minlength=len(self._open_of_group))
        if len(counts) > len(self._open_of_group):
            added = (0, len(counts) - len(self._open_of_group))
            self._open_of_group = np.pad(self._open_of_group, added)
            self._oldest_of_group = np.pad(self._oldest_of_group, added)
        self._open_of_group += change * counts

    def _end(self, attempts: np.ndarray) -> None:
        """End open attempts."""
        if len(attempts):
            self._count(attempts, -1)
            self._leave_lists(attempts)
            self._taken.values[attempts] = 0

    def _append_events(self, rows: pa.RecordBatch, number: np.ndarray, taken_rows: np.ndarray) -> None:
        """Append the events that attempts took, step by step."""
        parts = []
        for of_step in taken_rows.T:
            takers = np.flatnonzero(of_step >= 0)
            attempts = number[takers]
            places = len(self._before) + np.arange(len(takers))
            self._before.append(self._last.values[attempts])
            self._last.values[attempts] = places
            self._taken.values[attempts] += 1
            parts.append(of_step[takers])
        events = np.concatenate(parts)
        if len(events):
            self._keep(rows, events)

    def _keep(self, rows: pa.RecordBatch, places: np.ndarray) -> None:
        """Append events without their keys. Each type is stored once. Sources that equal the keys are not stored."""
        names = [name for name in rows.schema.names if name not in ("match_key", "group")]
        if self._omits_source and rows.column("source").equals(rows.column("match_key")):
            names.remove("source")
        elif self._omits_source:
            self._add_sources()
        events = rows.select(names).take(pa.array(places))
        at = names.index("type")
        self._events.append(events.set_column(at, "type", events.column(at).dictionary_encode().cast(_TYPES)))

    def _add_sources(self) -> None:
        """Keep the sources of all events from now on."""
        self._omits_source = False
        if not len(self._events):
            return
        keys = np.zeros(len(self._events), np.int64)  # events of ended attempts can have any key
        kept = self.list_open()
        events = self.get_events(kept)
        attempts, steps = np.nonzero((events >= 0) & (events < len(self._events)))
        keys[events[attempts, steps]] = self._key.values[kept[attempts]]
        rows = self._events.take(np.arange(len(self._events)))
        self._events = RowPool()
        self._events.append(rows.append_column("source", self.keys.take_texts(keys)))

    def _leave_lists(self, attempts: np.ndarray) -> None:
        """Remove attempts from their lists. In queues, they must be the oldest."""
        keys = self._key.values[attempts]
        if isinstance(self._lists, StepQueues):
            self._lists.leave(keys, self._taken.values[attempts])
        else:
            self._lists.leave(keys)

    def _join_lists(self, attempts: np.ndarray) -> None:
        """Append attempts to their lists. They are newer than the attempts in the lists."""
        keys = self._key.values[attempts]
        if isinstance(self._lists, StepQueues):
            self._lists.join(keys, self._taken.values[attempts], attempts)
        else:
            self._lists.append(keys, attempts)

    def _find_expired(self, now_us: int) -> np.ndarray:
        """Return the attempts that have expired at this time."""
        return self._oldest + np.flatnonzero(self._taken.values[self._oldest : self._count_due(now_us)])

    def _count_due(self, now_us: int) -> int:
        """Return the number of attempts, including ended ones, whose windows are over at this time."""
        first = self._first.values[self._oldest :]
        return self._oldest + int(np.searchsorted(first, now_us - self._within_us))

    def expire(self, now_us: int) -> None:
        """End the attempts that no event from `now_us` on can complete. All other attempts keep their numbers."""
        self._end(self._find_expired(now_us))
        self._oldest = self._count_due(now_us)

    def advance(self, now_us: int) -> None:
        """End the attempts that no event from `now_us` on can complete, between batches."""
        self.expire(now_us)
        self._limit_gaps()

    def _limit_gaps(self) -> None:
        if max(len(self._first), len(self.keys)) - len(self) > GAP_SHARE * len(self) + MIN_GAPS:
            self._close_gaps()

    def _close_gaps(self) -> None:
        """Give the open attempts new numbers and their events new places, and remove everything else."""
        if not len(self):
            self.clear()
            return
        kept = self.list_open()
        events = self.get_events(kept)
        places = np.sort(events[events >= 0])
        new_places = np.full(len(self._before) + 1, -1, np.int32)
        new_places[places] = np.arange(len(places))
        columns, before = self._events.take(places), self._before.values[places]
        self._events = RowPool()
        self._events.append(columns)
        self._before.replace(new_places[before])
        new_numbers = np.zeros(len(self._first), np.int32)
        new_numbers[kept] = np.arange(len(kept))
        self._lists.renumber(new_numbers)
        self._oldest_of_group = np.searchsorted(kept, self._oldest_of_group)
        self._last.replace(new_places[self._last.values[kept]])
        for array in (self._first, self._key, self._taken):
            array.replace(array.values[kept])
        self._oldest = 0
        self._drop_unused_keys()

    def _drop_unused_keys(self) -> None:
        used = np.zeros(len(self.keys), bool)
        used[self._key.values] = True
        kept = np.flatnonzero(used)
        if len(used) <= (1 + GAP_SHARE) * len(kept) + MIN_GAPS:
            return
        self.keys.select(kept)
        self._lists.select(kept)
        new_numbers = np.zeros(len(used), np.int32)
        new_numbers[kept] = np.arange(len(kept))
        self._key.replace(new_numbers[self._key.values])

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the earliest time (µs) at which `expire` ends an attempt."""
        groups = np.flatnonzero(self._open_of_group)
        self._find_oldest(groups)
        times_us = self._first.values[self._oldest_of_group[groups]] + self._within_us + 1
        return dict(zip(groups.tolist(), times_us.tolist(), strict=True))

    def _find_oldest(self, groups: np.ndarray) -> None:
        """Find the oldest open attempt of key groups that have some. Each attempt is read once for each group."""
        oldest = self._oldest_of_group
        at = oldest[groups]
        searched = groups[(self._taken.values[at] == 0) | (self._get_groups(at) != groups)]
        block = _BLOCK
        while len(searched):
            start = int(oldest[searched].min())
            attempts = start + np.flatnonzero(self._taken.values[start : start + block])
            first = np.full(len(oldest), -1)
            first[self._get_groups(attempts)[::-1]] = attempts[::-1]  # the oldest is written last
            is_found = first[searched] >= 0
            oldest[searched] = np.where(is_found, first[searched], np.maximum(oldest[searched], start + block))
            searched, block = searched[~is_found], 2 * block

    def _get_groups(self, attempts: np.ndarray) -> np.ndarray:
        groups: np.ndarray = self.keys.groups.values[self._key.values[attempts]]
        return groups

    def save(self, states: GroupStates) -> None:
        """Store the events of the attempts in the states of their key groups."""
        kept = self.list_open()
        kept = kept[states.select(self._get_groups(kept))]
        if len(kept):
            states.put_rows("open", self._collect_rows(kept))

    def _collect_rows(self, kept: np.ndarray) -> pa.RecordBatch:
        """Return the events of attempts, each with the attempt, its step, and the time of its first event."""
        events = self.get_events(kept)
        attempts, steps = np.nonzero(events >= 0)
        rows = self.take_events(events[attempts, steps], self._key.values[kept[attempts]])
        columns = (kept[attempts], steps, self._first.values[kept[attempts]])
        for field, values in zip(ATTEMPT, columns, strict=True):
            rows = rows.append_column(field, pa.array(values, field.type))
        return rows

    def load(self, states: GroupStates) -> None:
        """Load the attempts that were saved."""
        rows = states.collect_rows("open")
        if rows is None:
            return
        encoded = rows.column("match_key").dictionary_encode()
        code = encoded.indices.to_numpy()
        groups = np.empty(len(encoded.dictionary), np.int64)
        groups[code] = rows.column("group").to_numpy()
        keys = self.add_keys(encoded.dictionary, groups)
        order = _order_by_attempt(rows, code)
        steps, first = rows.column("step").to_numpy()[order], rows.column("first").to_numpy()
        begins = steps == 0
        taken_rows = np.full((np.count_nonzero(begins), self._steps), -1, np.int64)
        taken_rows[np.cumsum(begins) - 1, steps] = order
        taken_rows = taken_rows[compute_stable_order(code[taken_rows[:, 0]])]
        starts = taken_rows[:, 0]
        none, new = np.zeros(0, np.int64), np.full(len(starts), -1)
        rows = rows.drop_columns([field.name for field in ATTEMPT if field.name in rows.schema.names])
        self.change(rows, Changes(none, new, keys[code[starts]], first[starts], taken_rows))


def _order_by_attempt(rows: pa.RecordBatch, code: np.ndarray) -> np.ndarray:
    """Return the order of saved rows by attempt, the oldest of each key first, and step.

    `save` writes them in this order. Earlier versions wrote events in the order of their times. For sequences without
    conditions between events, they did not write numbers of attempts: the n-th event of a step then belongs to the n-th
    attempt of its key.
    """
    steps = rows.column("step").to_numpy()
    if "attempt" in rows.schema.names:
        attempts = rows.column("attempt").to_numpy()
        follows = (steps[1:] == steps[:-1] + 1) & (attempts[1:] == attempts[:-1])
        if ((steps[1:] == 0) | follows).all():
            return np.arange(len(steps))
    else:
        by_step = np.lexsort((np.arange(len(code)), steps, code))
        _, lengths = count_runs(code[by_step] * (int(steps.max()) + 1) + steps[by_step])
        attempts = np.empty(len(code), np.int64)
        attempts[by_step] = expand_ranges(np.zeros(len(lengths), np.int64), lengths)
    return np.lexsort((steps, attempts, code))


def _sort_rows(rows: np.ndarray, count: int) -> np.ndarray:
    """Return the argsort of distinct numbers below `count`."""
    place = np.full(count, -1, np.int64)
    place[rows] = np.arange(len(rows))
    return place[place >= 0]
