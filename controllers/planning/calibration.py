"""Intervals of what a plan expects, calibrated by what happened (adaptive conformal inference, Gibbs and Candès, 2021).

With the expected value e, the actual value y, and a scale s, the score of a plan is (y - e) / s. The interval of the
next plan is e + s [q(α / 2), q(1 - α / 2)], with the quantiles q of the last `KEPT` scores. After each verdict,

    α ← α + STEP (1 - LEVEL - missed)                     within `ALPHAS`

so the intervals become wider after misses and narrower after hits, whatever the distribution of the scores.

While fewer than `MIN_SCORES` verdicts are known, or less or more of the last `JUDGED` intervals than `PROMISED` held,
the intervals keep no promise, and the planner only advises.
"""

import math
from typing import Annotated

import msgspec
import numpy as np

from common.parameter import value

LEVEL, STEP, ALPHAS = 0.8, 0.02, (0.01, 0.6)
KEPT, MIN_SCORES, JUDGED, PROMISED = 120, 20, 50, (0.65, 0.95)
# Interval before any verdict, in scales on both sides.
UNKNOWN_WIDTH = 0.5
MAX_SCORE = 1e6


class IntervalCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of one expected value, and the miss rate that its intervals aim at."""

    scores: Annotated[
        tuple[float, ...], value("scales", "Recent errors, oldest first.", -MAX_SCORE, MAX_SCORE, most=KEPT)
    ] = ()
    alpha: Annotated[float, value("share", "Miss rate that the quantiles aim at.", *ALPHAS)] = 1 - LEVEL
    held: Annotated[tuple[int, ...], value("0 or 1", "1 for each recent interval that held.", 0, 1, most=JUDGED)] = ()

    def build_interval(self, expected: float, scale: float) -> tuple[float, float]:
        """Return the interval of a value that can't be negative."""
        if len(self.scores) < MIN_SCORES:
            low, high = -UNKNOWN_WIDTH, UNKNOWN_WIDTH
        else:
            low, high = np.quantile(self.scores, [self.alpha / 2, 1 - self.alpha / 2]).tolist()
        return max(0.0, expected + scale * low), max(0.0, expected + scale * high)

    def record(
        self, expected: float, scale: float, interval: tuple[float, float], actual: float
    ) -> "IntervalCalibration":
        """Return the calibration after the verdict on an interval."""
        score = min(max((actual - expected) / scale, -MAX_SCORE), MAX_SCORE)
        if not math.isfinite(score):
            return self
        slack = 1e-9 * (1 + abs(actual))
        is_held = interval[0] - slack <= actual <= interval[1] + slack
        alpha = self.alpha + STEP * (1 - LEVEL - (not is_held))
        return IntervalCalibration(
            scores=(*self.scores, score)[-KEPT:],
            alpha=min(max(alpha, ALPHAS[0]), ALPHAS[1]),
            held=(*self.held, int(is_held))[-JUDGED:],
        )

    @property
    def coverage(self) -> float | None:
        """Return the share of recent intervals that held; None while too few are known."""
        return sum(self.held) / len(self.held) if len(self.held) >= MIN_SCORES else None

    @property
    def is_trusted(self) -> bool:
        """Return whether the intervals keep what they promise."""
        return self.coverage is not None and PROMISED[0] <= self.coverage <= PROMISED[1]
