"""The suppression interval after a match of a key: matches within it are counted, but not emitted."""

import numpy as np

from workers.pipeline.matching.retained.group_state import GroupStates
from workers.pipeline.matching.retained.matches import Matches


class Suppression:
    """The keys within their suppression interval: per key its group and when it last emitted (µs).

    within_us: the window of the pattern. A match that is found only when its window is over was completed at most that
    long before, and still has to be suppressed.
    """

    def __init__(self, suppression_us: int, within_us: int) -> None:
        self._suppression_us, self._kept_us = suppression_us, suppression_us + within_us
        self.last: dict[str, tuple[int, int]] = {}

    def mark_suppressed(self, matches: Matches) -> Matches:
        """Mark the matches that fall into a suppression interval."""
        if not self._suppression_us or not len(matches):
            return matches
        rows = zip(matches.keys.to_pylist(), matches.groups.tolist(), matches.completed_us.tolist(), strict=True)
        suppressed = [not self._emits(key, group, at_us) for key, group, at_us in rows]
        return Matches(matches.events, matches.ends, np.array(suppressed, bool))

    def _emits(self, key: str, group: int, at_us: int) -> bool:
        last = self.last.get(key)
        if last is not None and at_us - last[1] < self._suppression_us:
            return False
        self.last[key] = group, at_us
        return True

    def advance(self, now_us: int) -> None:
        self.last = {key: last for key, last in self.last.items() if now_us - last[1] < self._kept_us}

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the time (µs) from which on `advance` removes something."""
        timers: dict[int, int] = {}
        for group, last_us in self.last.values():
            timers[group] = min(timers.get(group, last_us + self._kept_us), last_us + self._kept_us)
        return timers

    def save(self, states: GroupStates) -> None:
        by_group: dict[int, dict[str, int]] = {}
        for key, (group, last_us) in self.last.items():
            by_group.setdefault(group, {})[key] = last_us
        states.put_values("quiet", by_group)

    def load(self, states: GroupStates) -> None:
        for group, last in states.collect_values("quiet").items():
            self.last.update({key: (group, last_us) for key, last_us in last.items()})
