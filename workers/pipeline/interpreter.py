"""Finds any pattern, event by event, for one key. Exact and general; what is common has quicker rooms.

Policies (CONTRACT, `match`; Röger et al. II and IX-C; SQL's AFTER MATCH SKIP PAST LAST ROW):

- *once*: several attempts are open at a time. An event goes to the one that has taken most, the oldest among
  equals, else opens a new one; it belongs to one match at most.
- *skip-past-last*: one attempt at a time, from the leftmost event that can begin; after a match the search
  goes on behind its last event, without a match at the next event.

A greedy end takes what it can get: such a match is complete when the next event can't belong to it, the
window is over, or the events are.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from controllers.expression import read, render
from workers.pipeline.attempt import Attempt, Event, Way
from workers.pipeline.automaton import Automaton
from workers.pipeline.pattern import Pattern
from workers.pipeline.pool import Pool

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
        if self.pattern.needed and self.relaxed:
            return Pool(self.pattern)
        return OpenAttempts(self)

    def begin(self, event: Event, mask: int) -> Attempt | None:
        return Attempt.begin(self.automaton, event, mask, self.to_the_last)

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
    """Policy once: the open attempts, oldest first."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._attempts: list[Attempt] = []
        self._begun = False

    def take(self, event: Event, mask: int) -> list[Taken]:
        rules, found = self._rules, self.advance(event[0])
        able = [attempt for attempt in self._attempts if attempt.can_take(rules.automaton, mask)]
        chosen = max(
            able, key=lambda attempt: attempt.count, default=None
        )  # the first of several is the oldest
        for attempt in self._attempts:
            if attempt is chosen:
                attempt.take(rules.automaton, event, mask, rules.relaxed, rules.to_the_last)
            else:
                attempt.pass_over(rules.automaton, mask, rules.relaxed)
        if chosen is None and not (rules.pattern.expression.at_first and self._begun):
            opened = rules.begin(event, mask)
            self._attempts += [opened] if opened else []
        self._begun = True
        return found + self._taken_out(lambda attempt: attempt.is_decided)

    def _taken_out(self, is_done: Callable[[Attempt], bool], to_the_last: bool = False) -> list[Taken]:
        done = [attempt for attempt in self._attempts if is_done(attempt)]
        if done:
            self._attempts = [attempt for attempt in self._attempts if not is_done(attempt)]
        ways: list[Way | None] = [attempt.closed(self._rules.automaton, to_the_last) for attempt in done]
        return [way.taken for way in ways if way and way.taken]

    def advance(self, now_us: int) -> list[Taken]:
        if not self._attempts or not self._rules.is_over(self._attempts[0], now_us):
            return []
        return self._taken_out(lambda attempt: self._rules.is_over(attempt, now_us))

    def finish(self) -> list[Taken]:
        return self._taken_out(lambda attempt: True, self._rules.to_the_last)

    def deadline_us(self) -> int | None:
        return self._attempts[0].first_us + self._rules.pattern.within_us if self._attempts else None

    def is_empty(self) -> bool:
        return not self._attempts and not self._rules.pattern.expression.at_first

    def snapshot(self) -> Any:
        return [[self._kept(attempt) for attempt in self._attempts], self._begun]

    def _kept(self, attempt: Attempt) -> Any:
        ways = [self._rules.write(way) for way in attempt.ways]
        ended = attempt.ended and self._rules.write(attempt.ended)
        return [attempt.first_us, ways, ended, attempt.seen, attempt.count]

    def restore(self, state: Any) -> None:
        attempts, self._begun = state
        for first_us, ways, ended, seen, count in attempts:
            open_ways = [self._rules.read(way) for way in ways]
            ended_way = self._rules.read(ended) if ended else None
            self._attempts.append(Attempt(first_us, open_ways, ended_way, seen, count))
