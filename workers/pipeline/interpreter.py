"""Finds any pattern, event by event, for one key. Exact and general; what is common has quicker rooms.

Policies (CONTRACT, `match`; Röger et al. II and IX-C; SQL's AFTER MATCH SKIP PAST LAST ROW):

- *once*: several attempts are open at a time. An event goes to the one that has taken most, the oldest among
  equals, else opens a new one; it belongs to one match at most.
- *skip-past-last*: one attempt at a time, from the leftmost event that can begin; after a match the search
  goes on behind its last event, without a match at the next event.

A greedy end takes what it can get: such a match is complete when the next event can't belong to it, the
window is over, or the events are.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from controllers.expression import read, render
from workers.pipeline.attempt import Attempt, Event, Way
from workers.pipeline.automaton import Automaton
from workers.pipeline.pattern import Pattern

Taken = tuple[Event, ...]


class Machine(Protocol):
    """What looks for one pattern in the events of one key, which come in event-time order."""

    def take(self, event: Event, mask: int) -> list[Taken]:
        """One event with the bits of the symbols it satisfies; the matches that are complete with it."""
        ...

    def advance(self, now_us: int) -> list[Taken]:
        """No event before `now_us` will come: what is over, and the matches complete by that."""
        ...

    def finish(self) -> list[Taken]:
        """No event will come at all."""
        ...

    def deadline_us(self) -> int | None:
        """When the oldest that is open is over."""
        ...

    def is_empty(self) -> bool: ...

    def snapshot(self) -> Any:
        """JSON values; `restore` continues exactly there."""
        ...

    def restore(self, state: Any) -> None: ...


@dataclass
class Rules:
    """What a pattern's machines share."""

    pattern: Pattern
    automaton: Automaton = field(init=False)

    def __post_init__(self) -> None:
        expression = self.pattern.expression
        self.automaton = Automaton(expression.root, self.pattern.bits, expression.at_last)

    @property
    def relaxed(self) -> bool:
        return self.pattern.is_relaxed

    @property
    def to_the_last(self) -> bool:
        return self.pattern.expression.at_last

    def machine(self) -> Machine:
        """A new machine for one key."""
        if self.pattern.consume == "skip-past-last":
            return RowSearch(self)
        return OpenAttempts(self)

    def begin(self, event: Event, mask: int) -> Attempt | None:
        return Attempt.begin(self.automaton, event, mask, self.to_the_last)

    def concerns_all(self, mask: int) -> bool:
        """Whether an event matters to attempts that don't take it."""
        return not self.relaxed or self.to_the_last or bool(mask & self.pattern.absent_bits)

    def is_over(self, attempt: Attempt, now_us: int) -> bool:
        return now_us - attempt.first_us > self.pattern.within_us

    def write(self, way: Way) -> Any:
        """A way as JSON values."""
        return [render(self.automaton.item(way.state)), way.taken, way.through, way.turns]

    def read(self, written: Any) -> Way:
        text, taken, through, turns = written
        events = tuple(tuple(event) for event in taken)
        return Way(self.automaton.number(read(text)), events, through, tuple(turns))


class RowSearch:
    """Policy skip-past-last. rows: the events from the attempt's first on; fed: how many of them it has
    seen.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._rows: deque[tuple[Event, int]] = deque()
        self._attempt: Attempt | None = None
        self._begun = False

    def take(self, event: Event, mask: int) -> list[Taken]:
        first, self._begun = not self._begun, True
        if not self._rows and self._rules.pattern.expression.at_first and not first:
            return []
        self._rows.append((event, mask))
        return list(self._search())

    def _search(self) -> Iterator[Taken]:
        """Goes on until all rows are seen. What follows an attempt that came to nothing is looked at
        again.
        """
        while True:
            seen = self._attempt.seen if self._attempt else 0
            if seen == len(self._rows):
                return
            event, mask = self._rows[seen]
            if self._attempt is None:
                self._attempt = self._rules.begin(event, mask)
                if self._attempt is None:
                    self._drop(1)
                    continue
            elif self._rules.is_over(self._attempt, event[0]):
                yield from self._conclude()
                continue
            else:
                rules = self._rules
                self._attempt.take(rules.automaton, event, mask, rules.relaxed, rules.to_the_last)
            if self._attempt.is_decided:
                yield from self._conclude()

    def _conclude(self) -> Iterator[Taken]:
        assert self._attempt is not None
        way = self._attempt.closed(self._rules.automaton)
        self._attempt = None
        self._drop(way.through if way else 1)
        if way and way.taken:
            yield way.taken

    def _drop(self, rows: int) -> None:
        for _ in range(rows):
            self._rows.popleft()
        if self._rules.pattern.expression.at_first:
            self._rows.clear()  # only the first event of the key may begin

    def advance(self, now_us: int) -> list[Taken]:
        found: list[Taken] = []
        while self._attempt and self._rules.is_over(self._attempt, now_us):
            found += self._conclude()
            found += self._search()
        return found

    def finish(self) -> list[Taken]:
        found: list[Taken] = []
        while self._attempt:
            if self._rules.to_the_last:
                self._attempt.ended = self._attempt.closed(self._rules.automaton, to_the_last=True)
                self._attempt.ways = []
            found += self._conclude()
            found += self._search()
        return found

    def deadline_us(self) -> int | None:
        return self._attempt.first_us + self._rules.pattern.within_us if self._attempt else None

    def is_empty(self) -> bool:
        return not self._rows and not self._rules.pattern.expression.at_first

    def snapshot(self) -> Any:
        return [[[*row] for row in self._rows], self._begun]

    def restore(self, state: Any) -> None:
        rows, self._begun = state
        self._rows = deque((tuple(event), mask) for event, mask in rows)
        for _ in self._search():
            raise AssertionError("rows that are kept back hold no decided match")


class OpenAttempts:
    """Policy once. order: the numbers of the open attempts, oldest first, with some that are open no more.
    alike: the numbers of those that have taken as many events and are in the same states, a heap each: all
    of them can take the same events, so only the oldest is looked at.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._open: dict[int, Attempt] = {}
        self._order: deque[int] = deque()
        self._alike: dict[Likeness, list[int]] = {}
        self._next = 0
        self._begun = False

    def take(self, event: Event, mask: int) -> list[Taken]:
        rules, found = self._rules, self.advance(event[0])
        number = self._chosen(mask)
        attempt = None if number is None else self._taken_out(number)
        if rules.concerns_all(mask):
            found += self._passed_over(mask)
        if attempt:
            attempt.take(rules.automaton, event, mask, rules.relaxed, rules.to_the_last)
        elif not (rules.pattern.expression.at_first and self._begun):
            attempt, number = rules.begin(event, mask), None
        self._begun = True
        return found + (self._put(attempt, number) if attempt else [])

    def _chosen(self, mask: int) -> int | None:
        """The most advanced that can take it, the oldest among equals."""
        able = [
            (-likeness[0], self._oldest(likeness))
            for likeness in self._alike
            if self._open[self._oldest(likeness)].can_take(self._rules.automaton, mask)
        ]
        return min(able)[1] if able else None

    def _oldest(self, likeness: "Likeness") -> int:
        return self._alike[likeness][0]

    def _taken_out(self, number: int) -> Attempt:
        """No longer open; it is the oldest of those that are like it."""
        attempt = self._open.pop(number)
        alike = self._alike[_likeness(attempt)]
        heapq.heappop(alike)
        if not alike:
            del self._alike[_likeness(attempt)]
        return attempt

    def _put(self, attempt: Attempt, number: int | None = None) -> list[Taken]:
        """Open again, or (no number) newly; the match when it is decided."""
        if attempt.is_decided:
            return self._match(attempt)
        if number is None:
            number, self._next = self._next, self._next + 1
            self._order.append(number)
        self._open[number] = attempt
        heapq.heappush(self._alike.setdefault(_likeness(attempt), []), number)
        return []

    def _match(self, attempt: Attempt, to_the_last: bool = False) -> list[Taken]:
        way = attempt.closed(self._rules.automaton, to_the_last)
        return [way.taken] if way and way.taken else []

    def _passed_over(self, mask: int) -> list[Taken]:
        """All that are open see an event they don't take."""
        attempts, self._open, self._alike = sorted(self._open.items()), {}, {}
        found: list[Taken] = []
        for number, attempt in attempts:
            attempt.pass_over(self._rules.automaton, mask, self._rules.relaxed)
            found += self._put(attempt, number)
        return found

    def advance(self, now_us: int) -> list[Taken]:
        found: list[Taken] = []
        while (oldest := self._first()) is not None and self._rules.is_over(self._open[oldest], now_us):
            # Of those alike it is the oldest, too.
            found += self._match(self._taken_out(oldest))
        return found

    def _first(self) -> int | None:
        while self._order and self._order[0] not in self._open:
            self._order.popleft()
        return self._order[0] if self._order else None

    def finish(self) -> list[Taken]:
        attempts = [attempt for _, attempt in sorted(self._open.items())]
        self._open, self._alike = {}, {}
        return [taken for attempt in attempts for taken in self._match(attempt, self._rules.to_the_last)]

    def deadline_us(self) -> int | None:
        oldest = self._first()
        return None if oldest is None else self._open[oldest].first_us + self._rules.pattern.within_us

    def is_empty(self) -> bool:
        return not self._open and not self._rules.pattern.expression.at_first

    def snapshot(self) -> Any:
        return [[self._kept(attempt) for _, attempt in sorted(self._open.items())], self._begun]

    def _kept(self, attempt: Attempt) -> Any:
        ways = [self._rules.write(way) for way in attempt.ways]
        ended = attempt.ended and self._rules.write(attempt.ended)
        return [attempt.first_us, ways, ended, attempt.seen, attempt.count]

    def restore(self, state: Any) -> None:
        attempts, self._begun = state
        for first_us, ways, ended, seen, count in attempts:
            open_ways = [self._rules.read(way) for way in ways]
            ended_way = self._rules.read(ended) if ended else None
            self._put(Attempt(first_us, open_ways, ended_way, seen, count))


Likeness = tuple[int, ...]


def _likeness(attempt: Attempt) -> Likeness:
    return attempt.count, *(way.state for way in attempt.ways)
