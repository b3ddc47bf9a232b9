"""One attempt to match: an automaton that has taken its first event. Pure.

If a pattern leaves a choice, all branches are followed in parallel, the preferred one first. The match is the first of
them that ends, as if each had been tried in turn.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from common.errors import Forbidden
from controllers.patterns.expression import iterate_symbol_names, read, render
from controllers.patterns.selectivity import needs_of
from workers.pipeline.patterns.automaton import Automaton, Take, is_parted_by_choice
from workers.pipeline.patterns.bindings import read_values, write_values
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.scalars import Bound

# (time in µs, …): the values of an event that a match reports, as JSON values. If the pattern has conditions between
# events or measures, a tuple follows with the values of the event that they read.
Event = tuple[Any, ...]
MAX_BRANCHES = 20_000  # of an attempt


class Branch(NamedTuple):
    """One branch through the pattern.

    taken: the events of the match. through: number of events of the stream from the attempt's first event to the last
    event taken. choices: where it parted from other branches. bound: the values of its events that conditions and
    measures read.
    """

    state: int
    taken: tuple[Event, ...]
    through: int
    choices: tuple[int, ...] = ()
    bound: Bound = ()


@dataclass
class Attempt:
    """An attempt to match.

    branches: the open branches, the preferred one first. ended: the branch that counts if none of these ends.
    seen: number of events of the stream since its first. count: number of events it has taken.
    """

    first_us: int
    branches: list[Branch] = field(default_factory=list)
    ended: Branch | None = None
    seen: int = 0
    count: int = 0

    @property
    def is_decided(self) -> bool:
        return not self.branches

    def can_take(self, rules: "AutomatonRules", event: Event, mask: int) -> bool:
        return any(rules.list_takes(branch, event, mask) for branch in self.branches)

    def take(self, rules: "AutomatonRules", event: Event, mask: int, relaxed: bool) -> None:
        """Process the next event.

        Each branch takes the event if it can. Otherwise, the branch skips the event if `relaxed`, and is dropped if
        not. Branches in the same state are merged, unless a later condition could distinguish their bound values.
        """
        before, self.branches, reached = self.branches, [], set()
        self.seen += 1
        self.count += 1
        for branch in before:
            for following in self._iterate_next(rules, branch, event, mask, relaxed):
                likeness = rules.compute_likeness(following)
                if likeness in reached:
                    continue
                reached.add(likeness)
                state = rules.automaton.get_state(following.state)
                if rules.to_the_last or state.takes or state.ends_late:
                    self.branches.append(following)
                if state.ends and not rules.to_the_last and following.through == self.seen:
                    self._end(following, relaxed)
                    return
            if not relaxed and self._has_outlasted(rules, branch, event, mask):
                self.ended = branch
                return
            if len(self.branches) > MAX_BRANCHES:
                rules.note_excess()
                return  # without the branches that the pattern prefers least

    def _iterate_next(
        self, rules: "AutomatonRules", branch: Branch, event: Event, mask: int, relaxed: bool
    ) -> list[Branch]:
        takes = rules.list_takes(branch, event, mask)
        if len(takes) == 1:
            return [rules.take_event(branch, takes[0], event, self.seen, branch.choices)]
        if takes:
            return [
                rules.take_event(branch, take, event, self.seen, (*branch.choices, *take.choices)) for take in takes
            ]
        passed = rules.pass_over(branch, event, mask) if relaxed else None
        return [] if passed is None else [branch._replace(state=passed)]

    def _end(self, branch: Branch, relaxed: bool) -> None:
        """Record that `branch` has ended: it counts unless a more preferred one ends later.

        With events in between, that could take long. An OR is then decided by what ends first, and only repetitions
        continue.
        """
        self.ended = branch
        if relaxed:
            self.branches = [other for other in self.branches if not is_parted_by_choice(other.choices, branch.choices)]

    def pass_over(self, rules: "AutomatonRules", event: Event, mask: int) -> None:
        """Pass over an event that went to another attempt, or to none."""
        self.seen += 1
        if not rules.relaxed:
            lasting = (branch for branch in self.branches if self._has_outlasted(rules, branch, event, mask))
            self.ended, self.branches = next(lasting, self.ended), []
            return
        states = [rules.pass_over(branch, event, mask) for branch in self.branches]
        self.branches = [
            branch._replace(state=state)
            for branch, state in zip(self.branches, states, strict=True)
            if state is not None
        ]

    @staticmethod
    def _has_outlasted(rules: "AutomatonRules", branch: Branch, event: Event, mask: int) -> bool:
        """Return whether the branch has outlasted the NOT at its end, given strict contiguity.

        Such a NOT refers to the very next event, so what is left after that event must still be able to end. After A C
        D, SEQ(A; C+; NOT D) could continue with another C only, which can't arrive.
        """
        if not rules.automaton.get_state(branch.state).ends_late or rules.wants(branch, event, mask):
            return False
        passed = rules.pass_over(branch, event, mask)
        return passed is not None and rules.automaton.get_state(passed).ends_late

    def close(self, rules: "AutomatonRules", to_the_last: bool = False) -> Branch | None:
        """Return the outcome if no further event can belong to the attempt."""
        for branch in self.branches:
            state = rules.automaton.get_state(branch.state)
            if state.ends_late or (to_the_last and state.ends and branch.through == self.seen):
                return branch
        return self.ended


class MatchAutomaton(Protocol):
    """Searches for one pattern in the events of one key, which arrive in event-time order."""

    def take(self, event: Event, mask: int) -> list[Branch]:
        """Process an event; return the matches that it completes. The bits: of the symbols that it satisfies."""
        ...

    def advance(self, now_us: int) -> list[Branch]:
        """Close what is over, and return the matches completed by that. No event before `now_us` will arrive."""
        ...

    def finish(self) -> list[Branch]:
        """Close everything: no further event will arrive."""
        ...

    def compute_deadline_us(self) -> int | None:
        """Return when the oldest open attempt is over."""
        ...

    def is_empty(self) -> bool: ...

    def snapshot(self) -> list[Any]:
        """Return JSON values from which `restore` continues exactly."""
        ...

    def restore(self, state: list[Any]) -> None: ...


@dataclass
class AutomatonRules:
    """The rules that the automata of a pattern share.

    needed: bit of a symbol → minimum number of its events in each match. excess: how often an attempt had more than
    MAX_BRANCHES branches, and dropped the branches that the pattern prefers least. refuses_excess: raise `Forbidden`
    instead.
    """

    pattern: Pattern
    refuses_excess: bool = False
    automaton: Automaton = field(init=False)
    needed: dict[int, float] = field(init=False)
    excess: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        expression, bits = self.pattern.expression, self.pattern.bits
        self.automaton = Automaton(expression.root, bits, expression.at_last)
        needs = needs_of(render(expression.root)).counts
        self.needed = {bits[symbol]: count for symbol, count in needs.items()}
        self._plan = self.pattern.bindings
        self._symbols = {bit: symbol for symbol, bit in bits.items()}
        self._bound_bits = sum(bits[symbol] for symbol in self.pattern.bound_conditions)
        self._read_places: dict[int, tuple[int, ...]] = {}

    @property
    def relaxed(self) -> bool:
        return self.pattern.is_relaxed

    @property
    def to_the_last(self) -> bool:
        return self.pattern.expression.at_last

    def begin(self, event: Event, mask: int) -> Attempt | None:
        """Start an attempt with its first event. Returns None if the pattern can't start with it."""
        empty = self._plan.empty if self._plan else ()
        attempt = self.create_attempt(event[0], Branch(self.automaton.start, (), 0, bound=empty))
        if not attempt.can_take(self, event, mask):
            return None
        attempt.take(self, event, mask, relaxed=False)
        return attempt

    def create_attempt(self, first_us: int, start: Branch) -> Attempt:
        return Attempt(first_us, [start])

    def list_takes(self, branch: Branch, event: Event, mask: int) -> tuple[Take, ...]:
        """Return how a branch can take an event, preferred way first. mask: symbols that the event alone satisfies."""
        if self._bound_bits & mask:
            mask = self._decide(branch, event, mask, self.automaton.get_state(branch.state).wanted)
        return self.automaton.list_branches(branch.state, mask)

    def wants(self, branch: Branch, event: Event, mask: int) -> bool:
        """Return whether an event satisfies a symbol that a branch waits for."""
        wanted = self.automaton.get_state(branch.state).wanted
        if self._bound_bits & mask:
            mask = self._decide(branch, event, mask, wanted)
        return bool(mask & wanted)

    def pass_over(self, branch: Branch, event: Event, mask: int) -> int | None:
        """Return a branch's state after an event that it does not take, or None if the event is forbidden."""
        if self._bound_bits & mask:
            mask = self._decide(branch, event, mask, 0)
        return self.automaton.pass_over(branch.state, mask)

    def _decide(self, branch: Branch, event: Event, mask: int, wanted: int) -> int:
        """Return the mask without the symbols whose conditions on bound events don't hold for a branch.

        A NOT evaluates its condition with the event as the only event of its symbol.
        """
        assert self._plan is not None
        undecided = mask & self._bound_bits
        mask &= ~undecided
        absent = self.pattern.absent_bits & ~wanted
        for bit in self._iterate_bits(undecided & (wanted | absent)):
            symbol = self._symbols[bit]
            bound = self._plan.forget(branch.bound, symbol) if bit & absent else branch.bound
            if self._plan.holds(symbol, event[-1], bound):
                mask |= bit
        return mask

    @staticmethod
    def _iterate_bits(mask: int) -> Iterator[int]:
        while mask:
            yield mask & -mask
            mask &= mask - 1

    def take_event(self, branch: Branch, take: Take, event: Event, through: int, choices: tuple[int, ...]) -> Branch:
        """Return a branch after it has taken an event."""
        bound = branch.bound
        if self._plan:
            bound = self._plan.take(bound, self._symbols[take.bit], event[-1])
            event = event[:-1]
        return Branch(take.state, branch.taken if take.hidden else (*branch.taken, event), through, choices, bound)

    def compute_likeness(self, branch: Branch) -> Hashable:
        """Return a value that branches share if they can take the same events from now on."""
        if not self._bound_bits:
            return branch.state
        places = self._read_places.get(branch.state)
        if places is None:
            assert self._plan is not None
            left = set(iterate_symbol_names(self.automaton.get_item(branch.state)))
            places = self._read_places[branch.state] = self._plan.list_read_places(left)
        return branch.state, *(branch.bound[place] for place in places)

    def measure(self, branch: Branch) -> dict[str, Any]:
        """Return the measures of a match."""
        return self._plan.measure(branch.bound) if self._plan else {}

    def explain(self, branch: Branch) -> list[str]:
        """Return the explanations of a match's conditions between events."""
        return self._plan.explain(branch.bound) if self._plan else []

    def note_excess(self) -> None:
        """Count an attempt with too many branches, or reject it."""
        if self.refuses_excess:
            raise Forbidden(
                "pattern",
                f"has more than {MAX_BRANCHES} ways to match the same events, which its conditions could distinguish; "
                "define the symbols of an OR or a repetition so that an event satisfies only one of them",
            )
        self.excess += 1

    def is_relevant_to_all(self, mask: int) -> bool:
        """Return whether an event matters to attempts that don't take it."""
        return not self.relaxed or self.to_the_last or bool(mask & self.pattern.absent_bits)

    def is_over(self, first_us: int, now_us: int) -> bool:
        return now_us - first_us > self.pattern.within_us

    def write(self, branch: Branch) -> list[Any]:
        """Return a branch as JSON values."""
        written = [render(self.automaton.get_item(branch.state)), branch.taken, branch.through, branch.choices]
        return [*written, write_values(branch.bound)] if self._plan else written

    def read(self, written: list[Any]) -> Branch:
        text, taken, through, choices, *bound = written
        events = tuple(tuple(event) for event in taken)
        return Branch(self.automaton.get_number(read(text)), events, through, tuple(choices), *map(read_values, bound))

    def write_event(self, event: Event) -> list[Any]:
        """Return an event of the stream as JSON values."""
        return [*event[:-1], write_values(event[-1])] if self._plan else [*event]

    def read_event(self, written: list[Any]) -> Event:
        return (*written[:-1], read_values(written[-1])) if self._plan else tuple(written)
