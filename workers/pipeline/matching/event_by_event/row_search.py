"""Policy skip-past-last, for any pattern (SQL's AFTER MATCH SKIP PAST LAST ROW): one attempt at a time.

It starts from the leftmost event that can start a match. After a match the search continues after its last event, and
without a match at the next event. A greedy end takes what it can: such a match is complete when the next event can't
belong to it, the window is over, or there are no more events.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from workers.pipeline.matching.event_by_event.attempt import Attempt, Event
from workers.pipeline.matching.event_by_event.match_automaton import AutomatonRules, Taken

_COMPACT_ROWS = 1_000


class RowSearch:
    """Search row by row.

    It keeps the events from the first that may still start a match, and counts how many of them satisfy each symbol
    that a match needs. While one of the symbols is missing, nothing is attempted: an attempt would have to wait, and be
    repeated when it fails.
    """

    def __init__(self, rules: AutomatonRules) -> None:
        self._rules = rules
        self._rows: list[tuple[Event, int]] = []
        self._head = 0
        self._there: Counter[int] = Counter()
        self._attempt: Attempt | None = None
        self._begun = False

    def take(self, event: Event, mask: int) -> list[Taken]:
        matches = self.advance(event[0])
        may_begin = not (self._begun and self._rules.pattern.expression.at_first)
        self._begun = True
        if may_begin or self._count_rows():
            self._append(event, mask)
        return matches + list(self._search())

    def _count_rows(self) -> int:
        return len(self._rows) - self._head

    def _append(self, event: Event, mask: int) -> None:
        self._rows.append((event, mask))
        self._there.update(bit for bit in self._rules.needed if mask & bit)

    def _search(self) -> Iterator[Taken]:
        """Search until all rows are seen. The rows after the start of a failed attempt are checked again."""
        rules = self._rules
        while self._attempt or self._begins():
            assert self._attempt is not None
            if self._attempt.is_decided:
                yield from self._conclude()
                continue
            if self._attempt.seen == self._count_rows():
                return
            event, mask = self._rows[self._head + self._attempt.seen]
            if rules.is_over(self._attempt.first_us, event[0]):
                yield from self._conclude()
            else:
                self._attempt.take(rules.automaton, event, mask, rules.relaxed, rules.to_the_last)

    def _begins(self) -> bool:
        """Start an attempt from the first row that can start one, unless a needed symbol is missing.

        Returns whether it did.
        """
        while self._count_rows():
            event, mask = self._rows[self._head]
            attempt = self._rules.begin(event, mask)
            if attempt:
                self._attempt = None if self._is_lacking() else attempt
                return self._attempt is not None
            self._drop(1)
        return False

    def _is_lacking(self) -> bool:
        needed = self._rules.needed
        return self._rules.relaxed and any(self._there[bit] < count for bit, count in needed.items())

    def _conclude(self) -> Iterator[Taken]:
        assert self._attempt is not None
        branch = self._attempt.close(self._rules.automaton)
        self._attempt = None
        self._drop(branch.through if branch else 1)
        if branch and branch.taken:
            yield branch.taken

    def _drop(self, rows: int) -> None:
        if self._rules.pattern.expression.at_first:
            rows = self._count_rows()  # only the first event of the key may start
        for _, mask in self._rows[self._head : self._head + rows]:
            self._there.subtract(bit for bit in self._rules.needed if mask & bit)
        self._head += rows
        if self._head > max(_COMPACT_ROWS, len(self._rows) // 2):
            self._rows, self._head = self._rows[self._head :], 0

    def advance(self, now_us: int) -> list[Taken]:
        matches: list[Taken] = []
        while self._count_rows() and self._rules.is_over(self._rows[self._head][0][0], now_us):
            if self._attempt:
                matches += self._conclude()
            else:
                self._drop(1)
            matches += self._search()
        return matches

    def finish(self) -> list[Taken]:
        matches: list[Taken] = []
        while self._attempt:
            if self._rules.to_the_last:
                self._attempt.ended = self._attempt.close(self._rules.automaton, to_the_last=True)
            matches += self._conclude()
            matches += self._search()
        return matches

    def compute_deadline_us(self) -> int | None:
        return self._rows[self._head][0][0] + self._rules.pattern.within_us if self._count_rows() else None

    def is_empty(self) -> bool:
        return not self._count_rows() and not self._rules.pattern.expression.at_first

    def snapshot(self) -> Any:
        return [[[*row] for row in self._rows[self._head :]], self._begun]

    def restore(self, state: Any) -> None:
        rows, self._begun = state
        for event, mask in rows:
            self._append(tuple(event), mask)
        for _ in self._search():
            raise AssertionError("retained rows contain no decided match")
