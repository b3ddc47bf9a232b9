"""AND of single events, relaxed, policy once: the oldest unexpired event of each needed symbol, as often as
it is needed (CONTRACT, `match`).

An event that satisfies several symbols fills the place that leaves the others to others: places are filled
by augmenting paths, the oldest events first; a symbol's places are alike, and so are a mask's events, so a
path is no longer than there are symbols. The sets of events that find places are a transversal matroid, so
the first complete set found is that of the oldest events.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from workers.pipeline.matching.retained.keyed_rows import KeyedRows, append_rows
from workers.pipeline.matching.retained.matches import Matches, build_empty, build_from_rows
from workers.pipeline.matching.retained.retained_rows import RetainedRows
from workers.pipeline.patterns.pattern import Pattern


class ConjunctionOnce(RetainedRows):
    """kept: the events that no match has used yet, with the symbols they satisfy."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__(pattern.within_us)
        self._places = tuple(pattern.bits[symbol] for symbol in pattern.needed or ())
        self.begins = int(np.bitwise_or.reduce(self._places))  # any of its events

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> Matches:
        """Rows in event-time order, `masks` with the bits of the symbols each satisfies."""
        wanted = np.flatnonzero(masks)
        if not len(wanted):
            return build_empty()
        events = append_rows(self.kept, rows.take(pa.array(wanted)))
        masks = np.concatenate((self.build_masks(), masks[wanted]))
        keyed = KeyedRows.build(events.column("match_key"), events.column("time").to_numpy())
        matches, left = self._go_over(keyed, masks[keyed.order])
        self.keep(events, masks, np.sort(keyed.order[left]))
        rows = np.array(matches, np.int64).reshape(len(matches), len(self._places))
        return build_from_rows(events, keyed.order[rows])

    def _go_over(self, keyed: KeyedRows, masks: np.ndarray) -> tuple[list[list[int]], list[int]]:
        """(the rows of each match, the rows that wait on), key by key."""
        times, sets = keyed.time.tolist(), masks.tolist()
        matches: list[list[int]] = []
        left: list[int] = []
        for start in np.unique(keyed.starts).tolist():
            pool = UnusedEvents(self._places, self._within_us)
            for row in range(start, int(keyed.ends[start])):
                match = pool.take(row, times[row], sets[row])
                if match:
                    matches.append(match)
            left += pool.rows()
        return matches, left


class UnusedEvents:
    """Of one key, the events that no match has used yet (row and time), by the mask of the symbols they
    satisfy: those of one mask are alike, so the oldest of them comes first. places: the bits to be filled.
    """

    def __init__(self, places: tuple[int, ...], within_us: int) -> None:
        self._places, self._within_us = places, within_us
        self._needed = Counter(places)
        self._every = int(np.bitwise_or.reduce(places))
        self._waiting: dict[int, deque[tuple[int, int]]] = {}

    def take(self, row: int, time_us: int, mask: int) -> list[int]:
        """The rows of the match that the event completes, if any; rows come in event-time order."""
        if mask not in self._waiting:
            self._waiting[mask] = deque()
        self._waiting[mask].append((row, time_us))
        if not self._may_complete(time_us - self._within_us):
            return []
        used = self._complete()
        return sorted(self._waiting[element].popleft()[0] for element in used.elements())

    def _may_complete(self, earliest_us: int) -> bool:
        """Discards what has expired; whether there is an event for each symbol, and enough of them."""
        there, events = 0, 0
        for mask, waiting in self._waiting.items():
            while waiting and waiting[0][1] < earliest_us:
                waiting.popleft()
            if waiting:
                there |= mask
                events += len(waiting)
        return there == self._every and events >= len(self._places)

    def _complete(self) -> Counter[int]:
        """How many events of each mask fill all places; none while a place stays open."""
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
        """Whether one more event finds one, others moving over for it. holders: bit → how many events of each
        mask hold its places.
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
            for other in (each for each, count in holders[bit].items() if count):
                for free in (holder for holder in holders if other & holder and holder not in asked):
                    asked.add(free)
                    moved[free] = bit, other
                    waiting.append(free)
        return False

    @staticmethod
    def _move_over(
        bit: int, mask: int, moved: dict[int, tuple[int, int]], holders: dict[int, Counter[int]]
    ) -> None:
        while bit in moved:
            before, other = moved[bit]
            holders[bit][other] += 1
            holders[before][other] -= 1
            bit = before
        holders[bit][mask] += 1

    def rows(self) -> Iterator[int]:
        """Those that wait."""
        return (row for waiting in self._waiting.values() for row, _ in waiting)
