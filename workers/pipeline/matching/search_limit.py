"""The limit of a search by the interpreter. Pure."""

from dataclasses import dataclass

from workers.pipeline.matching.attempt import AutomatonRules, Branch, Event
from workers.pipeline.patterns.automaton import Take


class SearchLimit:
    """A limit of the time and memory of a search. This class allows any search; subclasses raise errors."""

    def check_step(self) -> None:
        """Count a step of a branch. Raises an error after too many steps."""

    def check_recorded(self, branches: int) -> None:
        """Count branches that a recorder keeps. Raises an error after too many branches."""


NO_LIMIT = SearchLimit()


@dataclass
class LimitedRules(AutomatonRules):
    """The rules of a search with a limit. A pipeline searches without it, which takes no additional time."""

    limit: SearchLimit = NO_LIMIT

    def list_takes(self, branch: Branch, event: Event, mask: int) -> tuple[Take, ...]:
        self.limit.check_step()
        return super().list_takes(branch, event, mask)

    def pass_over(self, branch: Branch, event: Event, mask: int) -> int | None:
        self.limit.check_step()
        return super().pass_over(branch, event, mask)
