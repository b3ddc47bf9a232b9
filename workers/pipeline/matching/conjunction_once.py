"""AND of single events, relaxed, policy once.

A match has the oldest unexpired events of each needed symbol, as many as are needed (CONTRACT, `match`). An event that
satisfies several symbols takes the place that leaves the others free. Places are filled by augmenting paths, the oldest
events first. The places of a symbol are interchangeable, and so are the events of a mask, so a path is no longer than
the number of symbols. The sets of events that find places are a transversal matroid, so the first complete set found is
that of the oldest events.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from workers.pipeline.matching import retained
from workers.pipeline.patterns.pattern import Pattern


class ConjunctionOnceMatcher(retained.RetainedRows):
    """Matcher for conjunctions. It keeps the events that no match has used yet, with the symbols they satisfy."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__(pattern.within_us)
        self._places = tuple(pattern.bits[symbol] for symbol in pattern.needed or ())
        self.begins = int(np.bitwise_or.reduce(self._places))  # any of its events

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> retained.Matches:
        """Process rows in event-time order; `masks` has the bits of the symbols that each satisfies."""
        wanted = np.flatnonzero(masks)
        if not len(wanted):
            return retained.build_empty()
        events = retained.append_rows(self.kept, rows.take(pa.array(wanted)))
        masks = np.concatenate((self.build_masks(), masks[wanted]))
        keyed = retained.KeyedRows.build(events.column("match_key"), events.column("time").to_numpy())
        matches, left = self._go_over(keyed, masks[keyed.order])
        self.keep(events, masks, np.sort(keyed.order[left]))
        rows = np.array(matches, np.int64).reshape(len(matches), len(self._places))
        return retained.build_from_rows(events, keyed.order[rows])

    def _go_over(self, keyed: retained.KeyedRows, masks: np.ndarray) -> tuple[list[list[int]], list[int]]:
        """Return the rows of each match, and the rows that keep waiting, key by key."""
        times, sets = keyed.time.tolist(), masks.tolist()
        matches: list[list[int]] = []
        left: list[int] = []
        for start in np.unique(keyed.starts).tolist():
            pool = UnusedEvents(self._places, self._within_us)
            for row in range(start, int(keyed.ends[start])):
                match = pool.take(row, times[row], sets[row])
                if match:
                    matches.append(match)
            left += pool.collect_rows()
        return matches, left


class UnusedEvents:
    """The events of one key that no match has used yet (row and time), by the mask of their symbols.

    Events of one mask are interchangeable, so the oldest of them is used first. places: the bits to be filled.
    """

    def __init__(self, places: tuple[int, ...], within_us: int) -> None:
        self._places, self._within_us = places, within_us
        self._needed = Counter(places)
        self._every = int(np.bitwise_or.reduce(places))
        self._waiting: dict[int, deque[tuple[int, int]]] = {}

    def take(self, row: int, time_us: int, mask: int) -> list[int]:
        """Return the rows of the match that the event completes, if any. Call it in event-time order."""
        if mask not in self._waiting:
            self._waiting[mask] = deque()
        self._waiting[mask].append((row, time_us))
        if not self._may_complete(time_us - self._within_us):
            return []
        used = self._complete()
        return sorted(self._waiting[element].popleft()[0] for element in used.elements())

    def _may_complete(self, earliest_us: int) -> bool:
        """Discard expired events, and return whether a match may be complete.

        It may be if each symbol has an event, and there are enough events.
        """
        there, events = 0, 0
        for mask, waiting in self._waiting.items():
            while waiting and waiting[0][1] < earliest_us:
                waiting.popleft()
            if waiting:
                there |= mask
                events += len(waiting)
        return there == self._every and events >= len(self._places)

    def _complete(self) -> Counter[int]:
        """Return how many events of each mask fill all places; none if a place stays open."""
        if self._needed.keys() >= self._waiting.keys():  # each event is for one symbol only
            enough = all(len(self._waiting[bit]) >= count for bit, count in self._needed.items())
            return self._needed if enough else Counter()
        used: Counter[int] = Counter()
        holders: dict[int, Counter[int]] = {bit: Counter() for bit in self._needed}
        oldest = [(waiting[0], mask) for mask, waiting in self._waiting.items() if waiting]
        heapq.heapify(oldest)
        while oldest:
            _, mask = heapq.heappop(oldest)
            if not self._finds_place(mask, holders):
                continue  # nor would any other event of this mask, now or later
            used[mask] += 1
            if used.total() == len(self._places):
                return used
            if used[mask] < len(self._waiting[mask]):
                heapq.heappush(oldest, (self._waiting[mask][used[mask]], mask))
        return Counter()

    def _finds_place(self, mask: int, holders: dict[int, Counter[int]]) -> bool:
        """Return whether one more event finds a place, if others move to make room.

        holders: bit → how many events of each mask hold its places.
        """
        # Bit → (the bit from which an event would move there, its mask).
        moved: dict[int, tuple[int, int]] = {}
        waiting = deque(bit for bit in holders if mask & bit)
        asked = set(waiting)
        while waiting:
            bit = waiting.popleft()
            if holders[bit].total() < self._needed[bit]:
                self._move_over(bit, mask, moved, holders)
                return True
            for other in (candidate for candidate, count in holders[bit].items() if count):
                for free in (holder for holder in holders if other & holder and holder not in asked):
                    asked.add(free)
                    moved[free] = bit, other
                    waiting.append(free)
        return False

    @staticmethod
    def _move_over(bit: int, mask: int, moved: dict[int, tuple[int, int]], holders: dict[int, Counter[int]]) -> None:
        while bit in moved:
            before, other = moved[bit]
            holders[bit][other] += 1
            holders[before][other] -= 1
            bit = before
        holders[bit][mask] += 1

    def collect_rows(self) -> Iterator[int]:
        """Return the rows that wait."""
        return (row for waiting in self._waiting.values() for row, _ in waiting)
