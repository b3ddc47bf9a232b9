"""A record of the interpreter's attempts, which explains why events don't match. Pure.

The interpreter finds the same matches as the other matchers (`matcher`), except for an AND of single events with the
policy once, which has no attempts. The recorder is a subclass of the interpreter's rules, so a search without a
recorder takes no additional time.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from workers.pipeline.matching.attempt import Attempt, AutomatonRules, Branch, Event
from workers.pipeline.matching.interpreted import create_match_automaton
from workers.pipeline.matching.search_limit import NO_LIMIT, LimitedRules, SearchLimit
from workers.pipeline.patterns.automaton import Take
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.scalars import list_values


class TakenEvent(NamedTuple):
    """An event that an attempt has taken for a symbol. hidden: it is not part of the match."""

    place: int
    symbol: str
    hidden: bool


@dataclass(frozen=True)
class SearchedEvents:
    """Events in event-time order, for a search and for the display of its result.

    ids: unique IDs to display. times: times for the search, in any unit. seconds: times to display. masks: for each
    event, bits of the symbols whose conditions on a single event it satisfies. values: by column or `prev(column)`.
    window_seconds: the window to display; None: no window.
    """

    ids: Sequence[str]
    times: Sequence[int]
    seconds: Sequence[float]
    keys: Sequence[str]
    masks: Sequence[int]
    values: Mapping[str, Sequence[Any]]
    window_seconds: float | None = None

    @classmethod
    def build(
        cls,
        rows: pa.RecordBatch,
        masks: np.ndarray,
        columns: Mapping[str, pa.Array],
        seconds: Sequence[float],
        window_seconds: float | None,
    ) -> "SearchedEvents":
        """Build from the input of a matcher (`Matcher.take`), and from the times and the window to display."""
        ids, times, keys = (rows.column(name).to_pylist() for name in ("id", "time", "match_key"))
        values = {name: list_values(column) for name, column in columns.items()}
        return cls(ids, times, seconds, keys, masks.tolist(), values, window_seconds)

    @cached_property
    def places_by_key(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for place, key in enumerate(self.keys):
            places.setdefault(key, []).append(place)
        return places


@dataclass
class TracedAttempt(Attempt):
    """An attempt that records its branches after each event that changes them.

    changes: the place of an event, and the open branches after it. stopped_at: the event that ended the last branch.
    match: its events if it is a match, otherwise empty.
    """

    key: str = ""
    changes: list[tuple[int, list[Branch]]] = field(default_factory=list)
    stopped_at: int | None = None
    match: tuple[TakenEvent, ...] = ()
    limit: SearchLimit = NO_LIMIT

    @property
    def start(self) -> int:
        return self.changes[0][0]

    @property
    def last_branches(self) -> list[Branch]:
        """Return the branches that were open last."""
        return self.changes[-1][1]

    @property
    def taken(self) -> tuple[TakenEvent, ...]:
        """Return the events of the match, or those that the preferred branch had taken at the end."""
        return self.match or _get_taken(self.last_branches[0])

    def find_branches(self, place: int) -> list[Branch]:
        """Return the branches that were open before an event."""
        return self.changes[bisect_left(self.changes, place, key=lambda change: change[0]) - 1][1]

    def take(self, rules: AutomatonRules, event: Event, mask: int, relaxed: bool) -> None:
        before = self.branches
        super().take(rules, event, mask, relaxed)
        self._record(before, event[1])

    def pass_over(self, rules: AutomatonRules, event: Event, mask: int) -> None:
        before = self.branches
        super().pass_over(rules, event, mask)
        self._record(before, event[1])

    def _record(self, before: list[Branch], place: int) -> None:
        if not self.branches:
            self.stopped_at = place
            if not self.changes:
                self._append(place, before)
        elif [(way.state, way.taken) for way in self.branches] != [(way.state, way.taken) for way in before]:
            self._append(place, self.branches)

    def _append(self, place: int, branches: list[Branch]) -> None:
        self.limit.check_recorded(len(branches))
        self.changes.append((place, branches))

    def close(self, rules: AutomatonRules, to_the_last: bool = False) -> Branch | None:
        outcome = super().close(rules, to_the_last)
        self.match = _get_taken(outcome) if outcome else ()
        return outcome


def _get_taken(branch: Branch) -> tuple[TakenEvent, ...]:
    """Return the events of a branch, which `TracedRules` has recorded as `TakenEvent`s."""
    return cast(tuple[TakenEvent, ...], branch.taken)


@dataclass
class TracedRules(LimitedRules):
    """The rules of a recorded search.

    An event of the search is (time, place), and the values that conditions read. An attempt takes `TakenEvent`s.
    """

    key: str = ""
    attempts: list[TracedAttempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.needed = {}  # no attempt is postponed until all symbols that it needs have arrived

    def create_attempt(self, first_us: int, start: Branch) -> TracedAttempt:
        return TracedAttempt(first_us, [start], key=self.key, limit=self.limit)

    def begin(self, event: Event, mask: int) -> Attempt | None:
        attempt = super().begin(event, mask)
        if isinstance(attempt, TracedAttempt):
            self.attempts.append(attempt)
        return attempt

    def take_event(self, branch: Branch, take: Take, event: Event, through: int, choices: tuple[int, ...]) -> Branch:
        after = super().take_event(branch, take, event, through, choices)
        (symbol,) = self.pattern.list_symbols(take.bit)
        return after._replace(taken=(*branch.taken, TakenEvent(event[1], symbol, take.hidden)))


def trace_attempts(rules: TracedRules, events: SearchedEvents) -> list[TracedAttempt]:
    """Search the events key by key, and return all attempts. Raises what the limit raises."""
    for key, places in events.places_by_key.items():
        rules.key = key
        automaton = create_match_automaton(rules)
        for place in places:
            if events.masks[place] or rules.pattern.needs_every_event:
                automaton.take(build_event(rules.pattern, events, place), events.masks[place])
        while not rules.to_the_last and (deadline := automaton.compute_deadline_us()) is not None:
            automaton.advance(deadline + 1)
        automaton.finish()
    return rules.attempts


def build_event(pattern: Pattern, events: SearchedEvents, place: int) -> Event:
    """Return an event as the search takes it."""
    if pattern.bindings is None:
        return events.times[place], place
    return events.times[place], place, tuple(events.values[name][place] for name in pattern.bindings.names)
