"""Any pattern over batches of events: an automaton per key, processed event by event."""

import heapq
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from workers.pipeline.matching.event_by_event.attempt import Event
from workers.pipeline.matching.event_by_event.match_automaton import AutomatonRules, MatchAutomaton, Taken
from workers.pipeline.matching.event_by_event.open_attempts import OpenAttempts
from workers.pipeline.matching.event_by_event.row_search import RowSearch
from workers.pipeline.matching.retained.group_state import GroupStates
from workers.pipeline.matching.retained.matches import EVENT, KEYED, Matches, build_empty
from workers.pipeline.patterns.pattern import Pattern


class FoundMatches(NamedTuple):
    key: str
    group: int
    taken: Taken


class AutomatonMatcher:
    """Matcher for any pattern. It has one automaton per key, with the key group it belongs to.

    Expired automata are closed in time order over all keys, so that matches come in the same order however the events
    are cut into batches.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._rules = AutomatonRules(pattern)
        self._automata: dict[str, tuple[MatchAutomaton, int]] = {}
        self._deadlines: list[tuple[int, str]] = []

    @property
    def begins(self) -> int:
        automaton = self._rules.automaton
        return automaton.get_state(automaton.start).wanted

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
        events = zip(*(rows.column(name).to_pylist() for name in EVENT.names), strict=True)
        keys, groups = rows.column("match_key").to_pylist(), rows.column("group").to_pylist()
        matches: list[FoundMatches] = []
        for event, mask, key, group in zip(events, masks.tolist(), keys, groups, strict=True):
            # No event of another key says which event is the last of a key.
            if self._deadlines and self._deadlines[0][0] < event[0] and not self._rules.to_the_last:
                matches += self._advance(event[0])
            matches += self._take(event, mask, key, group)
        return self._matches_of(matches)

    def _match_automaton(self) -> MatchAutomaton:
        by_rows = self._rules.pattern.consume == "skip-past-last"
        return RowSearch(self._rules) if by_rows else OpenAttempts(self._rules)

    def _take(self, event: Event, mask: int, key: str, group: int) -> list[FoundMatches]:
        if key not in self._automata:
            self._automata[key] = self._match_automaton(), group
        machine = self._automata[key][0]
        before_us = machine.compute_deadline_us()
        taken_match = machine.take(event, mask)
        self._watch(key, before_us)
        return [FoundMatches(key, group, taken) for taken in taken_match]

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
            matches += [FoundMatches(key, group, taken) for taken in machine.advance(deadline_us + 1)]
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
            FoundMatches(key, group, taken)
            for key, (machine, group) in self._automata.items()
            for taken in machine.finish()
        ]
        self._automata, self._deadlines = {}, []
        return self._matches_of(matches + sorted(ended, key=lambda match: match.taken[-1][0]))

    @staticmethod
    def _matches_of(found: list[FoundMatches]) -> Matches:
        if not found:
            return build_empty()
        rows = [(*event, match.key, match.group) for match in found for event in match.taken]
        columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), KEYED, strict=True)]
        ends = np.cumsum([len(match.taken) for match in found])
        return Matches.build(pa.RecordBatch.from_arrays(columns, schema=KEYED), ends)

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
                machine = self._match_automaton()
                machine.restore(state)
                self._automata[key] = machine, group
                self._watch(key, None)
