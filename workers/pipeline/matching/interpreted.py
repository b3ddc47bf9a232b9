"""Any pattern over batches of events: an automaton per key, processed event by event."""

import heapq
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from workers.pipeline.matching.attempt import Attempt, AutomatonRules, Branch, Event, MatchAutomaton
from workers.pipeline.matching.retained import EVENT, KEYED, GroupStates, Matches, build_empty, format_read_name
from workers.pipeline.matching.search_limit import LimitedRules, SearchLimit
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.scalars import list_values

Likeness = tuple[Any, ...]  # number of events taken, states, and the bound values that their conditions read


class OpenAttempts:
    """Policy once.

    It keeps the numbers of the open attempts, oldest first, including some that are no longer open. Attempts share a
    heap of numbers if they have taken equally many events and can take the same events, so only the oldest attempt is
    checked. Such attempts are in the same states, and their conditions read equal values.
    """

    def __init__(self, rules: AutomatonRules) -> None:
        self._rules = rules
        self._open: dict[int, Attempt] = {}
        self._order: deque[int] = deque()
        self._alike: dict[Likeness, list[int]] = {}
        self._next = 0
        self._begun = False

    def take(self, event: Event, mask: int) -> list[Branch]:
        rules, matches = self._rules, self.advance(event[0])
        number = self._choose_attempt(event, mask)
        attempt = None if number is None else self._remove_attempt(number)
        if rules.is_relevant_to_all(mask):
            matches += self._pass_over(event, mask)
        if attempt:
            attempt.take(rules, event, mask, rules.relaxed)
        elif not (rules.pattern.expression.at_first and self._begun):
            attempt, number = rules.begin(event, mask), None
        self._begun = True
        return matches + (self._put(attempt, number) if attempt else [])

    def _choose_attempt(self, event: Event, mask: int) -> int | None:
        """Return the most advanced attempt that can take the event, the oldest among equals."""
        candidates = sorted((-likeness[0], numbers[0]) for likeness, numbers in self._alike.items())
        able = (number for _, number in candidates if self._open[number].can_take(self._rules, event, mask))
        return next(able, None)

    def _remove_attempt(self, number: int) -> Attempt:
        """Remove an open attempt, which is the oldest of its heap."""
        attempt = self._open.pop(number)
        likeness = self._compute_likeness(attempt)
        alike = self._alike[likeness]
        heapq.heappop(alike)
        if not alike:
            del self._alike[likeness]
        return attempt

    def _put(self, attempt: Attempt, number: int | None = None) -> list[Branch]:
        """Add an attempt, new if it has no number. Returns the match if it is decided."""
        if attempt.is_decided:
            return self._match(attempt)
        if number is None:
            number, self._next = self._next, self._next + 1
            self._order.append(number)
        self._open[number] = attempt
        heapq.heappush(self._alike.setdefault(self._compute_likeness(attempt), []), number)
        return []

    def _compute_likeness(self, attempt: Attempt) -> Likeness:
        return attempt.count, *(self._rules.compute_likeness(branch) for branch in attempt.branches)

    def _match(self, attempt: Attempt, to_the_last: bool = False) -> list[Branch]:
        branch = attempt.close(self._rules, to_the_last)
        return [branch] if branch and branch.taken else []

    def _pass_over(self, event: Event, mask: int) -> list[Branch]:
        """Show an event that they don't take to all open attempts."""
        concerned = [likeness for likeness in self._alike if self._is_changed(likeness, event, mask)]
        numbers = sorted(number for likeness in concerned for number in self._alike.pop(likeness))
        attempts = [(number, self._open.pop(number)) for number in numbers]
        matches: list[Branch] = []
        for number, attempt in attempts:
            attempt.pass_over(self._rules, event, mask)
            matches += self._put(attempt, number)
        return matches

    def _is_changed(self, likeness: Likeness, event: Event, mask: int) -> bool:
        """Return whether an event that no attempt takes makes a difference to those attempts."""
        if not self._rules.relaxed or self._rules.to_the_last:
            return True
        branches = self._open[self._alike[likeness][0]].branches
        return any(self._rules.pass_over(branch, event, mask) != branch.state for branch in branches)

    def advance(self, now_us: int) -> list[Branch]:
        matches: list[Branch] = []
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

    def finish(self) -> list[Branch]:
        attempts = [attempt for _, attempt in sorted(self._open.items())]
        self._open, self._alike = {}, {}
        return [match for attempt in attempts for match in self._match(attempt, self._rules.to_the_last)]

    def compute_deadline_us(self) -> int | None:
        oldest = self._find_first_usable()
        return None if oldest is None else self._open[oldest].first_us + self._rules.pattern.within_us

    def is_empty(self) -> bool:
        return not self._open and not self._rules.pattern.expression.at_first

    def snapshot(self) -> list[Any]:
        return [[self._keep_attempt(attempt) for _, attempt in sorted(self._open.items())], self._begun]

    def _keep_attempt(self, attempt: Attempt) -> list[Any]:
        branches = [self._rules.write(branch) for branch in attempt.branches]
        ended = attempt.ended and self._rules.write(attempt.ended)
        return [attempt.first_us, branches, ended, attempt.seen, attempt.count]

    def restore(self, state: list[Any]) -> None:
        attempts, self._begun = state
        for first_us, branches, ended, seen, count in attempts:
            open_ways = [self._rules.read(branch) for branch in branches]
            ended_way = self._rules.read(ended) if ended else None
            self._put(Attempt(first_us, open_ways, ended_way, seen, count))


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

    def take(self, event: Event, mask: int) -> list[Branch]:
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

    def _search(self) -> Iterator[Branch]:
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
                self._attempt.take(rules, event, mask, rules.relaxed)

    def _begins(self) -> bool:
        """Start an attempt from the first row that can start one; return False if a needed symbol is missing."""
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

    def _conclude(self) -> Iterator[Branch]:
        assert self._attempt is not None
        branch = self._attempt.close(self._rules)
        self._attempt = None
        self._drop(branch.through if branch else 1)
        if branch and branch.taken:
            yield branch

    def _drop(self, rows: int) -> None:
        if self._rules.pattern.expression.at_first:
            rows = self._count_rows()  # only the first event of the key may start
        for _, mask in self._rows[self._head : self._head + rows]:
            self._there.subtract(bit for bit in self._rules.needed if mask & bit)
        self._head += rows
        if self._head > max(_COMPACT_ROWS, len(self._rows) // 2):
            self._rows, self._head = self._rows[self._head :], 0

    def advance(self, now_us: int) -> list[Branch]:
        matches: list[Branch] = []
        while self._count_rows() and self._rules.is_over(self._rows[self._head][0][0], now_us):
            if self._attempt:
                matches += self._conclude()
            else:
                self._drop(1)
            matches += self._search()
        return matches

    def finish(self) -> list[Branch]:
        matches: list[Branch] = []
        while self._attempt:
            if self._rules.to_the_last:
                self._attempt.ended = self._attempt.close(self._rules, to_the_last=True)
            matches += self._conclude()
            matches += self._search()
        return matches

    def compute_deadline_us(self) -> int | None:
        return self._rows[self._head][0][0] + self._rules.pattern.within_us if self._count_rows() else None

    def is_empty(self) -> bool:
        return not self._count_rows() and not self._rules.pattern.expression.at_first

    def snapshot(self) -> list[Any]:
        rows = self._rows[self._head :]
        return [[[self._rules.write_event(event), mask] for event, mask in rows], self._begun]

    def restore(self, state: list[Any]) -> None:
        rows, self._begun = state
        for event, mask in rows:
            self._append(self._rules.read_event(event), mask)
        for _ in self._search():
            raise AssertionError("retained rows contain no decided match")


def create_match_automaton(rules: AutomatonRules) -> MatchAutomaton:
    """Return the automaton of one key for the policy of the pattern."""
    return RowSearch(rules) if rules.pattern.consume == "skip-past-last" else OpenAttempts(rules)


class FoundMatches(NamedTuple):
    key: str
    group: int
    branch: Branch


class AutomatonMatcher:
    """Matcher for any pattern. It has one automaton per key, with the key group it belongs to.

    Expired automata are closed in time order over all keys, so that matches come in the same order however the events
    are cut into batches.
    """

    def __init__(self, pattern: Pattern, refuses_excess: bool = False, limit: SearchLimit | None = None) -> None:
        self._rules = LimitedRules(pattern, refuses_excess, limit) if limit else AutomatonRules(pattern, refuses_excess)
        self._automata: dict[str, tuple[MatchAutomaton, int]] = {}
        self._deadlines: list[tuple[int, str]] = []

    @property
    def begins(self) -> int:
        automaton = self._rules.automaton
        return automaton.get_state(automaton.start).wanted

    @property
    def excess(self) -> int:
        """Return how often an attempt dropped branches because it had too many."""
        return self._rules.excess

    @property
    def open_rows(self) -> None:
        """Return None: this matcher searches event by event."""

    def has_open(self, keys: pa.Array) -> np.ndarray:
        """Return, per key (text, distinct), whether it has an active automaton."""
        machines = (self._automata.get(key) for key in keys.to_pylist())
        return np.array([pair is not None and not pair[0].is_empty() for pair in machines], bool)

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> Matches:
        if not self._rules.pattern.needs_every_event and not masks.all():
            wanted = np.flatnonzero(masks)
            rows, masks = rows.take(pa.array(wanted)), masks[wanted]
        events = zip(*self._list_columns(rows), strict=True)
        keys, groups = rows.column("match_key").to_pylist(), rows.column("group").to_pylist()
        matches: list[FoundMatches] = []
        for event, mask, key, group in zip(events, masks.tolist(), keys, groups, strict=True):
            # No event of another key says which event is the last of a key.
            if self._deadlines and self._deadlines[0][0] < event[0] and not self._rules.to_the_last:
                matches += self._advance(event[0])
            matches += self._take(event, mask, key, group)
        return self._matches_of(matches)

    def _list_columns(self, rows: pa.RecordBatch) -> list[list[Any]]:
        """Return the values of an event, column by column."""
        columns = [rows.column(name).to_pylist() for name in EVENT.names]
        plan = self._rules.pattern.bindings
        if plan is None:
            return columns
        values = [list_values(rows.column(format_read_name(name))) for name in plan.names]
        return [*columns, list(zip(*values, strict=True)) if values else [()] * rows.num_rows]

    def _take(self, event: Event, mask: int, key: str, group: int) -> list[FoundMatches]:
        if key not in self._automata:
            self._automata[key] = create_match_automaton(self._rules), group
        machine = self._automata[key][0]
        before_us = machine.compute_deadline_us()
        branches = machine.take(event, mask)
        self._watch(key, before_us)
        return [FoundMatches(key, group, branch) for branch in branches]

    def _watch(self, key: str, before_us: int | None) -> None:
        deadline_us = self._automata[key][0].compute_deadline_us()
        if deadline_us is not None and deadline_us != before_us:
            heapq.heappush(self._deadlines, (deadline_us, key))

    def _advance(self, now_us: int) -> list[FoundMatches]:
        matches: list[FoundMatches] = []
        while self._deadlines and self._deadlines[0][0] < now_us:
            deadline_us, key = heapq.heappop(self._deadlines)
            if key not in self._automata or self._automata[key][0].compute_deadline_us() != deadline_us:
                continue
            machine, group = self._automata[key]
            matches += [FoundMatches(key, group, branch) for branch in machine.advance(deadline_us + 1)]
            self._watch(key, deadline_us)
            if machine.is_empty():
                del self._automata[key]
        return matches

    def advance(self, now_us: int) -> Matches:
        """Close what is over: no event before `now_us` will arrive."""
        matches = self._matches_of(self._advance(now_us))
        self._automata = {key: pair for key, pair in self._automata.items() if not pair[0].is_empty()}
        return matches

    def finish(self) -> Matches:
        """Close everything: no further event will arrive.

        Waiting automata are closed in time order, as if time went on; those that end with the last event of their key
        are closed in the order of these events.
        """
        matches: list[FoundMatches] = []
        while self._deadlines and not self._rules.to_the_last:
            matches += self._advance(self._deadlines[0][0] + 1)
        ended = [
            FoundMatches(key, group, branch)
            for key, (machine, group) in self._automata.items()
            for branch in machine.finish()
        ]
        self._automata, self._deadlines = {}, []
        return self._matches_of(matches + sorted(ended, key=lambda match: match.branch.taken[-1][0]))

    def _matches_of(self, found: list[FoundMatches]) -> Matches:
        if not found:
            return build_empty()
        rows = [(*event, match.key, match.group) for match in found for event in match.branch.taken]
        columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), KEYED, strict=True)]
        ends = np.cumsum([len(match.branch.taken) for match in found])
        matches = Matches.build(pa.RecordBatch.from_arrays(columns, schema=KEYED), ends)
        rules = self._rules
        if rules.pattern.bindings is None:
            return matches
        return replace(
            matches,
            measures=tuple(rules.measure(match.branch) for match in found) if rules.pattern.measures else (),
            explanations=tuple(rules.explain(match.branch) for match in found) if rules.pattern.emits else (),
        )

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the time (µs) from which on `advance` closes something."""
        timers: dict[int, int] = {}
        for machine, group in self._automata.values():
            deadline_us = machine.compute_deadline_us()
            if deadline_us is not None:
                timers[group] = min(timers.get(group, deadline_us + 1), deadline_us + 1)
        return timers

    def save(self, states: GroupStates) -> None:
        saved: dict[int, dict[str, Any]] = {}
        for key, (machine, group) in self._automata.items():
            if not machine.is_empty():
                saved.setdefault(group, {})[key] = machine.snapshot()
        states.put_values("machines", saved)

    def load(self, states: GroupStates) -> None:
        for group, machines in states.collect_values("machines").items():
            for key, state in machines.items():
                machine = create_match_automaton(self._rules)
                machine.restore(state)
                self._automata[key] = machine, group
                self._watch(key, None)
