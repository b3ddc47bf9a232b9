"""Matchers that a process keeps between batches.

The open attempts of a matcher have indexes. Their creation takes longer than a small batch. A process therefore keeps a
matcher with the states that it has written. A batch continues with this matcher if the stored states of the batch's key
groups are still the same. Otherwise, another process has written a later state, the write has failed, or the state was
reset. Each process of a task has its own matchers. The results don't depend on which matchers are kept.

Small batches have few of the key groups, and each batch has others. A matcher therefore keeps the groups of earlier
batches. Only the groups of a batch receive events, and only they can have attempts that event time ends, since all
groups of the task that are due are groups of the batch. The other groups stay as they are stored.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.patterns.pattern import Pattern

MAX_MATCHERS = 64  # of a process

# Application, operator, key groups of the task, signature of the pattern, and type of its complex events. A matcher has
# no groups of other tasks: event time could end their attempts before the events of the same batch are taken.
Place = tuple[str, str, tuple[int, ...], str, str]


@dataclass
class KeptMatcher:
    """A matcher. states: key group → the state from which the matcher continues."""

    matcher: Matcher
    states: dict[int, bytes]

    def save(self, groups: Collection[int]) -> dict[int, bytes]:
        """Return the state of each of these key groups that has some."""
        saved = self.matcher.save(groups)
        self.states = {group: state for group, state in self.states.items() if group not in groups} | saved
        return saved


class MatcherCache:
    """The matchers of a process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Place, KeptMatcher] = OrderedDict()

    def resume(
        self, place: Place, pattern: Pattern, states: Mapping[int, bytes], groups: Collection[int]
    ) -> KeptMatcher:
        """Return a matcher that continues from the states of the groups. states: key group → state, if it has some."""
        kept = self._kept.pop(place, None)
        before = {} if kept is None else kept.states
        if kept is None or any(before.get(group) != states.get(group) for group in groups):
            # The other groups stay: the next batch probably has some of them.
            before = {group: state for group, state in before.items() if group not in groups}
            before |= states
            return KeptMatcher(Matcher.resume(pattern, before), before)
        kept.matcher.partnerless = 0
        return kept

    def keep(self, place: Place, kept: KeptMatcher) -> None:
        """Keep a matcher that has saved its states, if that saves time."""
        if kept.matcher.open_attempts is not None:
            self._kept[place] = kept
            if len(self._kept) > MAX_MATCHERS:
                self._kept.popitem(last=False)


MATCHER_CACHE = MatcherCache()
