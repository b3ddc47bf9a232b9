"""SEQ(A; B; C), relaxed, policy once, over whole batches at a time.

An event that is for a given step goes to the oldest automaton that waits for this step. Between two steps there is
therefore a first-in, first-out queue, whose members leave unserved when their window is over. Automata enter each queue
in the order of their first events, so the expired ones are always at its head. With the automata numbered in the order
in which they enter, `low` the first unexpired one, and `entered` the number of those that have entered when event j
arrives, the next automaton to be served p obeys

    p(j) = min(max(p(j-1), low(j)) + 1, entered(j))

and event j is taken if max(p(j-1), low(j)) < entered(j). In q(j) = p(j) - j this is a chain of clamps (`clamp_chain`).

An event that a NOT forbids ends all automata that wait in a queue: `low` is then at least the number of those that had
entered before it.

An event that may be for several steps (SEQ(A; B; A), overlapping predicates) goes to the most advanced automaton that
can take it. For the keys with such an event the steps are decided event by event; everything else is the same.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from workers.pipeline.matching import retained
from workers.pipeline.patterns.pattern import Pattern, Step

_INT64_MIN, _INT64_MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def clamp_chain(low: np.ndarray, high: np.ndarray, start: int) -> np.ndarray:
    """Return the value after each clamp (int64[n]), starting at `start`. low, high: int64[n], low ≤ high."""
    count = len(low)
    length = max(1, math.isqrt(count))
    runs = -(-count // length)
    lows, highs = _arrange_runs(low, runs, length, _INT64_MIN), _arrange_runs(high, runs, length, _INT64_MAX)
    for step in range(1, length):
        least, most = lows[step].copy(), highs[step].copy()
        _clamp(lows[step - 1], least, most, out=lows[step])
        _clamp(highs[step - 1], least, most, out=highs[step])
    begins = _run_starts(lows[-1].tolist(), highs[-1].tolist(), start)
    values: np.ndarray = np.minimum(np.maximum(begins, lows), highs).T.ravel()
    return values[:count]


def _arrange_runs(values: np.ndarray, runs: int, length: int, padding: int) -> np.ndarray:
    """Return the values as [step, run]; padding changes nothing."""
    padded = np.full(runs * length, padding, np.int64)
    padded[: len(values)] = values
    return padded.reshape(runs, length).T.copy()


def _clamp(values: np.ndarray, least: np.ndarray, most: np.ndarray, out: np.ndarray) -> None:
    np.maximum(values, least, out=out)
    np.minimum(out, most, out=out)


def _run_starts(lows: list[int], highs: list[int], start: int) -> np.ndarray:
    begins, value = [], start
    for low, high in zip(lows, highs, strict=True):
        begins.append(value)
        value = min(max(value, low), high)
    return np.array(begins, np.int64)


UNUSED, UNDECIDED = -1, -2
_LARGEST = 2**62
_RETAINED = retained.KEYED.append(pa.field("step", pa.int8())).append(pa.field("first", pa.int64()))


@dataclass(frozen=True)
class _Automata:
    """Automata that have taken equally many steps, in that order.

    rows: per step taken, the row of its event in each automaton. first: times of their first events. entered: rows of
    their last events.
    """

    rows: tuple[np.ndarray, ...]
    first: np.ndarray

    @property
    def entered(self) -> np.ndarray:
        return self.rows[-1]

    def select(self, which: np.ndarray) -> "_Automata":
        return _Automata(tuple(taken[which] for taken in self.rows), self.first[which])


class SequenceOnceMatcher(retained.RetainedAttempts):
    """Matcher for sequences.

    It keeps the events of the open automata, each with its step and the first time of its automaton. With the steps
    known, processing them again gives the same automata: those served came before those not served.
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
        """Return, per key (text, distinct), whether an automaton of it is open."""
        return retained.find_present_keys(self.kept, keys)

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> retained.Matches:
        """Process rows in event-time order; `masks` has the bits of the symbols that each satisfies."""
        wanted = np.flatnonzero(masks)
        if not len(wanted):
            return retained.build_empty()
        if len(wanted) < len(masks):
            rows, masks = rows.take(pa.array(wanted)), masks[wanted]
        known = self.kept.column("step").to_numpy()
        events = retained.append_rows(self.kept, rows)
        keyed = retained.KeyedRows.build(events.column("match_key"), events.column("time").to_numpy())
        step = np.concatenate((known, self._compute_steps(masks)))[keyed.order]
        masks = np.concatenate((np.zeros(len(known), np.int64), masks))[keyed.order]
        if (step == UNDECIDED).any():
            self._decide(keyed, step, masks)
        complete, open_automata = self._serve(keyed, step, masks)
        self._keep(events, keyed, open_automata)
        return retained.build_from_rows(events, keyed.order[np.stack(complete.rows, axis=1)])

    def _compute_steps(self, masks: np.ndarray) -> np.ndarray:
        """Return the step that each event is for."""
        step = np.full(len(masks), UNUSED, np.int8)
        steps = np.zeros(len(masks), np.int8)
        for place, (bit, _) in enumerate(self._plan):
            able = (masks & bit) != 0
            step[able] = place
            steps += able
        step[steps > 1] = UNDECIDED
        return step

    def _decide(self, keyed: retained.KeyedRows, step: np.ndarray, masks: np.ndarray) -> None:
        """Decide the undecided steps. All events of the key of such a step are processed."""
        for start in np.unique(keyed.starts[step == UNDECIDED]).tolist():
            span = slice(start, int(keyed.ends[start]))
            queues = _Queues(self._plan, self._within_us)
            columns = (keyed.time[span], step[span], masks[span])
            rows = zip(*(column.tolist() for column in columns), strict=True)
            step[span] = [queues.decide(*row) for row in rows]

    def _serve(
        self, keyed: retained.KeyedRows, step: np.ndarray, masks: np.ndarray
    ) -> tuple[_Automata, list[_Automata]]:
        """Return the completed automata, and the open ones by the number of steps they have taken."""
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

    def _keep(self, events: pa.RecordBatch, keyed: retained.KeyedRows, open_automata: list[_Automata]) -> None:
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
            kept = kept.append_column(_RETAINED.field(name), pa.array(kept_values, _RETAINED.field(name).type))
        self.kept = kept


class _Queues:
    """For one key and each step, the first times of the automata that wait for it, oldest first."""

    def __init__(self, plan: tuple[Step, ...], within_us: int) -> None:
        self._plan, self._within_us = plan, within_us
        self._waiting: list[deque[int]] = [deque() for _ in plan]

    def decide(self, time_us: int, step: int, mask: int) -> int:
        """Return the step that an event is for, and advance the automaton that takes it. Forbidden steps are ended."""
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
    keyed: retained.KeyedRows, machines: _Automata, events: np.ndarray, forbidden: np.ndarray, within_us: int
) -> np.ndarray:
    """Return, per event, the automaton that takes it, or -1. forbidden: rows that end all waiting automata."""
    before = np.zeros(len(keyed.time) + 1, np.int64)  # how many automata have entered before a row
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


def _are_left(keyed: retained.KeyedRows, machines: _Automata, served: np.ndarray, forbidden: np.ndarray) -> np.ndarray:
    """Return, per automaton, whether it still waits after all rows."""
    waits = np.ones(len(machines.first), bool)
    waits[served] = False
    if len(forbidden):
        following = np.append(forbidden, len(keyed.time))[np.searchsorted(forbidden, machines.entered, "right")]
        waits &= following >= keyed.ends[machines.entered]
    return waits


def _count_expired(keyed: retained.KeyedRows, machines: _Automata, events: np.ndarray, within_us: int) -> np.ndarray:
    """Return, per event, how many automata precede the first of its key still within its window."""
    earliest = keyed.time[events] - within_us
    first = machines.first
    if not len(first) or not len(events) or earliest.max() <= first.min():
        return np.zeros(len(events), np.int64)
    origin, end = first.min(), max(first.max(), earliest.max()) + 1
    if (int(keyed.code[-1]) + 1) * int(
        end - origin
    ) > _LARGEST:  # the time is too long to share one number with the key
        ranks = np.unique(np.concatenate((first, earliest)))
        first, earliest = np.searchsorted(ranks, first), np.searchsorted(ranks, earliest)
        origin, end = 0, len(ranks) + 1
    span = end - origin
    stamps = keyed.code[machines.entered] * span + (first - origin)
    wanted = keyed.code[events] * span + np.maximum(earliest - origin, 0)
    expired: np.ndarray = np.searchsorted(stamps, wanted)
    return expired
