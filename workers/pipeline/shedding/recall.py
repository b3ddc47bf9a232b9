"""The cost of shedding, estimated at run time from the control keys, whose matches are all found.

    recall = (n_o / E_o) / (n_s / E_s)

n: matches, E: events of use that were offered, s: of the control keys, o: of all others. The interval treats matches as
Poisson: given n_s + n_o, n_o is binomial (Clopper and Pearson's exact interval). Keys differ, so matches come in
clumps. The clumping is measured in the groups in which the control keys are counted (random groups; the variance of n_g
- n_s E_g / E_s over the Poisson variance), and the counts are reduced by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import scipy

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Recall:
    """An estimate and its interval, as shares from 0.

    high may be None: no bound. matches: matches of control keys.
    """

    estimate: float
    low: float
    high: float | None
    matches: int


def recall_of(
    control_matches: Sequence[int], control_events: Sequence[int], matches: int, events: int
) -> Recall | None:
    """Return the recall, or None if there is no basis for an estimate.

    `control_*`: per group of control keys; the others: of all other keys. An estimate above 1 is chance, and
    shown as 1.
    """
    of_control, offered = sum(control_matches), sum(control_events)
    if not of_control or not offered or not events:
        return None
    odds = events / offered  # number of matches of others per match of a control key, if none is lost
    clumps = compute_clumping(control_matches, control_events)
    low, high = _compute_ratio_bounds(of_control / clumps, matches / clumps)
    return Recall(
        min(1.0, matches / (of_control * odds)),
        min(1.0, low / odds),
        None if high is None else min(1.0, high / odds),
        of_control,
    )


def compute_clumping(matches: Sequence[int], events: Sequence[int]) -> float:
    """Return the ratio of the variance between groups to the Poisson variance; at least 1."""
    whole, offered = sum(matches), sum(events)
    groups = [(n, e) for n, e in zip(matches, events, strict=True) if e]
    if len(groups) < 2:
        return 1.0
    excess = sum((n - whole * e / offered) ** 2 / (whole * e / offered) for n, e in groups)
    return max(1.0, excess / (len(groups) - 1))


def _compute_ratio_bounds(of_control: float, of_others: float) -> tuple[float, float | None]:
    """Return bounds of the ratio of the other keys' match rate to that of the control keys."""
    tail = (1 - CONFIDENCE) / 2
    low = float(scipy.special.betaincinv(of_others, of_control + 1, tail)) if of_others else 0.0
    high = float(scipy.special.betaincinv(of_others + 1, of_control, 1 - tail))
    return low / (1 - low), high / (1 - high) if high < 1 else None
