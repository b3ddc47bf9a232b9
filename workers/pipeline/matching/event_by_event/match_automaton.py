"""What searches for any pattern, event by event, for one key: what all its kinds share."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from controllers.patterns.expression import read, render
from controllers.patterns.needs import needs_of
from workers.pipeline.matching.event_by_event.attempt import Attempt, Branch, Event
from workers.pipeline.patterns.automaton import Automaton
from workers.pipeline.patterns.pattern import Pattern

Taken = tuple[Event, ...]


class MatchAutomaton(Protocol):
    """What searches for one pattern in the events of one key, which come in event-time order."""

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
class AutomatonRules:
    """What a pattern's machines share. needed: bit of a symbol → events of it that each match has at
    least.
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
        """Whether an event matters to attempts that don't take it."""
        return not self.relaxed or self.to_the_last or bool(mask & self.pattern.absent_bits)

    def is_over(self, first_us: int, now_us: int) -> bool:
        return now_us - first_us > self.pattern.within_us

    def write(self, branch: Branch) -> Any:
        """A way as JSON values."""
        return [render(self.automaton.item(branch.state)), branch.taken, branch.through, branch.choices]

    def read(self, written: Any) -> Branch:
        text, taken, through, choices = written
        events = tuple(tuple(event) for event in taken)
        return Branch(self.automaton.number(read(text)), events, through, tuple(choices))
