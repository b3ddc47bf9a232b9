"""SEQ(A; B) with conditions between its steps, relaxed, policy once, for all keys together.

Of the open attempts that can take an event, the attempt with the most events takes it; among equals, the oldest. Which
attempts are open depends on all earlier events of the key, so the events of a key are processed in order. Each round
processes the next event of every key with all open attempts of these keys. When few keys have events left, their events
are processed one by one, because a round takes as long for one key as for a thousand.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from workers.pipeline.events.layout import append_batch
from workers.pipeline.matching import retained
from workers.pipeline.matching.attempt_matcher import AttemptMatcher, BatchKeys
from workers.pipeline.matching.open_attempts import AttemptTable, Changes
from workers.pipeline.matching.step_conditions import StepConditions
from workers.pipeline.patterns.pattern import Step
from workers.pipeline.patterns.scalars import Scalar, compile_scalar, list_values, read_place

MIN_KEYS = 24  # keys of a round; with fewer keys, processing single events is faster


@dataclass
class Attempts:
    """Open attempts, the oldest of each key first.

    rows: int64[attempts, steps], the events taken, -1 for steps to come. key: number of the key. taken: number of
    events; 0: the attempt is complete or over. first: time of the first event.
    """

    rows: np.ndarray
    key: np.ndarray
    taken: np.ndarray
    first: np.ndarray

    def __len__(self) -> int:
        return len(self.key)

    def select(self, chosen: np.ndarray) -> "Attempts":
        return Attempts(self.rows[chosen], self.key[chosen], self.taken[chosen], self.first[chosen])

    def append(self, other: "Attempts") -> "Attempts":
        return Attempts(
            np.concatenate((self.rows, other.rows)),
            np.concatenate((self.key, other.key)),
            np.concatenate((self.taken, other.taken)),
            np.concatenate((self.first, other.first)),
        )


@dataclass(frozen=True)
class Batch:
    """The events of open attempts followed by the new events, with the key, the time, and the mask of each event.

    events: the columns that conditions read. known: number of events of open attempts. numbers: for each of these
    events, the number of its attempt. first_rows: for each attempt, the row of its first event.
    """

    events: pa.RecordBatch
    key: np.ndarray
    time: np.ndarray
    masks: np.ndarray
    known: int
    numbers: np.ndarray
    first_rows: np.ndarray

    def get_numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of the attempt of each event, or -1 for new events."""
        numbers: np.ndarray = np.append(self.numbers, -1)[np.minimum(rows, self.known)]
        return numbers

    def get_places(self, rows: np.ndarray) -> np.ndarray:
        """Return the places of new events in the batch; negative for other events."""
        return rows - self.known


class CrossOnceMatcher(AttemptMatcher):
    """Matcher for sequences with conditions between steps. A batch reads the open attempts of its keys."""

    def __init__(self, conditions: StepConditions, has_minima: bool = False) -> None:
        pattern = conditions.pattern
        self._conditions, self._plan, self._within_us = conditions, pattern.plain or (), pattern.within_us
        self._single = SingleEvents(conditions, self._plan, self._within_us)
        self.attempts = AttemptTable(pattern.within_us, len(self._plan), by_step=False, has_minima=has_minima)

    @property
    def begins(self) -> int:
        return self._plan[0].bit

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> retained.Matches:
        """Process rows in event-time order; `masks` has the bits of the symbols that each event alone satisfies."""
        if not masks.all():
            wanted = np.flatnonzero(masks)
            rows, masks = rows.take(pa.array(wanted)), masks[wanted]
        if not len(masks):
            return retained.build_empty()
        return self.take_relevant(rows, masks, BatchKeys.build(rows, self.attempts))

    def take_relevant(self, rows: pa.RecordBatch, masks: np.ndarray, batch_keys: BatchKeys) -> retained.Matches:
        """Process rows whose masks are not 0."""
        batch, attempts = self._read_batch(rows, masks, batch_keys)
        complete, left = self._process(batch, attempts, batch.known)
        events, places = self.find_events(rows, batch.get_numbers(complete[:, 0]), batch.get_places(complete))
        matches = self._conditions.build_matches(events, places)
        self._keep(rows, batch, batch_keys, left)
        return matches

    def _read_batch(self, rows: pa.RecordBatch, masks: np.ndarray, batch_keys: BatchKeys) -> tuple[Batch, "Attempts"]:
        """Return the rows with the events of the open attempts of their keys, and these attempts."""
        known_keys = np.flatnonzero(batch_keys.numbers >= 0)
        key_of, numbers = self.attempts.read(batch_keys.numbers[known_keys])
        places = self.attempts.get_events(numbers)
        attempt, step = np.nonzero(places >= 0)
        names = [*self.read_names, "time"]
        events = rows.select(names)
        if len(attempt):
            kept = self.attempts.take_columns(places[attempt, step], names)
            events = append_batch(kept, events)
        known = len(attempt)
        taken_rows = np.full(places.shape, -1, np.int64)
        taken_rows[attempt, step] = np.arange(known)
        keys = known_keys[key_of]
        batch = Batch(
            events,
            np.concatenate((keys[attempt], batch_keys.codes)),
            events.column("time").to_numpy(),
            np.concatenate((np.zeros(known, np.int64), masks)),
            known,
            numbers[attempt],
            taken_rows[:, 0],
        )
        taken = self.attempts.get_taken(numbers).astype(np.int64)
        return batch, Attempts(taken_rows, keys, taken, self.attempts.get_first(numbers))

    @property
    def read_names(self) -> list[str]:
        """Return the columns that conditions and measures read."""
        plan = self._conditions.pattern.bindings
        assert plan is not None
        return [*map(retained.format_read_name, plan.names)]

    def _process(self, batch: Batch, attempts: Attempts, start: int) -> tuple[np.ndarray, Attempts]:
        """Process the events from `start` on. Returns the rows of the matches, and the attempts that stay open."""
        keys = batch.key[start:]
        order = retained.compute_stable_order(keys)
        begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
        lengths = np.diff(begins, append=len(order))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(begins, lengths)
        rows = np.argsort(rank, kind="stable") + start
        ends = np.cumsum(np.bincount(rank))
        complete: list[np.ndarray] = []
        done: list[Attempts] = []
        row_of_key = np.full(int(batch.key.max()) + 1, -1, np.int64)
        before = 0
        for end in ends.tolist():
            if end - before < MIN_KEYS:
                matches, attempts = self._single.process(batch, attempts, np.sort(rows[before:]))
                complete.append(matches)
                break
            of_round = rows[before:end]
            row_of_key[:] = -1
            row_of_key[batch.key[of_round]] = of_round
            is_open = attempts.taken > 0
            concerned = is_open & (row_of_key[attempts.key] >= 0)
            if np.count_nonzero(concerned) < len(concerned) / 2:  # most are over, or their keys have no further events
                done.append(attempts.select(is_open & ~concerned))
                attempts = attempts.select(concerned)
            matches, attempts = self._process_round(batch, attempts, of_round, row_of_key)
            complete.append(matches)
            before = end
        for others in done:
            attempts = others.append(attempts)
        empty = np.zeros((0, len(self._plan)), np.int64)
        attempts = attempts.select(attempts.taken > 0)
        return np.concatenate([empty, *complete]), attempts.select(np.lexsort((attempts.rows[:, 0], attempts.key)))

    def _process_round(
        self, batch: Batch, attempts: Attempts, rows: np.ndarray, row_of_key: np.ndarray
    ) -> tuple[np.ndarray, Attempts]:
        """Process one event of each key. row_of_key: the event, or -1."""
        row = row_of_key[attempts.key]
        concerned = np.flatnonzero((row >= 0) & (attempts.taken > 0))
        in_time = batch.time[row[concerned]] - attempts.first[concerned] <= self._within_us
        attempts.taken[concerned[~in_time]] = 0
        concerned = concerned[in_time]
        masks, taken = batch.masks[row[concerned]], attempts.taken[concerned]
        chosen = np.full(len(row_of_key), -1, np.int64)
        forbidden = np.zeros(len(concerned), bool)
        for step in range(1, len(self._plan)):
            bit, forbidden_bits = self._plan[step]
            able = concerned[(taken == step) & ((masks & bit) != 0)]
            if step in self._conditions.conditions and len(able):
                able = able[self._conditions.find_held(step, batch.events, row[able], attempts.rows[able])]
            # The oldest is written last, and later steps after earlier ones.
            chosen[attempts.key[able[::-1]]] = able[::-1]
            if forbidden_bits:
                forbidden |= (taken == step) & ((masks & forbidden_bits) != 0)
        takers = chosen[chosen >= 0]
        counts = attempts.taken[takers]
        attempts.taken[concerned[forbidden]] = 0
        attempts.rows[takers, counts] = row[takers]
        attempts.taken[takers] = np.where(counts + 1 < len(self._plan), counts + 1, 0)
        matches = attempts.rows[takers[counts + 1 == len(self._plan)]]
        opens = rows[(chosen[batch.key[rows]] < 0) & ((batch.masks[rows] & self._plan[0].bit) != 0)]
        return matches, attempts.append(self._open(batch, opens)) if len(opens) else attempts

    def _open(self, batch: Batch, opens: np.ndarray) -> Attempts:
        rows = np.full((len(opens), len(self._plan)), -1, np.int64)
        rows[:, 0] = opens
        return Attempts(rows, batch.key[opens], np.ones(len(opens), np.int64), batch.time[opens])

    def _keep(self, rows: pa.RecordBatch, batch: Batch, batch_keys: BatchKeys, left: "Attempts") -> None:
        """Keep the attempts that stay open."""
        now_us = int(rows.column("time")[-1].as_py())
        number, first_rows = batch.get_numbers(left.rows[:, 0]), left.rows[:, 0]
        leaves = np.zeros(batch.known, bool)
        leaves[batch.first_rows] = True
        leaves[first_rows[first_rows < batch.known]] = False
        changed = (left.rows >= batch.known).any(axis=1) & (left.first >= now_us - self._within_us)
        left, number = left.select(changed), number[changed]
        self.attempts.expire(now_us)
        keys = self.add_keys(batch_keys, left.key)
        ended = batch.numbers[leaves]
        self.attempts.change(rows, Changes(ended, number, keys, left.first, batch.get_places(left.rows)))


class SingleEvents:
    """Processes the events of a few keys one by one."""

    def __init__(self, conditions: StepConditions, plan: tuple[Step, ...], within_us: int) -> None:
        self._conditions, self._plan, self._within_us = conditions, plan, within_us

    def process(self, batch: Batch, attempts: Attempts, rows: np.ndarray) -> tuple[np.ndarray, Attempts]:
        """Process rows in their order. Returns the rows of the matches, and the attempts that stay open."""
        attempts = attempts.select(attempts.taken > 0)
        concerned = np.isin(attempts.key, np.unique(batch.key[rows]))
        others, own = attempts.select(~concerned), attempts.select(concerned)
        needed = np.unique(np.concatenate((rows, own.rows[own.rows >= 0])))
        holds = self._compile(batch.events, needed)
        open_of_key: dict[int, list[list[int]]] = {}
        for taken, key in zip(own.rows.tolist(), own.key.tolist(), strict=True):
            open_of_key.setdefault(key, []).append([row for row in taken if row >= 0])
        matches: list[list[int]] = []
        columns = zip(rows.tolist(), batch.key[rows].tolist(), batch.masks[rows].tolist(), strict=True)
        times = dict(zip(needed.tolist(), batch.time[needed].tolist(), strict=True))
        for row, key, mask in columns:
            open_attempts = open_of_key.setdefault(key, [])
            earliest_us = times[row] - self._within_us
            open_attempts[:] = [taken for taken in open_attempts if times[taken[0]] >= earliest_us]
            chosen = self._choose(open_attempts, row, mask, holds)
            open_attempts[:] = [
                taken for taken in open_attempts if taken is chosen or not mask & self._plan[len(taken)].forbidden
            ]
            if chosen is not None:
                chosen.append(row)
                if len(chosen) == len(self._plan):
                    open_attempts[:] = [taken for taken in open_attempts if taken is not chosen]
                    matches.append(chosen)
            elif mask & self._plan[0].bit:
                open_attempts.append([row])
        left = [(key, taken) for key, lists in open_of_key.items() for taken in lists]
        return np.array(matches, np.int64).reshape(-1, len(self._plan)), others.append(self._build(left, times))

    def _choose(self, attempts: list[list[int]], row: int, mask: int, holds: dict[int, Any]) -> list[int] | None:
        """Return the most advanced attempt that can take the event, the oldest among equals."""
        best: list[int] | None = None
        for taken in attempts:
            step = len(taken)
            is_better = mask & self._plan[step].bit and (best is None or step > len(best))
            if is_better and (step not in holds or holds[step](row, taken)):
                best = taken
        return best

    def _build(self, left: list[tuple[int, list[int]]], times: dict[int, int]) -> Attempts:
        steps = len(self._plan)
        rows = [[*taken, *[-1] * (steps - len(taken))] for _, taken in left]
        return Attempts(
            np.array(rows, np.int64).reshape(-1, steps),
            np.array([key for key, _ in left], np.int64),
            np.array([len(taken) for _, taken in left], np.int64),
            np.array([times[taken[0]] for _, taken in left], np.int64),
        )

    def _compile(self, events: pa.RecordBatch, needed: np.ndarray) -> dict[int, Any]:
        """Return, per step with a condition, whether it holds for a row and the rows taken before it."""
        plan = self._conditions.pattern.bindings
        assert plan is not None
        places = pa.array(needed)
        columns = [list_values(events.column(retained.format_read_name(name)).take(places)) for name in plan.names]
        values = zip(*columns, strict=True) if columns else iter([()] * len(needed))
        value_rows = dict(zip(needed.tolist(), values, strict=True))
        own: dict[str, Scalar] = {name: read_place(place) for place, name in enumerate(plan.names)}
        compiled: dict[int, Any] = {}
        for step, condition in self._conditions.conditions.items():
            references = {
                name: _read_step(compile_scalar(reference.tree, own), self._conditions.symbols.index(reference.symbol))
                for name, reference in condition.references.items()
                if reference.tree is not None and reference.symbol is not None
            }
            compiled[step] = _hold_with(compile_scalar(condition.tree, {**own, **references}), value_rows)
        return compiled


def _read_step(value: Scalar, step: int) -> Scalar:
    return lambda row, bound: value(bound[step], ())


def _hold_with(condition: Scalar, values: dict[int, Any]) -> Any:
    return lambda row, taken: condition(values[row], tuple(values[other] for other in taken)) is True
