"""What all event-by-event matchers of one key share."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from controllers.patterns.expression import read, render
from controllers.patterns.selectivity import needs_of
from workers.pipeline.matching.event_by_event.attempt import Attempt, Branch, Event
from workers.pipeline.patterns.automaton import Automaton
from workers.pipeline.patterns.pattern import Pattern

Taken = tuple[Event, ...]


class MatchAutomaton(Protocol):
    """Searches for one pattern in the events of one key, which arrive in event-time order."""

    def take(self, event: Event, mask: int) -> list[Taken]:
        """Process one event, and return the matches that it completes.

        The bits are those of the symbols that the event satisfies.
        """
        ...

    def advance(self, now_us: int) -> list[Taken]:
        """Close what is over, and return the matches completed by that.

        No event before `now_us` will arrive.
        """
        ...

    def finish(self) -> list[Taken]:
        """Close everything: no further event will arrive."""
        ...

    def compute_deadline_us(self) -> int | None:
        """Return when the oldest open attempt is over."""
        ...

    def is_empty(self) -> bool: ...

    def snapshot(self) -> Any:
        """Return JSON values from which `restore` continues exactly."""
        ...

    def restore(self, state: Any) -> None: ...


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

    def write(self, branch: Branch) -> Any:
        """Return a branch as JSON values."""
        return [render(self.automaton.get_item(branch.state)), branch.taken, branch.through, branch.choices]

    def read(self, written: Any) -> Branch:
        text, taken, through, choices = written
        events = tuple(tuple(event) for event in taken)
        return Branch(self.automaton.get_number(read(text)), events, through, tuple(choices))
