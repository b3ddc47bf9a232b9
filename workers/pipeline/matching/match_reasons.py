"""Sentences that explain why an event is in a match or in no match. Pure.

The matches come from the matcher, and the reasons from the attempts that the interpreter makes (`match_trace`). The
reasons name the step that failed, with values, such as `p2 doesn't fit B: B.value 80 > 10 × A.value 93 (80 > 930) is
false`.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controllers.framework.reason import format_count
from workers.pipeline.matching.attempt import Branch
from workers.pipeline.matching.match_trace import (
    SearchedEvents,
    TracedAttempt,
    TracedRules,
    build_event,
    trace_attempts,
)
from workers.pipeline.matching.search_limit import NO_LIMIT, SearchLimit
from workers.pipeline.patterns.explanation import compile_refutation
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.scalars import Scalar

MAX_CANDIDATES = 3  # events that an explanation of an attempt names
MAX_SYMBOLS = 3  # symbols that an explanation of an event names
MAX_ATTEMPTS = 3  # open attempts that an explanation of an event names
MAX_EXAMINED = 100  # events of its key that an explanation of an attempt examines


@dataclass(frozen=True)
class ExplainedEvent:
    """An event of a search.

    match: number of its match, from 1; None: no match. symbol: the symbol that it has in the match. reasons: why it is
    in no match, as sentences.
    """

    id: str
    match: int | None
    symbol: str | None
    reasons: tuple[str, ...]


class _Refusal(NamedTuple):
    """The reason why an attempt doesn't take an event. rank: 0 for the event that comes closest."""

    rank: int
    place: int
    text: str


def create_explainer(pattern: Pattern, events: SearchedEvents, limit: SearchLimit = NO_LIMIT) -> "MatchExplainer":
    """Search the events, and return an explainer of the search. limit: of the search and of the explanation."""
    is_pool = pattern.needed is not None and pattern.bindings is None and pattern.is_relaxed
    if is_pool and pattern.consume == "once":
        return _PoolExplainer(pattern, events)
    return _AttemptExplainer(pattern, events, TracedRules(pattern, refuses_excess=True, limit=limit))


class MatchExplainer(ABC):
    """Explains events by the conditions of the symbols alone. Subclasses explain what the search does with them."""

    def __init__(self, pattern: Pattern, events: SearchedEvents) -> None:
        self._pattern, self._events = pattern, events
        self._match_of: dict[int, int] = {}
        names: dict[str, Scalar] = {name: _read_row(values) for name, values in events.values.items()}
        self._refutations = {
            symbol: compile_refutation(pattern.defines[symbol].tree, symbol, names) for symbol in pattern.symbols
        }
        self._refuted: dict[tuple[str, int], str] = {}

    def explain(self, matches: Sequence[Sequence[str]]) -> list[ExplainedEvent]:
        """Return an explanation of each event. matches: the IDs of the events of each match."""
        places = {id: place for place, id in enumerate(self._events.ids)}
        self._match_of = {places[id]: number for number, ids in enumerate(matches, 1) for id in ids}
        return [
            ExplainedEvent(
                id,
                self._match_of.get(place),
                self._find_symbol(place) if place in self._match_of else None,
                () if place in self._match_of else tuple(self._explain_unmatched(place)),
            )
            for place, id in enumerate(self._events.ids)
        ]

    def _find_symbol(self, place: int) -> str | None:
        """Return the symbol that an event has in its match; None if the event fits several."""
        fitting = self._pattern.list_symbols(self._events.masks[place])
        return fitting[0] if len(fitting) == 1 else None

    def _explain_unmatched(self, place: int) -> Iterator[str]:
        if self._events.masks[place] == 0:
            yield from self._explain_misfit(place)
        else:
            yield from self._explain_fit(place)

    @abstractmethod
    def _explain_fit(self, place: int) -> Iterator[str]:
        """Explain why an event that fits a symbol is in no match."""

    def _explain_misfit(self, place: int) -> Iterator[str]:
        """Explain why an event fits no symbol."""
        pattern, symbols = self._pattern, self._pattern.symbols
        named = [symbol for symbol in symbols if self._names_type(symbol, place)]
        if not named:
            yield f"No symbol takes events of type {self._get_type(place)}."
            return
        for symbol in named[:MAX_SYMBOLS]:
            yield f"{self._refute(symbol, place)}."
        if len(named) > MAX_SYMBOLS:
            yield f"It doesn't fit the other {len(named) - MAX_SYMBOLS} symbols of {pattern.name} either."

    def _names_type(self, symbol: str, place: int) -> bool:
        """Return whether the type of an event can satisfy a symbol."""
        types = self._pattern.defines[symbol].types
        return not types or "type" not in self._events.values or self._events.values["type"][place] in types

    def _get_type(self, place: int) -> str:
        value = self._events.values["type"][place]
        return "null" if value is None else f'"{value}"'

    def _refute(self, symbol: str, place: int) -> str:
        """Return why an event alone doesn't satisfy a symbol."""
        if (symbol, place) not in self._refuted:
            text = self._refutations[symbol]((place,), ())
            self._refuted[symbol, place] = f"Doesn't fit {symbol}: {text}" if text else f"Doesn't fit {symbol}"
        return self._refuted[symbol, place]

    def _list_fitting(self, place: int) -> str:
        return _join(self._pattern.list_symbols(self._events.masks[place]), "and")


def _read_row(values: Sequence[object]) -> Scalar:
    """Return a function that returns the value of the event whose place is the row."""
    return lambda row, bound: values[row[0]]


class _PoolExplainer(MatchExplainer):
    """Explains an AND of single events, which takes the oldest unused events of each symbol."""

    def _explain_fit(self, place: int) -> Iterator[str]:
        yield f"Fits {self._list_fitting(place)}."
        end = self._events.times[place] + self._pattern.within_us
        waiting = [
            other
            for other in self._events.places_by_key[self._events.keys[place]]
            if other not in self._match_of and self._events.times[place] <= self._events.times[other] <= end
        ]
        there = Counter(symbol for other in waiting for symbol in self._pattern.list_symbols(self._events.masks[other]))
        needed = Counter(self._pattern.needed)
        missing = [f"{count} × {symbol}" if count > 1 else symbol for symbol, count in (needed - there).items()]
        within = _describe_window(self._events)
        if missing:
            yield f"No unused events fit {_join(missing, 'and')} {within}."
        else:
            yield f"The other events {within} can't fill all symbols of the AND, or other matches used them."


class _AttemptExplainer(MatchExplainer):
    """Explains events by the attempts of the interpreter."""

    def __init__(self, pattern: Pattern, events: SearchedEvents, rules: TracedRules) -> None:
        super().__init__(pattern, events)
        self._rules = rules
        self._last_time = max(events.times, default=0)
        self._symbol_of: dict[int, str] = {}
        self._attempts_by_key: dict[str, list[TracedAttempt]] = {}
        self._holders: dict[int, list[TracedAttempt]] = {}  # of an event: the attempts that have taken it
        self._stopped: dict[int, list[TracedAttempt]] = {}  # by an event: the attempts that it ended
        for attempt in trace_attempts(rules, events):
            self._attempts_by_key.setdefault(attempt.key, []).append(attempt)
            for taken in attempt.taken:
                self._holders.setdefault(taken.place, []).append(attempt)
            if attempt.match:
                self._symbol_of.update((taken.place, taken.symbol) for taken in attempt.match)
            elif attempt.stopped_at is not None:
                self._stopped.setdefault(attempt.stopped_at, []).append(attempt)

    def _explain_unmatched(self, place: int) -> Iterator[str]:
        holder = self._find_holder(place)
        if holder is not None:
            yield from self._explain_taken(holder, place)
            return
        stopped = self._stopped.get(place)
        if stopped:
            yield from (f"{self._describe_stop(attempt)}." for attempt in stopped[:MAX_ATTEMPTS])
        else:
            yield from super()._explain_unmatched(place)

    def _find_symbol(self, place: int) -> str | None:
        return self._symbol_of.get(place)

    def _find_holder(self, place: int) -> TracedAttempt | None:
        """Return the attempt that explains an event best: the one that it starts, or else the longest."""
        holders = self._holders.get(place, ())
        own = next((attempt for attempt in holders if attempt.start == place), None)
        return own or max(holders, key=lambda attempt: len(attempt.taken), default=None)

    def _explain_taken(self, attempt: TracedAttempt, place: int) -> Iterator[str]:
        """Explain an event that an attempt has taken."""
        symbol = next(taken.symbol for taken in attempt.taken if taken.place == place)
        start = self._events.ids[attempt.start]
        begins = place == attempt.start
        role = f"Starts a match as {symbol}" if begins else f"Continues the match from {start} as {symbol}"
        if attempt.match:
            number = next((self._match_of[taken.place] for taken in attempt.match if taken.place in self._match_of), 0)
            hidden = any(taken.hidden and taken.place == place for taken in attempt.match)
            how = "{- -} excludes it from the result" if hidden else "the match isn't reported"
            yield f"{role}. It belongs to match {number}, but {how}." if hidden else f"{role}, but {how}."
            return
        yield from self._explain_near_misses(attempt, place)
        awaited = self._list_awaited(attempt.last_branches)
        yield f"{role}. The next step, {awaited}, is missing." if awaited else f"{role}."
        yield from self._explain_failure(attempt)

    def _explain_near_misses(self, taking: TracedAttempt, place: int) -> Iterator[str]:
        """Explain why earlier attempts don't take an event, although it alone satisfies their next symbol."""
        for attempt in self._list_open(place):
            refusal = self._refuse(attempt, place, attempt.find_branches(place))
            if attempt is not taking and refusal.rank == 0:
                yield f"In the match from {self._events.ids[attempt.start]}, {refusal.text}."

    def _explain_failure(self, attempt: TracedAttempt) -> Iterator[str]:
        """Explain why an attempt didn't become a match: the events that came closest, and how it ended."""
        candidates = sorted(self._iterate_refusals(attempt))
        for refusal in candidates[:MAX_CANDIDATES]:
            yield f"{refusal.text}."
        more = len(candidates) - MAX_CANDIDATES
        if more > 0:
            yield f"{format_count(more, 'more event')} {'does' if more == 1 else 'do'}n't fit either."
        if attempt.stopped_at is not None:
            yield f"{self._describe_stop(attempt)}."
            return
        end = attempt.first_us + self._pattern.within_us
        window = f"the window of {_format_seconds(self._events.window_seconds)}"
        if self._last_time <= end:
            yield "No further events."
            return
        yield f"{window[0].upper()}{window[1:]} from {self._events.ids[attempt.start]} ended."
        branches = attempt.last_branches
        late = next((place for place in self._list_late(attempt) if self._list_satisfied(place, branches)), None)
        if late is not None:
            after = _format_seconds(self._events.seconds[late] - self._events.seconds[attempt.start])
            yield f"{self._events.ids[late]} fits, but comes after {after}."

    def _iterate_refusals(self, attempt: TracedAttempt) -> Iterator[_Refusal]:
        """Yield why the events after the last taken event weren't taken, within the window and until a stop."""
        events = self._events
        last = attempt.taken[-1].place if attempt.taken else attempt.start
        stop = len(events.ids) if attempt.stopped_at is None else attempt.stopped_at
        end = attempt.first_us + self._pattern.within_us
        own = events.places_by_key[attempt.key]
        for place in own[bisect_right(own, last) :][:MAX_EXAMINED]:
            if place >= stop or events.times[place] > end:
                break
            yield self._refuse(attempt, place, attempt.last_branches)
        for place in range(last + 1, min(last + 1 + MAX_EXAMINED, stop)):
            is_other = events.keys[place] != attempt.key and events.times[place] <= end
            if is_other and self._list_satisfied(place, attempt.last_branches):
                yield _Refusal(1, place, f"{events.ids[place]} fits, but {self._describe_other_key(place)}")
                return

    def _describe_other_key(self, place: int) -> str:
        return f"it has another key ({self._pattern.key}: {self._events.keys[place]})"

    def _list_late(self, attempt: TracedAttempt) -> list[int]:
        """Return the first events of the key that come after the window."""
        own, end = self._events.places_by_key[attempt.key], attempt.first_us + self._pattern.within_us
        late = bisect_right(own, end, key=lambda place: self._events.times[place])
        return own[late : late + MAX_EXAMINED]

    def _refuse(self, attempt: TracedAttempt, place: int, branches: list[Branch]) -> _Refusal:
        """Return why an attempt with these open branches doesn't take an event. rank -1: it could take the event."""
        self._rules.limit.check_step()
        awaited, id = self._get_awaited(branches), self._events.ids[place]
        fitting = self._pattern.list_symbols(self._events.masks[place] & awaited)
        if not fitting:
            symbols = self._pattern.list_symbols(awaited)
            named = [symbol for symbol in symbols if self._names_type(symbol, place)]
            texts = [_continue(id, self._refute(symbol, place)) for symbol in (named or symbols)[:1]]
            return _Refusal(2 if named else 3, place, texts[0] if texts else f"{id} doesn't fit")
        satisfied = self._list_satisfied(place, branches)
        if not satisfied:
            symbol = fitting[0]
            return _Refusal(0, place, f"{id} doesn't fit {symbol}: {self._refute_bound(symbol, place, branches)}")
        user = next((other for other in self._holders.get(place, ()) if other is not attempt), None)
        if user is not None:
            used = f"the match from {self._events.ids[user.start]} uses it"
            return _Refusal(0, place, f"{id} fits {_join(satisfied, 'and')}, but {used}")
        return _Refusal(-1, place, f"{id} fits {_join(satisfied, 'and')}")

    def _list_satisfied(self, place: int, branches: list[Branch]) -> list[str]:
        """Return the symbols that the branches wait for and that an event satisfies, regardless of its key and time."""
        fitting = self._pattern.list_symbols(self._events.masks[place] & self._get_awaited(branches))
        return [symbol for symbol in fitting if not self._refute_bound(symbol, place, branches)]

    def _refute_bound(self, symbol: str, place: int, branches: list[Branch]) -> str:
        """Return why the condition between events isn't met for any branch; an empty text if it is met."""
        plan, bit = self._pattern.bindings, self._pattern.bits[symbol]
        if plan is None or symbol not in plan.conditions:
            return ""
        row = build_event(self._pattern, self._events, place)[-1]
        first = ""
        for branch in branches:
            self._rules.limit.check_step()
            if not self._rules.automaton.get_state(branch.state).wanted & bit:
                continue
            text = plan.refute(symbol, row, branch.bound)
            if not text:
                return ""
            first = first or text
        return first

    def _describe_stop(self, attempt: TracedAttempt) -> str:
        """Return how an event ended an attempt."""
        assert attempt.stopped_at is not None
        place, start = attempt.stopped_at, self._events.ids[attempt.start]
        forbidden = self._pattern.list_symbols(self._events.masks[place] & self._pattern.absent_bits)
        if self._pattern.is_relaxed or (forbidden and not self._list_awaited(attempt.last_branches)):
            names = _join([f"NOT {symbol}" for symbol in forbidden], "and")
            verb = "forbids" if len(forbidden) == 1 else "forbid"
            return f"In the match from {start}, {names} {verb} {self._events.ids[place]}"
        refusal = self._refuse(attempt, place, attempt.last_branches)
        return f"{refusal.text}. With strict contiguity, it ends the match from {start}"

    def _explain_fit(self, place: int) -> Iterator[str]:
        """Explain an event that fits a symbol, but that no attempt has taken."""
        fitting = self._list_fitting(place)
        skipped = self._find_skipping_match(place)
        if skipped is not None:
            last = self._events.ids[skipped.match[-1].place]
            yield f"Fits {fitting}, but lies within match {self._match_of.get(skipped.match[-1].place)}."
            yield f"With skip-past-last, the search continues after {last}."
            return
        open_attempts = self._list_open(place)
        for attempt in open_attempts:
            branches = attempt.find_branches(place)
            refusal = self._refuse(attempt, place, branches)
            if refusal.rank == 0:
                yield f"In the match from {self._events.ids[attempt.start]}, {refusal.text}."
                continue
            start, awaited = self._events.ids[attempt.start], self._list_awaited(branches)
            needs = f"needs {awaited} next" if awaited else "needs no further event"
            yield f"Fits {fitting}, but the match from {start} {needs}."
        if not open_attempts:
            yield f"Fits {fitting}, but no match of its key is open. A match starts with {self._list_starts()}."
            own = self._attempts_by_key.get(self._events.keys[place], ())
            earlier = [attempt for attempt in own if attempt.start < place]
            expired = [attempt for attempt in earlier if not attempt.match and attempt.stopped_at is None]
            if expired:
                window = f"the window of {_format_seconds(self._events.window_seconds)}"
                yield f"For the match from {self._events.ids[expired[-1].start]}, it comes after {window}."
        if self._pattern.expression.at_first:
            yield "With ^, only the first event of a key starts a match."

    def _find_skipping_match(self, place: int) -> TracedAttempt | None:
        if self._pattern.consume != "skip-past-last":
            return None
        matches = (attempt for attempt in self._attempts_by_key.get(self._events.keys[place], ()) if attempt.match)
        return next((match for match in matches if match.start < place < match.match[-1].place), None)

    def _list_open(self, place: int) -> list[TracedAttempt]:
        """Return the newest attempts that could have taken an event."""
        own = self._attempts_by_key.get(self._events.keys[place], ())
        return [attempt for attempt in own if self._is_open(attempt, place)][-MAX_ATTEMPTS:]

    def _is_open(self, attempt: TracedAttempt, place: int) -> bool:
        """Return whether an attempt could have taken an event of its key."""
        if attempt.start >= place or self._events.times[place] - attempt.first_us > self._pattern.within_us:
            return False
        if attempt.stopped_at is not None and not attempt.match:
            return place <= attempt.stopped_at
        return not attempt.match or place <= attempt.match[-1].place

    def _list_starts(self) -> str:
        automaton = self._rules.automaton
        return _join(self._pattern.list_symbols(automaton.get_state(automaton.start).wanted), "or")

    def _list_awaited(self, branches: list[Branch]) -> str:
        return _join(self._pattern.list_symbols(self._get_awaited(branches)), "or")

    def _get_awaited(self, branches: list[Branch]) -> int:
        """Return the bits of the symbols that the branches wait for."""
        awaited = 0
        for branch in branches:
            self._rules.limit.check_step()
            awaited |= self._rules.automaton.get_state(branch.state).wanted
        return awaited


def _continue(id: str, text: str) -> str:
    """Return a sentence about an event with its ID as the subject."""
    return f"{id} {text[0].lower()}{text[1:]}"


def _describe_window(events: SearchedEvents) -> str:
    return "in the events" if events.window_seconds is None else f"within {_format_seconds(events.window_seconds)}"


def _format_seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.6g} s"


def _join(names: Sequence[str], word: str) -> str:
    return f"{', '.join(names[:-1])} {word} {names[-1]}" if len(names) > 1 else "".join(names)
