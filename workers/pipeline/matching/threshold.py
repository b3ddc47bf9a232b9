"""A condition between the events of SEQ(A; B) that compares a number of B with a number of A, and the search for it.

With the policy `once`, an event of B takes the oldest attempt of its key whose number is below its own
(`B.value > 10 * A.value`). The numbers of the attempts of a key form a list. A search finds the oldest number below a
bound without reading all numbers (`minimum_forest`). Each round processes the next event of B of every key. When few
keys have events left, their events are processed one by one, because a round takes as long for one key as for a
hundred.

All events that open an attempt have a place in the list of their key before the first round. An event of B takes no
attempt from a place after its own events of A.
"""

import ast
import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from workers.pipeline.matching.minimum_forest import MinimumTree
from workers.pipeline.matching.open_attempts import AttemptTable
from workers.pipeline.matching.step_conditions import StepConditions
from workers.pipeline.patterns.predicate import BoundExpression
from workers.pipeline.patterns.references import refers

MIN_KEYS = 24  # keys of a round; with fewer keys, processing single events is faster
_LONG_AGO = np.iinfo(np.int64).min  # time of an attempt that expired in the batch that opened it


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

    def convert_numbers(self, values: pa.Array) -> np.ndarray | None:
        """Return the values that attempts are compared by as numbers, infinite if the condition can't be true.

        Return None if they are not doubles, which NumPy may not compare exactly.
        """
        numbers = self._convert(values)
        return None if numbers is None else np.where(np.isnan(numbers), np.inf, numbers)

    def convert_bounds(self, values: pa.Array) -> np.ndarray | None:
        """Return the values of events as bounds: the numbers of the attempts that they can take are below them.

        A bound is NaN if the condition can't be true. Return None if they are not doubles, or if no double is above
        all numbers that an event can take.
        """
        bounds = self._convert(values)
        if bounds is None or not self.includes_equal:
            return bounds
        return None if np.isposinf(bounds).any() else np.nextafter(bounds, np.inf)

    def _convert(self, values: pa.Array) -> np.ndarray | None:
        if values.type != pa.float64():
            return None
        numbers: np.ndarray = values.to_numpy(zero_copy_only=False)
        return -numbers if self.is_negated else numbers


def _reads_own(tree: ast.expr, condition: BoundExpression) -> bool:
    """Return whether an expression reads the event under test."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return not names <= set(condition.references) or any(isinstance(node, ast.Call) for node in ast.walk(tree))


@dataclass(frozen=True)
class Openers:
    """The events of a batch that may open an attempt, by key, the oldest first.

    key: place of the key among the keys of the search. time: of the event (µs). number: the number of its attempt.
    is_taker: whether the event is also a taker. Such an event opens an attempt only if it takes none.
    """

    key: np.ndarray
    time: np.ndarray
    number: np.ndarray
    is_taker: np.ndarray


@dataclass(frozen=True)
class Takers:
    """The events of a batch that may take an attempt.

    key: place of the key among the keys of the search. time: of the event (µs). bound: numbers below it can be taken.
    earlier: number of openers of the key before the event. rank: number of takers of the key before the event. opens:
    whether the event is also an opener.
    """

    key: np.ndarray
    time: np.ndarray
    bound: np.ndarray
    earlier: np.ndarray
    rank: np.ndarray
    opens: np.ndarray


@dataclass(frozen=True)
class Found:
    """The result of a search.

    attempt: for each match, the number of its attempt, or -1 if the attempt was opened in this batch. opener, taker:
    for each match, its opener, or -1, and its taker. opened, place: the openers whose attempts are open at the end, and
    their places in the lists of their keys.
    """

    attempt: np.ndarray
    opener: np.ndarray
    taker: np.ndarray
    opened: np.ndarray
    place: np.ndarray


class ThresholdSearch:
    """The search in one batch.

    keys: numbers of the keys in the table. The search reserves a place for each opener in the lists of the table.
    """

    def __init__(self, table: AttemptTable, keys: np.ndarray, openers: Openers, takers: Takers, within_us: int) -> None:
        self._table, self._keys, self._openers, self._takers = table, keys, openers, takers
        self._first_us, self._opener_us, self._within_us = table.first_us, openers.time.data, within_us
        counts = np.bincount(openers.key, minlength=len(keys))
        self._reserved = table.lists.reserve(keys, counts)
        self._opener_at = np.cumsum(counts) - counts - self._reserved  # opener of a place, minus the place
        self._places = np.arange(len(openers.key)) - self._opener_at[openers.key]
        self._limits = self._reserved[takers.key] + takers.earlier
        self._forest = table.lists.get_forest(keys)
        self._is_open, self._has_taken = ~openers.is_taker, np.zeros(len(takers.key), bool)
        self._key, self._place, self._taker = (list[np.ndarray]() for _ in range(3))

    def run(self) -> Found:
        openers, takers = self._openers, self._takers
        opened = np.flatnonzero(self._is_open)
        self._forest.add(openers.key[opened], self._places[opened], openers.number[opened])
        by_round = np.argsort(takers.rank.astype(np.uint16) if len(takers.rank) < 2**16 else takers.rank, kind="stable")
        start = 0
        for end in np.cumsum(np.bincount(takers.rank)).tolist():
            if end - start < MIN_KEYS:
                self._process_singly(np.sort(by_round[start:]))
                break
            self._process_round(by_round[start:end])
            start = end
        return self._collect()

    def _process_round(self, takers: np.ndarray) -> None:
        """Process one taker of each of some keys."""
        waiting = takers
        while len(waiting) >= MIN_KEYS:
            keys = self._takers.key[waiting]
            places = self._forest.find(keys, self._takers.bound[waiting])
            found = (places >= 0) & (places < self._limits[waiting])
            waiting, keys, places = waiting[found], keys[found], places[found]
            self._forest.remove(keys, places)
            in_time = self._get_first(keys, places) >= self._takers.time[waiting] - self._within_us
            self._record(keys[in_time], places[in_time], waiting[in_time])
            waiting = waiting[~in_time]  # the attempt that it found has expired
        self._process_singly(waiting)
        self._open(takers[self._takers.opens[takers] & ~self._has_taken[takers]])

    def _open(self, takers: np.ndarray) -> None:
        """Open the attempts of takers of distinct keys."""
        keys, places = self._takers.key[takers], self._limits[takers]
        openers = self._opener_at[keys] + places
        self._is_open[openers] = True
        self._forest.add(keys, places, self._openers.number[openers])

    def _record(self, keys: np.ndarray, places: np.ndarray, takers: np.ndarray) -> None:
        """Record that takers take the attempts at places of lists."""
        self._key.append(keys)
        self._place.append(places)
        self._taker.append(takers)
        self._has_taken[takers] = True

    def _get_first(self, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the times of the first events of the attempts at places of lists (µs)."""
        attempts = self._table.lists.get_attempts(self._keys[keys], places)
        times = np.full(len(keys), _LONG_AGO)
        known, new = np.flatnonzero(attempts >= 0), np.flatnonzero(places >= self._reserved[keys])
        times[known] = self._table.get_first(attempts[known])
        times[new] = self._openers.time[(self._opener_at[keys] + places)[new]]
        return times

    def _process_singly(self, takers: np.ndarray) -> None:
        """Process the takers of a few keys. Those of a key are in event-time order."""
        keys = {key: self._open_key(key) for key in np.unique(self._takers.key[takers]).tolist()}
        of_takers = self._takers
        columns = (of_takers.key, of_takers.time, of_takers.bound, of_takers.opens, self._limits)
        rows = zip(takers.tolist(), *(column[takers].tolist() for column in columns), strict=True)
        taken: list[tuple[int, int, int]] = []
        for taker, key, time_us, bound, opens, limit in rows:
            one = keys[key]
            while 0 <= (place := one.tree.find(bound)) < limit:
                one.tree.set(place, math.inf)
                if self._get_first_of(one, place) >= time_us - self._within_us:
                    taken.append((key, place, taker))
                    break
            else:
                if opens:
                    opener = one.opener_at + limit
                    self._is_open[opener] = True
                    one.tree.set(limit, float(self._openers.number[opener]))
        if taken:
            self._record(*np.array(taken, np.int64).T)

    def _open_key(self, key: int) -> "_SingleKey":
        attempts = self._table.lists.get_list(int(self._keys[key]))
        return _SingleKey(self._forest.get_tree(key), attempts, int(self._reserved[key]), int(self._opener_at[key]))

    def _get_first_of(self, key: "_SingleKey", place: int) -> int:
        """Return the time of the first event of an attempt (µs)."""
        if place >= key.reserved:
            return self._opener_us[key.opener_at + place]
        attempt = key.attempts[place]
        return self._first_us[attempt] if attempt >= 0 else _LONG_AGO

    def _collect(self) -> Found:
        none = np.zeros(0, np.int64)
        keys, places, takers = (np.concatenate([none, *parts]) for parts in (self._key, self._place, self._taker))
        attempts = self._table.lists.get_attempts(self._keys[keys], places).astype(np.int64)
        openers = np.where(places >= self._reserved[keys], self._opener_at[keys] + places, -1)
        self._is_open[openers[openers >= 0]] = False
        opened = np.flatnonzero(self._is_open)
        return Found(attempts, openers, takers, opened, self._places[opened])


@dataclass(frozen=True)
class _SingleKey:
    """A key whose takers are processed one by one.

    attempts: its list of attempts. reserved: first place of an opener. opener_at: opener of a place, minus the place.
    """

    tree: MinimumTree
    attempts: memoryview
    reserved: int
    opener_at: int
