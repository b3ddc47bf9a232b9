"""Policy once, for any pattern (CONTRACT, `match`; Röger et al.

II and IX-C): several attempts are open at a time.

An event goes to the attempt that has taken most events, and to the oldest among equals; otherwise it opens a new one.
It belongs to one match at most. A greedy end takes what it can: such a match is complete when the next event can't
belong to it, the window is over, or there are no more events.
"""

import heapq
from collections import deque
from typing import Any

from workers.pipeline.matching.event_by_event.attempt import Attempt, Event
from workers.pipeline.matching.event_by_event.match_automaton import AutomatonRules, Taken

Likeness = tuple[int, ...]  # events taken, states


class OpenAttempts:
    """Policy once.

    It keeps the numbers of the open attempts, oldest first, including some that are no longer open. Attempts that have
    taken equally many events and are in the same states share a heap of numbers: all of them can take the same events,
    so only the oldest is checked.
    """

    def __init__(self, rules: AutomatonRules) -> None:
        self._rules = rules
        self._open: dict[int, Attempt] = {}
        self._order: deque[int] = deque()
        self._alike: dict[Likeness, list[int]] = {}
        self._next = 0
        self._begun = False

    def take(self, event: Event, mask: int) -> list[Taken]:
        rules, matches = self._rules, self.advance(event[0])
        number = self._choose_attempt(mask)
        attempt = None if number is None else self._remove_attempt(number)
        if rules.is_relevant_to_all(mask):
            matches += self._pass_over(mask)
        if attempt:
            attempt.take(rules.automaton, event, mask, rules.relaxed, rules.to_the_last)
        elif not (rules.pattern.expression.at_first and self._begun):
            attempt, number = rules.begin(event, mask), None
        self._begun = True
        return matches + (self._put(attempt, number) if attempt else [])

    def _choose_attempt(self, mask: int) -> int | None:
        """Return the most advanced attempt that can take the event, the oldest among equals."""
        able = [
            (-likeness[0], self._get_oldest_attempt(likeness))
            for likeness in self._alike
            if self._open[self._get_oldest_attempt(likeness)].can_take(self._rules.automaton, mask)
        ]
        return min(able)[1] if able else None

    def _get_oldest_attempt(self, likeness: Likeness) -> int:
        return self._alike[likeness][0]

    def _remove_attempt(self, number: int) -> Attempt:
        """Remove an open attempt, which is the oldest of its heap."""
        attempt = self._open.pop(number)
        alike = self._alike[_compute_likeness(attempt)]
        heapq.heappop(alike)
        if not alike:
            del self._alike[_compute_likeness(attempt)]
        return attempt

    def _put(self, attempt: Attempt, number: int | None = None) -> list[Taken]:
        """Add an attempt, new if it has no number. Returns the match if it is decided."""
        if attempt.is_decided:
            return self._match(attempt)
        if number is None:
            number, self._next = self._next, self._next + 1
            self._order.append(number)
        self._open[number] = attempt
        heapq.heappush(self._alike.setdefault(_compute_likeness(attempt), []), number)
        return []

    def _match(self, attempt: Attempt, to_the_last: bool = False) -> list[Taken]:
        branch = attempt.close(self._rules.automaton, to_the_last)
        return [branch.taken] if branch and branch.taken else []

    def _pass_over(self, mask: int) -> list[Taken]:
        """Show an event that they don't take to all open attempts."""
        concerned = [likeness for likeness in self._alike if self._is_changed(likeness, mask)]
        numbers = sorted(number for likeness in concerned for number in self._alike.pop(likeness))
        attempts = [(number, self._open.pop(number)) for number in numbers]
        matches: list[Taken] = []
        for number, attempt in attempts:
            attempt.pass_over(self._rules.automaton, mask, self._rules.relaxed)
            matches += self._put(attempt, number)
        return matches

    def _is_changed(self, likeness: Likeness, mask: int) -> bool:
        """Return whether an event that no attempt takes makes a difference to those attempts."""
        if not self._rules.relaxed or self._rules.to_the_last:
            return True
        return any(self._rules.automaton.pass_over(state, mask) != state for state in likeness[1:])

    def advance(self, now_us: int) -> list[Taken]:
        matches: list[Taken] = []
        while (oldest := self._find_first_usable()) is not None and self._rules.is_over(
            self._open[oldest].first_us, now_us
        ):
            # It is also the oldest of its heap.
            matches += self._match(self._remove_attempt(oldest))
        return matches

    def _find_first_usable(self) -> int | None:
        while self._order and self._order[0] not in self._open:
            self._order.popleft()
        return self._order[0] if self._order else None

    def finish(self) -> list[Taken]:
        attempts = [attempt for _, attempt in sorted(self._open.items())]
        self._open, self._alike = {}, {}
        return [taken for attempt in attempts for taken in self._match(attempt, self._rules.to_the_last)]

    def compute_deadline_us(self) -> int | None:
        oldest = self._find_first_usable()
        return None if oldest is None else self._open[oldest].first_us + self._rules.pattern.within_us

    def is_empty(self) -> bool:
        return not self._open and not self._rules.pattern.expression.at_first

    def snapshot(self) -> Any:
        return [[self._keep_attempt(attempt) for _, attempt in sorted(self._open.items())], self._begun]

    def _keep_attempt(self, attempt: Attempt) -> Any:
        branches = [self._rules.write(branch) for branch in attempt.branches]
        ended = attempt.ended and self._rules.write(attempt.ended)
        return [attempt.first_us, branches, ended, attempt.seen, attempt.count]

    def restore(self, state: Any) -> None:
        attempts, self._begun = state
        for first_us, branches, ended, seen, count in attempts:
            open_ways = [self._rules.read(branch) for branch in branches]
            ended_way = self._rules.read(ended) if ended else None
            self._put(Attempt(first_us, open_ways, ended_way, seen, count))


def _compute_likeness(attempt: Attempt) -> Likeness:
    return attempt.count, *(branch.state for branch in attempt.branches)
