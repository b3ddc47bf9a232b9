"""SEQ(A; B) whose only condition between events compares a number of B with a number of A, relaxed, policy once.

An event of B takes the oldest attempt of its key whose number is below its own (`B.value > 10 * A.value`). The numbers
of the attempts of a key form a list. A search finds the oldest number below a bound without reading all numbers
(`minimum_forest`). Each round processes the next event of every key. When few keys have events left, their events are
processed one by one, because a round takes as long for one key as for a hundred.
"""

import ast
import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from workers.pipeline.matching.minimum_forest import MinimumForest, MinimumTree
from workers.pipeline.matching.number_lists import count_runs, expand_ranges
from workers.pipeline.matching.retained import compute_stable_order
from workers.pipeline.matching.step_conditions import StepConditions
from workers.pipeline.patterns.predicate import BoundExpression
from workers.pipeline.patterns.references import refers

MIN_KEYS = 24  # keys of a round; with fewer keys, processing single events is faster


@dataclass(frozen=True)
class Threshold:
    """A condition `taken < own`, or `taken <= own`. is_negated: the numbers on both sides are negated."""

    own: BoundExpression
    taken: BoundExpression
    includes_equal: bool
    is_negated: bool

    @classmethod
    def build(cls, conditions: StepConditions) -> "Threshold | None":
        """Return the only condition, or None if it has another form."""
        plan = conditions.pattern.plain or ()
        if len(plan) != 2 or plan[1].forbidden or set(conditions.conditions) != {1}:
            return None
        condition = conditions.conditions[1]
        match condition.tree:
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as op], comparators=[right]):
                own_is_left = refers(right, condition.references)
                own, taken = (left, right) if own_is_left else (right, left)
            case _:
                return None
        if refers(own, condition.references) or _reads_own(taken, condition):
            return None
        is_less = isinstance(op, ast.Lt | ast.LtE)
        return cls(
            replace(condition, tree=own, references={}),
            replace(condition, tree=taken, columns=frozenset(), previous=frozenset()),
            isinstance(op, ast.LtE | ast.GtE),
            is_less == own_is_left,
        )

    def convert(self, values: pa.Array) -> np.ndarray | None:
        """Return values as numbers to compare; None if they are not doubles, which NumPy may not compare exactly."""
        if values.type != pa.float64():
            return None
        numbers: np.ndarray = values.to_numpy(zero_copy_only=False)
        return -numbers if self.is_negated else numbers


def _reads_own(tree: ast.expr, condition: BoundExpression) -> bool:
    """Return whether an expression reads the event under test."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return not names <= set(condition.references) or any(isinstance(node, ast.Call) for node in ast.walk(tree))


class Candidates:
    """Events that open an attempt, or may do so, by key, the oldest first.

    key, time: of open attempts (by key, the oldest first), followed by those of new events in their order. number: the
    number that their condition compares. keys: number of keys.
    """

    def __init__(self, key: np.ndarray, time: np.ndarray, number: np.ndarray, keys: int) -> None:
        self.order = compute_stable_order(key)
        self.time, self.number = time[self.order], number[self.order]
        self.lengths = np.bincount(key, minlength=keys)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.place = np.empty(len(key), np.int64)  # place of each event among the events of its key
        self.place[self.order] = np.arange(len(key)) - self.starts[key[self.order]]


@dataclass(frozen=True)
class NewEvents:
    """New events in event-time order. bound: the number that a condition compares, NaN if it can't be true.

    candidate: the candidate that an event may become, or -1.
    """

    key: np.ndarray
    time: np.ndarray
    bound: np.ndarray
    candidate: np.ndarray


class ThresholdSearch:
    """The search in one batch."""

    def __init__(
        self, candidates: Candidates, opened: int, events: NewEvents, within_us: int, includes_equal: bool
    ) -> None:
        self._candidates, self._events, self._within_us = candidates, events, within_us
        self._includes_equal = includes_equal
        self._open = MinimumForest(candidates.lengths, includes_equal)
        places = np.flatnonzero(candidates.order < opened)
        keys = np.searchsorted(candidates.starts, places, side="right") - 1
        self._open.fill(keys, places - candidates.starts[keys], candidates.number[places])
        self._taken: list[np.ndarray] = []
        self._takers: list[np.ndarray] = []

    def run(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the candidate and the event of each match, and the candidates that stay open."""
        keys = self._events.key
        order = compute_stable_order(keys)
        _, lengths = count_runs(keys[order])
        rank = np.empty(len(order), np.int64)
        rank[order] = expand_ranges(np.zeros(len(lengths), np.int64), lengths)
        by_round = np.argsort(rank, kind="stable")
        start = 0
        for end in np.cumsum(np.bincount(rank)).tolist():
            if end - start < MIN_KEYS:
                self._process_singly(np.sort(by_round[start:]))
                break
            self._process_round(by_round[start:end])
            start = end
        candidates = self._candidates
        keys = np.repeat(np.arange(len(candidates.lengths)), candidates.lengths)
        places = np.arange(len(keys)) - candidates.starts[keys]
        stay = np.flatnonzero(~np.isnan(self._open.get_values(keys, places)))
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *self._taken]), np.concatenate([none, *self._takers]), candidates.order[stay]

    def _process_round(self, events: np.ndarray) -> None:
        """Process one event of each of some keys."""
        new, candidates = self._events, self._candidates
        waiting = events[~np.isnan(new.bound[events])]
        takers = []
        while len(waiting):
            keys = new.key[waiting]
            places = self._open.find(keys, new.bound[waiting])
            found = places >= 0
            waiting, keys, places = waiting[found], keys[found], places[found]
            if not len(waiting):
                break
            attempts = candidates.starts[keys] + places
            self._open.remove(keys, places)
            in_time = candidates.time[attempts] >= new.time[waiting] - self._within_us
            self._taken.append(candidates.order[attempts[in_time]])
            takers.append(waiting[in_time])
            waiting = waiting[~in_time]  # the attempt that it found has expired
        opens = events[new.candidate[events] >= 0]
        if takers:
            self._takers += takers
            opens = opens[~np.isin(opens, np.concatenate(takers))]
        if len(opens):
            of_events = new.candidate[opens]
            place = candidates.starts[new.key[opens]] + candidates.place[of_events]
            self._open.add(new.key[opens], candidates.place[of_events], candidates.number[place])

    def _process_singly(self, events: np.ndarray) -> None:
        new, candidates = self._events, self._candidates
        lists = {key: self._read_list(key) for key in np.unique(new.key[events]).tolist()}
        taken, takers = [], []
        columns = (events, *(values[events] for values in (new.key, new.time, new.bound, new.candidate)))
        for event, key, time, bound, candidate in zip(*(values.tolist() for values in columns), strict=True):
            numbers, start = lists[key], int(candidates.starts[key])
            if self._includes_equal:
                bound = math.nextafter(bound, math.inf)
            while (place := numbers.find(bound)) >= 0:
                numbers.set(place, math.nan)
                if candidates.time[start + place] >= time - self._within_us:
                    taken.append(start + place)
                    takers.append(event)
                    break
            if place < 0 and candidate >= 0:
                own = int(candidates.place[candidate])
                numbers.set(own, float(candidates.number[start + own]))
        self._taken.append(candidates.order[np.array(taken, np.int64)])
        self._takers.append(np.array(takers, np.int64))
        for key, numbers in lists.items():
            values = np.array(numbers.list_values()[: int(candidates.lengths[key])])
            self._open.finish(key, np.where(np.isinf(values), np.nan, values))

    def _read_list(self, key: int) -> MinimumTree:
        places = np.arange(self._candidates.lengths[key])
        return MinimumTree(self._open.get_values(np.full(len(places), key), places).tolist())
