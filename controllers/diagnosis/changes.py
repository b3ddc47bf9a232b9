"""Distance of each part of a plant from a fault: steps upstream, from the affected part to its influences.

A part is `kind/name` ("queue/alert", "node/n1"); `influences` names, for each part, those that act on it directly: its
sources, its host, its readers (which may hold it up), and the loops that control it.

Ranking of the changes before a fault, the likeliest cause first.

A change of a kind k came `delay` seconds before the onset, at d steps from the affected part. Its weight is

    reach(d) · freshness(delay) · share(k) / chance(k) · (1, or OVER_SHARE)

    reach = 2^-d; a change of the whole plant counts as WHOLE_STEPS, one that is not upstream as FAR_STEPS
    freshness = T / (T + delay): half at T = 120 s; heavy-tailed, because some faults take hours to show
    share = (before + S·q) / (incidents + S): the share of incidents of this kind after a change of kind k,
        drawn towards q = 1/4 by S = 4 imagined incidents, so that few incidents carry little weight
    chance = 1 - e^(-rate·window): the probability that any window holds such a change (`chance_of`); for a
        change `times` as large as the smallest of its kind, chance / √times, because a rate doubles now and
        then, but seldom rises a hundredfold
    OVER_SHARE = 1/4: for a change that ended before the onset and acts no longer; its end is a change, too

share / chance is a likelihood ratio, after Bayes: seeing the change before a fault compared with seeing it anyway. A
loop that acts each minute is no news; a weekly change is. Delay and distance are separate factors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Influences = Mapping[str, Iterable[str]]


def compute_distances(influences: Influences, subjects: Iterable[str]) -> dict[str, int]:
    """Return the steps from the subjects (0) to each part that can act on them, by breadth-first search.

    Parts that cannot act on them are left out.
    """
    steps = dict.fromkeys(subjects, 0)
    level = list(steps)
    step = 0
    while level:
        step += 1
        nearer = [part for neighbor in level for part in influences.get(neighbor, ()) if part not in steps]
        level = list(dict.fromkeys(nearer))
        steps.update(dict.fromkeys(level, step))
    return steps


HALF_SECONDS = 120.0
MIN_CHANCE = 0.01
WHOLE_STEPS, FAR_STEPS = 2, 6
IMAGINED, IMAGINED_SHARE = 4.0, 0.25
OVER_SHARE = 0.25
# Clocks of hosts differ, and a fault is noticed at the next check, so a cause may seem to come this much later.
SLACK_SECONDS = 15.0


@dataclass(frozen=True)
class KindRecord:
    """The record of how often a kind of change preceded a kind of incident.

    The change preceded `before` of `incidents`. `chance` is the probability that a window of that length holds such a
    change (0 to 1).
    """

    before: int = 0
    incidents: int = 0
    chance: float = IMAGINED_SHARE

    def lift(self, times: float = 1.0) -> float:
        """Return share / chance of a change of that size; 1 means no information."""
        share = (self.before + IMAGINED * IMAGINED_SHARE) / (self.incidents + IMAGINED)
        return share / max(self.chance / math.sqrt(times), MIN_CHANCE)


@dataclass(frozen=True)
class PlantChange:
    """A change at an instant (seconds since 1970).

    `parts` are the affected parts; none means the whole plant. `times` is its size, relative to the smallest that
    counts (1 or more). `is_over` tells whether it ended before the onset.
    """

    kind: str
    at: float
    parts: frozenset[str] = frozenset()
    times: float = 1.0
    is_over: bool = False


@dataclass(frozen=True)
class RankedChange:
    """A ranked change: its `place` in the input, its `steps`, and `delay_seconds` to the onset.

    `steps` is None if the change is not upstream.
    """

    place: int
    steps: int | None
    delay_seconds: float
    weight: float


def compute_change_probability(
    count: int, window_seconds: float, observed_seconds: float, prior_seconds: float
) -> float:
    """Return the probability that a window holds one of `count` changes: 1 - e^(-rate·window).

    rate = (count + 1/2) / (observed + prior), per second. The record is drawn towards half a change in the prior's
    time, so that the first hours of a plant, with all their setup, make no kind of change usual.
    """
    return -math.expm1(-(count + 0.5) * window_seconds / (observed_seconds + prior_seconds))


def rank_changes(
    changes: Sequence[PlantChange], onset: float, steps_to: Mapping[str, int], records: Mapping[str, KindRecord]
) -> list[RankedChange]:
    """Return all changes before the onset (and SLACK_SECONDS later), the likeliest cause first."""
    unknown = KindRecord()
    ranking = [
        _rank_change(place, change, onset, steps_to, records.get(change.kind, unknown))
        for place, change in enumerate(changes)
        if change.at <= onset + SLACK_SECONDS
    ]
    return sorted(ranking, key=lambda change: (-change.weight, change.delay_seconds, change.place))


def _rank_change(
    place: int, change: PlantChange, onset: float, steps_to: Mapping[str, int], record: KindRecord
) -> RankedChange:
    delay = max(0.0, onset - change.at)
    known = [steps_to[part] for part in change.parts if part in steps_to]
    steps = min(known, default=None) if change.parts else WHOLE_STEPS
    reach = 2.0 ** -(FAR_STEPS if steps is None else steps)
    freshness = HALF_SECONDS / (HALF_SECONDS + delay)
    lasting = OVER_SHARE if change.is_over else 1.0
    return RankedChange(place, steps, delay, reach * freshness * record.lift(change.times) * lasting)
