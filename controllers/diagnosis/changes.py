"""Changes before a fault, the likeliest cause first.

A change of a kind k came `delay` seconds before the onset, at d steps from the disturbed part. Its weight is

    reach(d) · freshness(delay) · share(k) / chance(k) · (1, or OVER_SHARE)

    reach = 2^-d; a change of the whole plant counts as WHOLE_STEPS, one that is not upstream as FAR_STEPS
    freshness = T / (T + delay): half at T = 120 s; heavy-tailed, since some faults take hours to show
    share = (before + S·q) / (incidents + S): of the incidents of this kind those that a change of kind k
        preceded, drawn towards q = 1/4 by S = 4 imagined ones, so that few incidents say little
    chance = 1 - e^(-rate·window): that such a change falls into any window, cause or not (`chance_of`); of
        one that is `times` as large as the least of its kind, chance / √times: rates double now and then, and
        seldom rise a hundredfold
    OVER_SHARE = 1/4: of one that had ended before the onset, as it acts no longer; its end is a change, too

share / chance is the ratio of the likelihood of seeing the change before a fault to that of seeing it anyway:
what happens all the time (a loop that acts each minute) is no news; what happens once a week is. After Bayes;
delay and distance are factors of their own choosing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HALF_SECONDS = 120.0
LEAST_CHANCE = 0.01
WHOLE_STEPS, FAR_STEPS = 2, 6
IMAGINED, IMAGINED_SHARE = 4.0, 0.25
OVER_SHARE = 0.25
# Clocks of hosts differ, and a fault is seen at the next look: a cause may seem to come so much later.
SLACK_SECONDS = 15.0


@dataclass(frozen=True)
class KindRecord:
    """How often a kind of change came before a kind of incident. before: of so many incidents; chance: the
    probability that any window of that length holds such a change (0 to 1).
    """

    before: int = 0
    incidents: int = 0
    chance: float = IMAGINED_SHARE

    def lift(self, times: float = 1.0) -> float:
        """share / chance of a change that is so large; 1: says nothing."""
        share = (self.before + IMAGINED * IMAGINED_SHARE) / (self.incidents + IMAGINED)
        return share / max(self.chance / math.sqrt(times), LEAST_CHANCE)


@dataclass(frozen=True)
class PlantChange:
    """A change at an instant (seconds since 1970). parts: what it touches; none: the whole plant. times: how
    large it is, of the least that counts (1 or more). is_over: whether it had ended before the onset.
    """

    kind: str
    at: float
    parts: frozenset[str] = frozenset()
    times: float = 1.0
    is_over: bool = False


@dataclass(frozen=True)
class RankedChange:
    """place: of the change in what was ranked. steps: None where it is not upstream; delay_seconds: to the
    onset.
    """

    place: int
    steps: int | None
    delay_seconds: float
    weight: float


def chance_of(count: int, window_seconds: float, observed_seconds: float, prior_seconds: float) -> float:
    """That a window holds one of so many changes: 1 - e^(-rate·window).

    rate = (count + 1/2) / (observed + prior), per second. The record is drawn towards half a change in the
    prior's time, so that the first hours of a plant, in which all is set up, make no kind of change usual.
    """
    return -math.expm1(-(count + 0.5) * window_seconds / (observed_seconds + prior_seconds))


def ranked(
    changes: Sequence[PlantChange],
    onset: float,
    steps_to: Mapping[str, int],
    records: Mapping[str, KindRecord],
) -> list[RankedChange]:
    """All that came before the onset (and SLACK_SECONDS later), the likeliest cause first."""
    unknown = KindRecord()
    found = [
        _ranked(place, change, onset, steps_to, records.get(change.kind, unknown))
        for place, change in enumerate(changes)
        if change.at <= onset + SLACK_SECONDS
    ]
    return sorted(found, key=lambda each: (-each.weight, each.delay_seconds, each.place))


def _ranked(
    place: int, change: PlantChange, onset: float, steps_to: Mapping[str, int], record: KindRecord
) -> RankedChange:
    delay = max(0.0, onset - change.at)
    known = [steps_to[part] for part in change.parts if part in steps_to]
    steps = min(known, default=None) if change.parts else WHOLE_STEPS
    reach = 2.0 ** -(FAR_STEPS if steps is None else steps)
    freshness = HALF_SECONDS / (HALF_SECONDS + delay)
    lasting = OVER_SHARE if change.is_over else 1.0
    return RankedChange(place, steps, delay, reach * freshness * record.lift(change.times) * lasting)
