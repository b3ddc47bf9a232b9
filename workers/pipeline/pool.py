"""AND of single events under policy once: the oldest unexpired event of each needed symbol, as often as it is
needed (CONTRACT, `match`).

An event that satisfies several symbols fills the place that leaves the others to others: places are filled by
augmenting paths (Kuhn), the oldest events first. The sets of events that find places are a transversal
matroid, so the first complete set found is that of the oldest events.
"""

import heapq
from collections import Counter, deque
from typing import Any

from workers.pipeline.attempt import Event
from workers.pipeline.pattern import Pattern

Numbered = tuple[int, Event]


class Pool:
    """The events of one key that no match has used yet, by the mask of the symbols they satisfy: those of one
    mask are all alike, so the oldest of them comes first. number: in the order of arrival.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._within_us = pattern.within_us
        self._places = tuple(pattern.bits[symbol] for symbol in pattern.needed or ())
        self._waiting: dict[int, deque[Numbered]] = {}
        self._number = 0

    def take(self, event: Event, mask: int) -> list[tuple[Event, ...]]:
        self.advance(event[0])
        if not any(mask & bit for bit in self._places):
            return []
        self._number += 1
        self._waiting.setdefault(mask, deque()).append((self._number, event))
        used = self._complete()
        events = sorted(self._waiting[each].popleft() for each in used.elements())
        return [tuple(event for _, event in events)] if events else []

    def _complete(self) -> Counter[int]:
        """How many events of each mask fill all places; none while a place stays open."""
        used: Counter[int] = Counter()
        holders: dict[int, int] = {}
        oldest = [(waiting[0][0], mask) for mask, waiting in self._waiting.items() if waiting]
        heapq.heapify(oldest)
        while oldest:
            _, mask = heapq.heappop(oldest)
            if not self._finds_place(mask, holders, set()):
                continue  # nor would any other event of this mask, now or later
            used[mask] += 1
            if len(holders) == len(self._places):
                return used
            if used[mask] < len(self._waiting[mask]):
                heapq.heappush(oldest, (self._waiting[mask][used[mask]][0], mask))
        return Counter()

    def _finds_place(self, mask: int, holders: dict[int, int], asked: set[int]) -> bool:
        for place, bit in enumerate(self._places):
            if mask & bit and place not in asked:
                asked.add(place)
                if place not in holders or self._finds_place(holders[place], holders, asked):
                    holders[place] = mask
                    return True
        return False

    def advance(self, now_us: int) -> list[tuple[Event, ...]]:
        for waiting in self._waiting.values():
            while waiting and now_us - waiting[0][1][0] > self._within_us:
                waiting.popleft()
        return []

    def finish(self) -> list[tuple[Event, ...]]:
        return []

    def deadline_us(self) -> int | None:
        firsts = [waiting[0][1][0] for waiting in self._waiting.values() if waiting]
        return min(firsts) + self._within_us if firsts else None

    def is_empty(self) -> bool:
        return not any(self._waiting.values())

    def snapshot(self) -> Any:
        return [
            [mask, [[*numbered] for numbered in waiting]]
            for mask, waiting in self._waiting.items()
            if waiting
        ]

    def restore(self, state: Any) -> None:
        for mask, waiting in state:
            self._waiting[mask] = deque((number, tuple(event)) for number, event in waiting)
            self._number = max(self._number, *(number for number, _ in self._waiting[mask]))
