"""Means of several series by the minute, read completely once and then incrementally."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import redis

from workers.history import metric_history

Floats = npt.NDArray[np.float64]
MINUTE_SECONDS, DAY_SECONDS = 60.0, 86_400.0
PAST_SECONDS = 7.5 * DAY_SECONDS


class MinuteRates:
    """Minute means of one set of series; another set is read anew."""

    def __init__(self, control: redis.Redis, data: Path) -> None:
        self._control, self._data = control, data
        self._series: tuple[str, ...] = ()
        self._at, self._rates = np.zeros(0), np.zeros((0, 0))

    def build(self, series: Sequence[str], now_seconds: float) -> tuple[Floats, Floats]:
        """Return the mean time of each minute with measurements (s) and each series' mean.

        The means are an array, series by minutes; NaN: none.
        """
        if self._series != tuple(series):
            self._series, self._at, self._rates = tuple(series), np.zeros(0), np.zeros((len(series), 0))
        since = now_seconds - PAST_SECONDS
        kept = (self._at >= since) & (self._at <= now_seconds)
        at, rates = self._at[kept], self._rates[:, kept]
        # The newest minute may have been incomplete, so it is read again.
        begin = since if at.size == 0 else at[-1] - at[-1] % MINUTE_SECONDS
        before = at < begin
        averages = _average_by_minute(*self._read(begin, now_seconds, None if before.any() else PAST_SECONDS))
        self._at = np.concatenate([at[before], averages[0]])
        self._rates = np.concatenate([rates[:, before], averages[1]], axis=1)
        return self._at, self._rates

    def _read(self, since: float, until: float, range_seconds: float | None) -> tuple[Floats, Floats]:
        columns = metric_history.read_columns(
            self._control, self._data, since, until, self._series, range_seconds, means=True
        )
        at = np.asarray(columns["at"], dtype=float)
        rates = np.asarray([columns[name] for name in self._series], dtype=float)
        rates = rates.reshape(len(self._series), at.size)
        known = ~np.isnan(rates).all(axis=0)
        return at[known], rates[:, known]


def _average_by_minute(at: Floats, rates: Floats) -> tuple[Floats, Floats]:
    """Return the mean time and the mean rates of each minute with measurements."""
    _, place, counts = np.unique(at // MINUTE_SECONDS, return_inverse=True, return_counts=True)
    times = np.bincount(place, weights=at, minlength=counts.size) / np.maximum(counts, 1)
    means = np.full((len(rates), counts.size), np.nan)
    for row, values in enumerate(rates):
        known = ~np.isnan(values)
        sums = np.bincount(place[known], weights=values[known], minlength=counts.size)
        numbers = np.bincount(place[known], minlength=counts.size)
        np.divide(sums, numbers, out=means[row], where=numbers > 0)
    return times, means
