"""One attempt to match: an automaton that has taken its first event. Pure.

Where a pattern leaves a choice, all ways are followed at once, the preferred first; the match is the first of
them that ends, as if each had been tried in turn.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workers.pipeline.patterns.automaton import Automaton, Take, is_parted_by_choice

Event = tuple[Any, ...]  # (time in µs, …): what a match reports of an event; JSON values


class Branch(NamedTuple):
    """One way through the pattern. taken: the events of the match. through: how many events of the stream,
    from the attempt's first, lie up to its last taken one. turns: where it parted from other ways.
    """

    state: int
    taken: tuple[Event, ...]
    through: int
    choices: tuple[int, ...] = ()


@dataclass
class Attempt:
    """ways: still open, the preferred first. ended: the way that counts when none of these ends. seen: events
    of the stream since its first. count: how many it has taken.
    """

    first_us: int
    branches: list[Branch] = field(default_factory=list)
    ended: Branch | None = None
    seen: int = 0
    count: int = 0

    @classmethod
    def begin(cls, automaton: Automaton, event: Event, mask: int, to_the_last: bool) -> "Attempt | None":
        """An attempt with its first event; None where the pattern can't begin with it."""
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
        """The next event: each way takes it where it can; else, when `relaxed`, passes over it, else is given
        up.
        """
        before, self.branches, reached = self.branches, [], set()
        self.seen += 1
        self.count += 1
        for branch in before:
            for following in self._iterate_next(automaton, branch, event, mask, relaxed):
                if following.state in reached:
                    continue
                reached.add(following.state)
                state = automaton.state(following.state)
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
            return [
                _take_event(branch, take, event, self.seen, (*branch.choices, *take.choices))
                for take in takes
            ]
        passed = automaton.pass_over(branch.state, mask) if relaxed else None
        return [] if passed is None else [branch._replace(state=passed)]

    def _end(self, branch: Branch, relaxed: bool) -> None:
        """`branch` has ended: it counts unless a more preferred one ends later. With events in between, that
        could be long: an OR then is what comes first, and only repetitions go on.
        """
        self.ended = branch
        if relaxed:
            self.branches = [
                other for other in self.branches if not is_parted_by_choice(other.choices, branch.choices)
            ]

    def pass_over(self, automaton: Automaton, mask: int, relaxed: bool) -> None:
        """An event that went to another attempt, or to none."""
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
        """With strict contiguity a NOT at the end is about the very next event: what is left after it must be
        able to end still. SEQ(A; C+; NOT D) goes on after A C D with another C only, which can't come.
        """
        state = automaton.state(branch.state)
        if not state.ends_late or mask & state.wanted:
            return False
        passed = automaton.pass_over(branch.state, mask)
        return passed is not None and automaton.state(passed).ends_late

    def close(self, automaton: Automaton, to_the_last: bool = False) -> Branch | None:
        """What it comes to when no further event can belong to it."""
        for branch in self.branches:
            state = automaton.state(branch.state)
            if state.ends_late or (to_the_last and state.ends and branch.through == self.seen):
                return branch
        return self.ended


def _take_event(branch: Branch, take: Take, event: Event, through: int, choices: tuple[int, ...]) -> Branch:
    return Branch(take.state, branch.taken if take.hidden else (*branch.taken, event), through, choices)
