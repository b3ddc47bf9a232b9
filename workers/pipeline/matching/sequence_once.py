"""SEQ(A; B; C), relaxed, policy once, over whole batches at a time.

Given which step an event is for, it goes to the oldest machine that waits for this step. So between two steps
there is a queue, first in, first out, whose members leave unserved when their window is over; and since
machines enter each queue in the order of their first events, the expired ones are always at its head. With
the machines numbered in the order they enter, `low` the first unexpired and `entered` the number of those
that have entered when event j comes, the next machine to be served p obeys

    p(j) = min(max(p(j-1), low(j)) + 1, entered(j))

and event j is taken when max(p(j-1), low(j)) < entered(j). In q(j) = p(j) - j this is a chain of clamps;
and a clamp after a clamp is a clamp (`clamps`).

An event that a NOT forbids ends all that wait in a queue: `low` is then at least the number of those that
had entered before it.

Where an event may be for several steps (SEQ(A; B; A), overlapping predicates) it goes to the most advanced
machine that can take it: for the keys with such an event the steps are decided event by event, and all else
is done alike.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.matching.clamps import clamp_chain
from workers.pipeline.matching.retained.group_state import GroupStates
from workers.pipeline.matching.retained.keyed_rows import (
    KeyedRows,
    append_rows,
    find_present_keys,
    least_by_group,
)
from workers.pipeline.matching.retained.matches import KEYED, Matches, build_empty, build_from_rows
from workers.pipeline.patterns.pattern import Pattern, Step

UNUSED, UNDECIDED = -1, -2
_LARGEST = 2**62
_RETAINED = KEYED.append(pa.field("step", pa.int8())).append(pa.field("first", pa.int64()))


@dataclass(frozen=True)
class _Automata:
    """Machines that have taken as many steps, in the order they did. rows: per step taken the row of its
    event in each machine. first: times of their first events. entered: rows of their last.
    """

    rows: tuple[np.ndarray, ...]
    first: np.ndarray

    @property
    def entered(self) -> np.ndarray:
        return self.rows[-1]

    def select(self, which: np.ndarray) -> "_Automata":
        return _Automata(tuple(taken[which] for taken in self.rows), self.first[which])


class SequenceOnce:
    """kept: the events of the open machines, each with its step and its machine's first time. With the steps
    known, going over them again gives the same machines: who was served came before who was not.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._within_us = pattern.within_us
        self._plan = pattern.plain or ()
        self.kept = pa.RecordBatch.from_pylist([], schema=_RETAINED)

    @property
    def begins(self) -> int:
        return self._plan[0].bit

    @property
    def open_rows(self) -> int:
        return int(self.kept.num_rows)

    def has_open(self, keys: pa.Array) -> np.ndarray:
        """Per key (text, distinct) whether a machine of it is open."""
        return find_present_keys(self.kept, keys)

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> Matches:
        """Rows in event-time order, `masks` with the bits of the symbols each satisfies."""
        wanted = np.flatnonzero(masks)
        if not len(wanted):
            return build_empty()
        if len(wanted) < len(masks):
            rows, masks = rows.take(pa.array(wanted)), masks[wanted]
        known = self.kept.column("step").to_numpy()
        events = append_rows(self.kept, rows)
        keyed = KeyedRows.build(events.column("match_key"), events.column("time").to_numpy())
        step = np.concatenate((known, self._steps(masks)))[keyed.order]
        masks = np.concatenate((np.zeros(len(known), np.int64), masks))[keyed.order]
        if (step == UNDECIDED).any():
            self._decide(keyed, step, masks)
        complete, open_automata = self._serve(keyed, step, masks)
        self._keep(events, keyed, open_automata)
        return build_from_rows(events, keyed.order[np.stack(complete.rows, axis=1)])

    def _steps(self, masks: np.ndarray) -> np.ndarray:
        """Per event the step it is for."""
        step = np.full(len(masks), UNUSED, np.int8)
        steps = np.zeros(len(masks), np.int8)
        for place, (bit, _) in enumerate(self._plan):
            able = (masks & bit) != 0
            step[able] = place
            steps += able
        step[steps > 1] = UNDECIDED
        return step

    def _decide(self, keyed: KeyedRows, step: np.ndarray, masks: np.ndarray) -> None:
        """Sets the steps that are undecided; all events of such a key are gone through."""
        for start in np.unique(keyed.starts[step == UNDECIDED]).tolist():
            span = slice(start, int(keyed.ends[start]))
            queues = _Queues(self._plan, self._within_us)
            columns = (keyed.time[span], step[span], masks[span])
            rows = zip(*(column.tolist() for column in columns), strict=True)
            step[span] = [queues.decide(*row) for row in rows]

    def _serve(
        self, keyed: KeyedRows, step: np.ndarray, masks: np.ndarray
    ) -> tuple[_Automata, list[_Automata]]:
        """(the machines that are complete, those still open by the number of steps they have taken)."""
        opened = np.flatnonzero(step == 0)
        machines = _Automata((opened,), keyed.time[opened])
        left = []
        for number, (_, forbidden_bits) in enumerate(self._plan[1:], 1):
            events = np.flatnonzero(step == number)
            forbidden = np.flatnonzero(masks & forbidden_bits) if forbidden_bits else events[:0]
            taken_by = _assign_events(keyed, machines, events, forbidden, self._within_us)
            served = taken_by[taken_by >= 0]
            left.append(machines.select(_are_left(keyed, machines, served, forbidden)))
            machines = machines.select(served)
            machines = _Automata((*machines.rows, events[taken_by >= 0]), machines.first)
        return machines, left

    def _keep(self, events: pa.RecordBatch, keyed: KeyedRows, open_automata: list[_Automata]) -> None:
        rows, steps, firsts = [], [], []
        for machines in open_automata:
            alive = machines.first >= keyed.last_us[machines.entered] - self._within_us
            for place, taken in enumerate(machines.rows):
                rows.append(taken[alive])
                steps.append(np.full(len(rows[-1]), place, np.int8))
                firsts.append(machines.first[alive])
        places = keyed.order[np.concatenate(rows)] if rows else np.zeros(0, np.int64)
        sorted_ = np.argsort(places)
        kept = events.take(pa.array(places[sorted_]))
        for values in (steps, firsts):
            kept_values = np.concatenate(values)[sorted_] if values else np.zeros(0, np.int64)
            name = _RETAINED.names[kept.num_columns]
            kept = kept.append_column(
                _RETAINED.field(name), pa.array(kept_values, _RETAINED.field(name).type)
            )
        self.kept = kept

    def advance(self, now_us: int) -> Matches:
        """Discards what no event from `now_us` on can complete."""
        if self.kept.num_rows:
            self.kept = self.kept.filter(
                pc.greater_equal(self.kept.column("first"), now_us - self._within_us)
            )
        return build_empty()

    def finish(self) -> Matches:
        self.kept = self.kept.slice(0, 0)
        return build_empty()

    def timers(self) -> dict[int, int]:
        """Per key group the time (µs) from which on `advance` discards something."""
        least = least_by_group(self.kept, "first")
        return {group: time_us + self._within_us + 1 for group, time_us in least.items()}

    def save(self, states: GroupStates) -> None:
        states.put_rows("open", self.kept)

    def load(self, states: GroupStates) -> None:
        self.kept = states.rows("open") or self.kept


class _Queues:
    """Of one key, for each step the first times of the machines that wait for it, oldest first."""

    def __init__(self, plan: tuple[Step, ...], within_us: int) -> None:
        self._plan, self._within_us = plan, within_us
        self._waiting: list[deque[int]] = [deque() for _ in plan]

    def decide(self, time_us: int, step: int, mask: int) -> int:
        """The step an event is for, and on with the machine that takes it; those it is forbidden for end."""
        if step == UNDECIDED:
            step = self._most_advanced(time_us, mask)
        first_us = time_us if step == 0 else None
        if step > 0 and self._is_awaited(step, time_us):
            first_us = self._waiting[step].popleft()
        for queue, (_, forbidden) in zip(self._waiting, self._plan, strict=True):
            if mask & forbidden:
                queue.clear()
        if first_us is not None and step + 1 < len(self._waiting):
            self._waiting[step + 1].append(first_us)
        return step

    def _most_advanced(self, time_us: int, mask: int) -> int:
        for step in range(len(self._plan) - 1, 0, -1):
            if mask & self._plan[step].bit and self._is_awaited(step, time_us):
                return step
        return 0 if mask & self._plan[0].bit else UNUSED

    def _is_awaited(self, step: int, time_us: int) -> bool:
        queue = self._waiting[step]
        while queue and queue[0] < time_us - self._within_us:
            queue.popleft()
        return bool(queue)


def _assign_events(
    keyed: KeyedRows, machines: _Automata, events: np.ndarray, forbidden: np.ndarray, within_us: int
) -> np.ndarray:
    """Per event the machine that takes it, or -1. forbidden: rows that end all machines that wait."""
    before = np.zeros(len(keyed.time) + 1, np.int64)  # how many machines have entered before a row
    before[machines.entered + 1] = 1
    np.cumsum(before, out=before)
    entered, starts = before[events], keyed.starts[events]
    low = np.maximum(before[starts], _count_expired(keyed, machines, events, within_us))
    if len(forbidden):
        last = forbidden[np.maximum(np.searchsorted(forbidden, events) - 1, 0)]
        ended = (last < events) & (last >= starts)
        low = np.maximum(low, np.where(ended, before[last], 0))
    low, number = np.minimum(low, entered), np.arange(len(events))
    after = clamp_chain(np.minimum(low - number, entered - number - 1), entered - number - 1, 0) + number + 1
    previous = np.concatenate((np.zeros(1, np.int64), after[:-1]))[: len(after)]
    return np.where(np.maximum(previous, low) < entered, after - 1, -1)


def _are_left(keyed: KeyedRows, machines: _Automata, served: np.ndarray, forbidden: np.ndarray) -> np.ndarray:
    """Per machine whether it still waits after all rows."""
    waits = np.ones(len(machines.first), bool)
    waits[served] = False
    if len(forbidden):
        following = np.append(forbidden, len(keyed.time))[
            np.searchsorted(forbidden, machines.entered, "right")
        ]
        waits &= following >= keyed.ends[machines.entered]
    return waits


def _count_expired(keyed: KeyedRows, machines: _Automata, events: np.ndarray, within_us: int) -> np.ndarray:
    """Per event how many machines lie before the first of its key that is still within its window."""
    earliest = keyed.time[events] - within_us
    first = machines.first
    if not len(first) or not len(events) or earliest.max() <= first.min():
        return np.zeros(len(events), np.int64)
    origin, end = first.min(), max(first.max(), earliest.max()) + 1
    if (int(keyed.code[-1]) + 1) * int(
        end - origin
    ) > _LARGEST:  # too long a time for one number with the key
        ranks = np.unique(np.concatenate((first, earliest)))
        first, earliest = np.searchsorted(ranks, first), np.searchsorted(ranks, earliest)
        origin, end = 0, len(ranks) + 1
    span = end - origin
    stamps = keyed.code[machines.entered] * span + (first - origin)
    wanted = keyed.code[events] * span + np.maximum(earliest - origin, 0)
    expired: np.ndarray = np.searchsorted(stamps, wanted)
    return expired
