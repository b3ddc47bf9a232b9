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
from workers.pipeline.matching.attempt_matcher import AttemptMatcher, BatchKeys
from workers.pipeline.matching.number_lists import ALL
from workers.pipeline.matching.open_attempts import AttemptTable, Changes
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


@dataclass(frozen=True)
class _Automata:
    """Automata that have taken equally many steps, in that order.

    entered: rows of their last events, or of attempts that were open before. first: times of their first events.
    """

    entered: np.ndarray
    first: np.ndarray

    def select(self, which: np.ndarray) -> "_Automata":
        return _Automata(self.entered[which], self.first[which])

    def append(self, other: "_Automata") -> "_Automata":
        """Return both, in the order in which they entered."""
        if not len(self.entered):
            return other
        joined = _Automata(np.concatenate((self.entered, other.entered)), np.concatenate((self.first, other.first)))
        return joined.select(np.argsort(joined.entered, kind="stable"))


@dataclass(frozen=True)
class _Batch:
    """Attempts that were open before, followed by new rows, by key.

    step: the step that each row is for. taken: number of events of an attempt, 0 for new rows. place: place of a new
    row in the batch, negative for attempts. attempt: number of the attempt, -1 for new rows. before: the previous row
    of each row's automaton, or -1. The last three arrays have an additional -1 at the end, which represents no row.
    """

    keyed: retained.KeyedRows
    step: np.ndarray
    masks: np.ndarray
    taken: np.ndarray
    place: np.ndarray
    attempt: np.ndarray
    before: np.ndarray

    def select_waiting(self, step: int) -> _Automata:
        """Return the automata that have waited for a step since before the batch. For step 0: those that begin."""
        rows = np.flatnonzero(self.taken == step if step else self.step == 0)
        return _Automata(rows, self.keyed.time[rows])

    def trace(self, machines: _Automata, taken: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the attempt of each automaton, or -1, and the places of the rows that it took, by step.

        A place is negative for rows of earlier batches. taken: how many events each automaton has taken.
        """
        places = np.full((len(machines.entered), steps), -1, np.int64)
        attempts, row = np.full(len(machines.entered), -1, np.int64), machines.entered
        for step in range(taken - 1, -1, -1):
            places[:, step] = self.place[row]
            attempts, row = np.maximum(attempts, self.attempt[row]), self.before[row]
        return attempts, places


class SequenceOnceMatcher(AttemptMatcher):
    """Matcher for sequences.

    Only the oldest attempts of a key can be served, so a batch reads the expired attempts, and as many others as the
    key has events. A NOT ends all waiting attempts.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._within_us = pattern.within_us
        self._plan = pattern.plain or ()
        self.attempts = AttemptTable(pattern.within_us, len(self._plan), by_step=True)
        self._forbidden = int(np.bitwise_or.reduce([step.forbidden for step in self._plan]))

    @property
    def begins(self) -> int:
        return self._plan[0].bit

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> retained.Matches:
        """Process rows in event-time order; `masks` has the bits of the symbols that each satisfies."""
        wanted = np.flatnonzero(masks)
        if not len(wanted):
            return retained.build_empty()
        rows = rows.select(retained.KEYED.names).cast(retained.KEYED)
        if len(wanted) < len(masks):
            rows, masks = rows.take(pa.array(wanted)), masks[wanted]
        batch_keys = BatchKeys.build(rows, self.attempts)
        batch = self._read_batch(rows, masks, batch_keys)
        if (batch.step == UNDECIDED).any():
            self._decide(batch)
        complete, left = self._serve(batch)
        return self._close(rows, batch, batch_keys, complete, left)

    def _read_batch(self, rows: pa.RecordBatch, masks: np.ndarray, batch_keys: BatchKeys) -> _Batch:
        """Return the rows with the attempts that they can affect."""
        codes, numbers, times = batch_keys.codes, batch_keys.numbers, rows.column("time").to_numpy()
        known = np.flatnonzero(numbers >= 0)
        events = np.bincount(codes, minlength=len(numbers))[known]
        most = events + self.attempts.count_expired(numbers[known], int(times[-1]))
        if self._forbidden:
            most[np.isin(known, codes[(masks & self._forbidden) != 0])] = ALL
        key_of, attempts = self.attempts.read_oldest(numbers[known], most)
        keyed = retained.KeyedRows.build_from_codes(
            np.concatenate((known[key_of], codes)), np.concatenate((self.attempts.get_first(attempts), times))
        )
        were_open = np.flatnonzero(keyed.order < len(attempts))
        own = attempts[keyed.order[were_open]]
        attempt, taken = np.full(len(keyed.order) + 1, -1, np.int64), np.zeros(len(keyed.order), np.int8)
        attempt[were_open], taken[were_open] = own, self.attempts.get_taken(own)
        step = np.concatenate((np.full(len(attempts), UNUSED, np.int8), self._compute_steps(masks)))
        masks = np.concatenate((np.zeros(len(attempts), np.int64), masks))
        place, before = np.append(keyed.order - len(attempts), -1), np.full(len(attempt), -1, np.int64)
        return _Batch(keyed, step[keyed.order], masks[keyed.order], taken, place, attempt, before)

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

    def _decide(self, batch: _Batch) -> None:
        """Decide the undecided steps. All events of the key of such a step are processed."""
        keyed = batch.keyed
        for start in np.unique(keyed.starts[batch.step == UNDECIDED]).tolist():
            span = slice(start, int(keyed.ends[start]))
            queues = _Queues(self._plan, self._within_us)
            columns = (keyed.time[span], batch.step[span], batch.masks[span], batch.taken[span])
            rows = zip(*(column.tolist() for column in columns), strict=True)
            batch.step[span] = [queues.decide(*row) for row in rows]

    def _serve(self, batch: _Batch) -> tuple[_Automata, list[_Automata]]:
        """Return the completed automata, and the open ones by the number of steps they have taken."""
        keyed = batch.keyed
        machines = batch.select_waiting(0)
        left = []
        for number, (_, forbidden_bits) in enumerate(self._plan[1:], 1):
            machines = batch.select_waiting(number).append(machines)
            events = np.flatnonzero(batch.step == number)
            forbidden = np.flatnonzero(batch.masks & forbidden_bits) if forbidden_bits else events[:0]
            taken_by = _assign_events(keyed, machines, events, forbidden, self._within_us)
            served = taken_by[taken_by >= 0]
            left.append(machines.select(_are_left(keyed, machines, served, forbidden)))
            taken = events[taken_by >= 0]
            batch.before[taken] = machines.entered[served]
            machines = _Automata(taken, machines.first[served])
        return machines, left

    def _close(
        self, rows: pa.RecordBatch, batch: _Batch, batch_keys: BatchKeys, complete: _Automata, left: list[_Automata]
    ) -> retained.Matches:
        """Return the matches, and keep the attempts that stay open."""
        steps = len(self._plan)
        matches = retained.build_from_rows(*self.find_events(rows, *batch.trace(complete, steps, steps)))
        now_us = int(rows.column("time")[-1].as_py())
        leaves = batch.attempt >= 0
        attempts, keys, first, places = (list[np.ndarray]() for _ in range(4))
        for taken, machines in enumerate(left, 1):
            leaves[machines.entered] = False
            took = (batch.attempt[machines.entered] < 0) & (machines.first >= now_us - self._within_us)
            machines = machines.select(np.flatnonzero(took))
            for parts, values in zip((attempts, places), batch.trace(machines, taken, steps), strict=True):
                parts.append(values)
            keys.append(batch_keys.codes[batch.place[machines.entered]])
            first.append(machines.first)
        self.attempts.expire(now_us)
        if left:
            number = np.concatenate(attempts)
            leaving = batch.attempt[leaves]
            ended = leaving[~np.isin(leaving, number[number >= 0])]
            key = self.add_keys(batch_keys, np.concatenate(keys))
            self.attempts.change(rows, Changes(ended, number, key, np.concatenate(first), np.concatenate(places)))
        return matches


class _Queues:
    """For one key and each step, the first times of the automata that wait for it, oldest first."""

    def __init__(self, plan: tuple[Step, ...], within_us: int) -> None:
        self._plan, self._within_us = plan, within_us
        self._waiting: list[deque[int]] = [deque() for _ in plan]

    def decide(self, time_us: int, step: int, mask: int, taken: int) -> int:
        """Return the step that an event is for, and advance the automaton that takes it. Forbidden steps are ended.

        taken: 0 for an event. Otherwise, the row is an automaton that has taken this number of events, and time_us is
        the time of its first event.
        """
        if taken:
            self._waiting[taken].append(time_us)
            return UNUSED
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
