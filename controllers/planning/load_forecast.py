"""The load that a plan expects: a forecast by time of day, corrected by the load of the last seconds.

The correction fades with `memory_seconds`: a burst ends sooner or later, and the time of day remains. The deviation is
that share of the mean by which the corrected forecast was wrong recently: the 80 % quantile of the last `KEPT` errors
of means over `LEAD_SECONDS`, over 1.2816, as for a normal error. Until `MIN_ERRORS` are known, it is the forecast's own
deviation, at most `MAX_UNKNOWN_SHARE` of the mean.
"""

from dataclasses import dataclass, field

import numpy as np

from controllers.planning.inputs import Floats

LEAD_SECONDS, KEPT, MIN_ERRORS, QUANTILE = 60.0, 60, 5, 0.8
NORMAL_QUANTILE, MAX_UNKNOWN_SHARE = 1.2816, 0.08


def correct_forecast(means: Floats, recent: Floats, ahead_seconds: Floats, memory_seconds: float) -> Floats:
    """Return forecasts (rows by time) that begin at the recent load of each row."""
    error = (recent - means[:, 0])[:, None]
    return np.maximum(0.0, means + error * np.exp(-ahead_seconds / memory_seconds))


@dataclass
class BandScale:
    """The deviation of the corrected forecasts, from their errors."""

    step_seconds: float
    _open: list[tuple[int, Floats]] = field(default_factory=list)
    _errors: list[Floats] = field(default_factory=list)

    def expect(self, second: int, means: Floats) -> None:
        """Remember a forecast of the next `LEAD_SECONDS`."""
        self._open.append((second, means[:, : max(1, round(LEAD_SECONDS / self.step_seconds))].mean(axis=1)))

    def observe(self, past: Floats) -> None:
        """Compare forecasts with the arrivals so far (seconds by rows)."""
        while self._open and len(past) >= self._open[0][0] + LEAD_SECONDS:
            second, mean = self._open.pop(0)
            actual = past[second : second + round(LEAD_SECONDS)].mean(axis=0)
            self._errors = [*self._errors, np.abs(actual - mean) / np.maximum(mean, 1.0)][-KEPT:]

    def compute_deviations(self, means: Floats, deviations: Floats) -> Floats:
        """Return the deviations of the means."""
        if len(self._errors) < MIN_ERRORS:
            return np.minimum(deviations, MAX_UNKNOWN_SHARE * means)
        share = np.quantile(np.asarray(self._errors), QUANTILE, axis=0) / NORMAL_QUANTILE
        return np.asarray(share[:, None] * means)
