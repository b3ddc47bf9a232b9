"""One attempt to match: an automaton that has taken its first event. Pure.

If a pattern leaves a choice, all branches are followed in parallel, the preferred one first. The match is the first of
them that ends, as if each had been tried in turn.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from controllers.patterns.expression import read, render
from controllers.patterns.selectivity import needs_of
from workers.pipeline.patterns.automaton import Automaton, Take, is_parted_by_choice
from workers.pipeline.patterns.pattern import Pattern

Event = tuple[Any, ...]  # (time in µs, …): what a match reports of an event; JSON values


class Branch(NamedTuple):
    """One branch through the pattern.

    taken: the events of the match. through: number of events of the stream from the attempt's first up to its last
    taken one. choices: where it parted from other branches.
    """

    state: int
    taken: tuple[Event, ...]
    through: int
    choices: tuple[int, ...] = ()


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

    @classmethod
    def begin(cls, automaton: Automaton, event: Event, mask: int, to_the_last: bool) -> "Attempt | None":
        """Start an attempt with its first event. Returns None if the pattern can't start with it."""
        attempt = cls(event[0], [Branch(automaton.start, (), 0)])
        if not attempt.can_take(automaton, mask):
            return None
        attempt.take(automaton, event, mask, relaxed=False, to_the_last=to_the_last)
        return attempt

    @property
    def is_decided(self) -> bool:
        return not self.branches

    def can_take(self, automaton: Automaton, mask: int) -> bool:
        return any(automaton.list_branches(branch.state, mask) for branch in self.branches)

    def take(self, automaton: Automaton, event: Event, mask: int, relaxed: bool, to_the_last: bool) -> None:
        """Process the next event.

        Each branch takes the event if it can. Otherwise it passes over it if `relaxed`, and is given up if not.
        """
        before, self.branches, reached = self.branches, [], set()
        self.seen += 1
        self.count += 1
        for branch in before:
            for following in self._iterate_next(automaton, branch, event, mask, relaxed):
                if following.state in reached:
                    continue
                reached.add(following.state)
                state = automaton.get_state(following.state)
                if to_the_last or state.takes or state.ends_late:
                    self.branches.append(following)
                if state.ends and not to_the_last and following.through == self.seen:
                    self._end(following, relaxed)
                    return
            if not relaxed and self._has_outlasted(automaton, branch, mask):
                self.ended = branch
                return

    def _iterate_next(
        self, automaton: Automaton, branch: Branch, event: Event, mask: int, relaxed: bool
    ) -> list[Branch]:
        takes = automaton.list_branches(branch.state, mask)
        if len(takes) == 1:
            return [_take_event(branch, takes[0], event, self.seen, branch.choices)]
        if takes:
            return [_take_event(branch, take, event, self.seen, (*branch.choices, *take.choices)) for take in takes]
        passed = automaton.pass_over(branch.state, mask) if relaxed else None
        return [] if passed is None else [branch._replace(state=passed)]

    def _end(self, branch: Branch, relaxed: bool) -> None:
        """Record that `branch` has ended: it counts unless a more preferred one ends later.

        With events in between, that could take long. An OR is then decided by what ends first, and only repetitions
        continue.
        """
        self.ended = branch
        if relaxed:
            self.branches = [other for other in self.branches if not is_parted_by_choice(other.choices, branch.choices)]

    def pass_over(self, automaton: Automaton, mask: int, relaxed: bool) -> None:
        """Pass over an event that went to another attempt, or to none."""
        self.seen += 1
        if not relaxed:
            lasting = (branch for branch in self.branches if self._has_outlasted(automaton, branch, mask))
            self.ended, self.branches = next(lasting, self.ended), []
            return
        states = [automaton.pass_over(branch.state, mask) for branch in self.branches]
        self.branches = [
            branch._replace(state=state)
            for branch, state in zip(self.branches, states, strict=True)
            if state is not None
        ]

    @staticmethod
    def _has_outlasted(automaton: Automaton, branch: Branch, mask: int) -> bool:
        """Return whether the branch has outlasted the NOT at its end, given strict contiguity.

        Such a NOT refers to the very next event, so what is left after that event must still be able to end. After A C
        D, SEQ(A; C+; NOT D) could continue with another C only, which can't arrive.
        """
        state = automaton.get_state(branch.state)
        if not state.ends_late or mask & state.wanted:
            return False
        passed = automaton.pass_over(branch.state, mask)
        return passed is not None and automaton.get_state(passed).ends_late

    def close(self, automaton: Automaton, to_the_last: bool = False) -> Branch | None:
        """Return the outcome if no further event can belong to the attempt."""
        for branch in self.branches:
            state = automaton.get_state(branch.state)
            if state.ends_late or (to_the_last and state.ends and branch.through == self.seen):
                return branch
        return self.ended


def _take_event(branch: Branch, take: Take, event: Event, through: int, choices: tuple[int, ...]) -> Branch:
    return Branch(take.state, branch.taken if take.hidden else (*branch.taken, event), through, choices)


Taken = tuple[Event, ...]


class MatchAutomaton(Protocol):
    """Searches for one pattern in the events of one key, which arrive in event-time order."""

    def take(self, event: Event, mask: int) -> list[Taken]:
        """Process an event; return the matches that it completes. The bits: of the symbols that it satisfies."""
        ...

    def advance(self, now_us: int) -> list[Taken]:
        """Close what is over, and return the matches completed by that. No event before `now_us` will arrive."""
        ...

    def finish(self) -> list[Taken]:
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

    needed: bit of a symbol → minimum number of its events in each match.
    """

    pattern: Pattern
    automaton: Automaton = field(init=False)
    needed: dict[int, float] = field(init=False)

    def __post_init__(self) -> None:
        expression = self.pattern.expression
        self.automaton = Automaton(expression.root, self.pattern.bits, expression.at_last)
        needs = needs_of(render(expression.root)).counts
        self.needed = {self.pattern.bits[symbol]: count for symbol, count in needs.items()}

    @property
    def relaxed(self) -> bool:
        return self.pattern.is_relaxed

    @property
    def to_the_last(self) -> bool:
        return self.pattern.expression.at_last

    def begin(self, event: Event, mask: int) -> Attempt | None:
        return Attempt.begin(self.automaton, event, mask, self.to_the_last)

    def is_relevant_to_all(self, mask: int) -> bool:
        """Return whether an event matters to attempts that don't take it."""
        return not self.relaxed or self.to_the_last or bool(mask & self.pattern.absent_bits)

    def is_over(self, first_us: int, now_us: int) -> bool:
        return now_us - first_us > self.pattern.within_us

    def write(self, branch: Branch) -> list[Any]:
        """Return a branch as JSON values."""
        return [render(self.automaton.get_item(branch.state)), branch.taken, branch.through, branch.choices]

    def read(self, written: list[Any]) -> Branch:
        text, taken, through, choices = written
        events = tuple(tuple(event) for event in taken)
        return Branch(self.automaton.get_number(read(text)), events, through, tuple(choices))
