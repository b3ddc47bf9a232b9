"""Matchers that a process keeps between batches.

The open attempts of a matcher have indexes. Their creation takes longer than a small batch. A process therefore keeps a
matcher with the state that it has written, and continues with this matcher if the stored state is still the same.
Otherwise, another process has written a later state, the write has failed, or the state was reset. Each process of a
task has its own matchers. The results don't depend on which matchers are kept.
"""

from collections import OrderedDict
from collections.abc import Mapping

from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.patterns.pattern import Pattern

MAX_MATCHERS = 64  # of a process

# Application, operator, number of its task, signature of the pattern, and type of its complex events. Batches of a task
# have different key groups, but only the newest matcher can fit the stored state.
Place = tuple[str, str, int, str, str]


class MatcherCache:
    """The matchers of a process, with the states that they have written."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Place, tuple[Matcher, dict[int, bytes]]] = OrderedDict()

    def resume(self, place: Place, pattern: Pattern, states: Mapping[int, bytes]) -> Matcher:
        """Return a matcher that continues from the states. states: key group → state."""
        matcher, written = self._kept.pop(place, (None, None))
        if matcher is None or written != states:
            return Matcher.resume(pattern, states)
        matcher.partnerless = 0
        return matcher

    def keep(self, place: Place, matcher: Matcher, states: dict[int, bytes]) -> None:
        """Keep a matcher that has written these states, if that saves time."""
        if matcher.open_attempts is not None:
            self._kept[place] = matcher, states
            if len(self._kept) > MAX_MATCHERS:
                self._kept.popitem(last=False)


MATCHER_CACHE = MatcherCache()
