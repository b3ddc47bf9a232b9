"""The rebalances of a cluster's groups and their durations, from the state of each group at each reading.

In the classic protocol, no member reads anything between the states *preparing* (or *completing*) *rebalance* and
*stable*. A reading sees a state at an instant, so a rebalance is assumed to begin and to end halfway between two
readings: its duration is known within the interval of the readings (2 s). A rebalance between two readings is seen by
the assignments that it changed; it is counted, and its duration is unknown.

Members of the protocol of Kafka 4 (KIP-848) read during a rebalance. It is counted by the changed assignments.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from workers.plants.foreign.kafka.group_lag import EMPTY, STABLE, Group, GroupReader

REBALANCING = frozenset({"preparing rebalancing", "completing rebalancing"})
WINDOW_SECONDS = 3600.0
MAX_REBALANCES = 200  # of a group that never becomes stable, within the window


@dataclass(frozen=True)
class Rebalance:
    """A rebalance that has ended at `at` (Unix seconds). seconds: its duration; None: shorter than a reading."""

    at: float
    seconds: float | None


@dataclass
class _Followed:
    """A group from one reading to the next."""

    at: float
    state: str
    assigned: Mapping[tuple[str, int], GroupReader]
    began_at: float | None = None
    ended: deque[Rebalance] = field(default_factory=lambda: deque(maxlen=MAX_REBALANCES))


class Rebalances:
    """The rebalances of the last hour of all groups. `follow` takes each reading's groups."""

    def __init__(self) -> None:
        self._groups: dict[str, _Followed] = {}

    def follow(self, groups: Mapping[str, Group], at: float) -> None:
        """Take the groups as read at `at` (Unix seconds). A group that is gone is forgotten."""
        self._groups = {
            name: self._step(self._groups[name], group, at)
            if name in self._groups and at >= self._groups[name].at
            else _Followed(at, group.state, group.assigned)
            for name, group in groups.items()
        }

    def count(self, name: str) -> int:
        """Return how many rebalances of the last hour were seen."""
        return len(self._groups[name].ended) if name in self._groups else 0

    def compute_seconds(self, name: str) -> float | None:
        """Return the median duration of the last hour's rebalances; None if no duration is known."""
        ended = self._groups[name].ended if name in self._groups else ()
        known = [rebalance.seconds for rebalance in ended if rebalance.seconds is not None]
        return round(median(known), 1) if known else None

    @staticmethod
    def _step(before: _Followed, group: Group, at: float) -> _Followed:
        halfway = (before.at + at) / 2
        began_at, ended = before.began_at, before.ended
        while ended and ended[0].at < at - WINDOW_SECONDS:
            ended.popleft()
        assigned = group.assigned if group.state == STABLE else before.assigned
        if group.state in REBALANCING:
            began_at = halfway if began_at is None else began_at
        elif group.state == STABLE and began_at is not None:
            ended.append(Rebalance(halfway, halfway - began_at))
            began_at = None
        elif group.state == STABLE and _is_changed(before, group):
            ended.append(Rebalance(halfway, None))
        elif group.state == EMPTY:
            began_at, assigned = None, {}
        return _Followed(at, group.state, assigned, began_at, ended)


def _is_changed(before: _Followed, group: Group) -> bool:
    """Return whether a group that was stable has other assignments; a group without any may just not report them."""
    return before.state == STABLE and bool(before.assigned) and before.assigned != group.assigned
