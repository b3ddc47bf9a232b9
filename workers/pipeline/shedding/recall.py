"""What shedding costs, estimated while it goes on: from the control keys, whose matches are all found.

    recall = (n_o / E_o) / (n_s / E_s)

n: matches, E: events of use that were offered, s: of the control keys, o: of all others. The interval treats
matches as Poisson: given n_s + n_o, n_o is binomial (Clopper and Pearson's exact interval). Keys differ, so
matches come in clumps: by how much is seen in the groups the control keys are counted in (random groups; the
variance of n_g - n_s E_g / E_s over what Poisson would give), and the counts are made smaller by that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import scipy

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Recall:
    """estimate and its interval, shares from 0; high may be None: no bound. matches: of control keys."""

    estimate: float
    low: float
    high: float | None
    matches: int


def recall_of(
    control_matches: Sequence[int], control_events: Sequence[int], matches: int, events: int
) -> Recall | None:
    """`spared_*`: per group of control keys; the others: of all other keys. None: there is nothing to
    estimate by.

    An estimate above 1 is chance, and shown as 1.
    """
    of_control, offered = sum(control_matches), sum(control_events)
    if not of_control or not offered or not events:
        return None
    odds = (
        events / offered
    )  # how many of the others' matches go with one of the control keys', if none is lost
    clumps = compute_clumping(control_matches, control_events)
    low, high = _interval(of_control / clumps, matches / clumps)
    return Recall(
        min(1.0, matches / (of_control * odds)),
        min(1.0, low / odds),
        None if high is None else min(1.0, high / odds),
        of_control,
    )


def compute_clumping(matches: Sequence[int], events: Sequence[int]) -> float:
    """How many times the variance between groups is Poisson's; at least 1."""
    whole, offered = sum(matches), sum(events)
    groups = [(n, e) for n, e in zip(matches, events, strict=True) if e]
    if len(groups) < 2:
        return 1.0
    excess = sum((n - whole * e / offered) ** 2 / (whole * e / offered) for n, e in groups)
    return max(1.0, excess / (len(groups) - 1))


def _interval(of_control: float, of_others: float) -> tuple[float, float | None]:
    """Bounds of the ratio of rates of the others' matches to the control keys'."""
    tail = (1 - CONFIDENCE) / 2
    low = float(scipy.special.betaincinv(of_others, of_control + 1, tail)) if of_others else 0.0
    high = float(scipy.special.betaincinv(of_others + 1, of_control, 1 - tail))
    return low / (1 - low), high / (1 - high) if high < 1 else None
