"""Forecasts of the offered load and expected ranges of rates, computed once a minute from past arrivals.

Each rate has one forecast: of each queue, of each attached plant, and of all queues together. The forecast of an
application is the sum of those of its queues. All laws and alerts read them from the snapshot.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import redis

from common.stored_document import replace_fields
from controllers.design import expected_band
from workers.documents.plants import LoadForecast
from workers.documents.snapshot import ExpectedBand, ExpectedBands, RateChange
from workers.history import metric_history, training_sets
from workers.history.training_sets import TrainingRefused, TrainingSet

Floats = npt.NDArray[np.float64]
MINUTE_SECONDS = 60.0
PAST_SECONDS = 7.5 * expected_band.DAY_SECONDS


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


IN, OUT = "in_per_second", "out_per_second"
MAX_QUEUES = 100  # by name: a forecast takes some milliseconds of a core each minute
MAX_CHANGES = 5  # a rate that changes more often has no level
DIGITS = 3
WINDOW_SECONDS, WINDOWS, EVERY_SECONDS = 60.0, 15, 60.0
# Prefixes of the names of plants and queues among applications.
PLANT, QUEUE = "plant:", "queue:"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ForecastSubjects:
    """The subjects of forecasts: queues, applications with the queues that they read, and attached plants."""

    queues: Sequence[str] = ()
    applications: Mapping[str, Sequence[str]] = field(default_factory=dict)
    plants: Sequence[str] = ()

    @property
    def names(self) -> set[str]:
        """Return the names of the forecasts, without queues, whose forecasts depend on their past."""
        return {*self.applications, *(PLANT + name for name in self.plants)}

    @property
    def all_queues(self) -> list[str]:
        """Return the queues whose rates are forecast."""
        read = {name for queues in self.applications.values() for name in queues}
        return sorted({*sorted(self.queues)[:MAX_QUEUES], *read})


@dataclass(frozen=True)
class Forecasts:
    """The latest forecasts by name, and the expected ranges of rates."""

    loads: Mapping[str, LoadForecast] = field(default_factory=dict)
    bands: ExpectedBands = field(default_factory=ExpectedBands)


@dataclass
class _RateWatch:
    """One rate: its forecaster, and the planned ranges by start time, the earliest first."""

    forecaster: expected_band.RateForecaster = field(default_factory=expected_band.RateForecaster)
    planned: deque[tuple[float, expected_band.ForecastBand]] = field(default_factory=deque)

    def plan(self, band: expected_band.ForecastBand | None, now_seconds: float) -> expected_band.ForecastBand | None:
        """Plan a range for its time; return the one in force now."""
        # After the clock was set back, older plans would stay in force until it has caught up.
        while len(self.planned) > 1 and self.planned[-1][0] > now_seconds + expected_band.AHEAD_SECONDS:
            self.planned.pop()
        if band is not None:
            self.planned.append((now_seconds + expected_band.AHEAD_SECONDS, band))
        while len(self.planned) > 1 and self.planned[1][0] <= now_seconds:
            self.planned.popleft()
        return self.planned[0][1] if self.planned else None


@dataclass(frozen=True)
class _PastRate:
    """The whole minutes of a rate, after those of its training set."""

    at: Floats
    rates: Floats
    measured: int  # the newest values that were measured
    trained_until: str | None = None
    refused: str | None = None


class ForecastWatch:
    """The computation of all forecasts. One thread queries it each second.

    `minutes` reads the past of some series, `trained` the newest training set of a queue.
    """

    def __init__(
        self,
        minutes: Callable[[Sequence[str], float], tuple[Floats, Floats]],
        trained: Callable[[str, float], TrainingSet | None] = lambda queue, now_seconds: None,
    ) -> None:
        self._minutes, self._trained = minutes, trained
        self._watches: dict[str, _RateWatch] = {}
        self._latest = Forecasts()
        self._renewed_at: float | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def load(cls, control: redis.Redis, data: Path) -> "ForecastWatch":
        """Create one that reads the plant's history."""
        return cls(
            MinuteRates(control, data).build,
            lambda queue, now_seconds: training_sets.load_newest_set(data, queue, now_seconds),
        )

    def collect(self, subjects: ForecastSubjects, now_seconds: float) -> Forecasts:
        """Return the latest forecasts, without new subjects that have none yet and without deleted subjects."""
        is_due = self._renewed_at is None or abs(now_seconds - self._renewed_at) >= EVERY_SECONDS
        is_new = not subjects.names <= self._latest.loads.keys()
        if (is_due or is_new) and not (self._thread and self._thread.is_alive()):
            self._renewed_at = now_seconds
            self._thread = threading.Thread(
                target=self._renew, args=(subjects, now_seconds), name="forecasts", daemon=True
            )
            self._thread.start()
        names = subjects.names | {QUEUE + name for name in subjects.queues}
        loads = {name: row for name, row in self._latest.loads.items() if name in names}
        bands = {name: rows for name, rows in self._latest.bands.queues.items() if name in subjects.queues}
        return Forecasts(loads, replace_fields(self._latest.bands, queues=bands))

    def wait(self) -> None:
        """Wait for the computation in progress."""
        if self._thread:
            self._thread.join()

    def _renew(self, subjects: ForecastSubjects, now_seconds: float) -> None:
        try:
            self._latest = self._build_forecasts(subjects, now_seconds)
        except Exception as error:  # a failure here must not end the observation of the plant
            logger.exception("Computing the forecasts failed.")
            why = f"the forecast failed ({type(error).__name__})"
            failed = LoadForecast(at=now_seconds, window_seconds=WINDOW_SECONDS, refused=why)
            self._latest = Forecasts(dict.fromkeys(subjects.names, failed))

    def _build_forecasts(self, subjects: ForecastSubjects, now_seconds: float) -> Forecasts:
        queues, plants = subjects.all_queues, subjects.plants
        keys = [("totals", ""), *(("queues", name) for name in queues)]
        series = {".".join(filter(None, (*key, rate))): (*key, rate) for key in keys for rate in (IN, OUT)}
        series |= {f"plants.{name}.{IN}": ("plants", name, IN) for name in plants}
        at, rates = self._minutes(list(series), now_seconds)
        self._watches = {name: self._watches.get(name) or _RateWatch() for name in series}
        loads: dict[str, LoadForecast] = {}
        bands: dict[str, dict[str, ExpectedBand]] = {}
        for (name, (kind, subject, rate)), values in zip(series.items(), rates, strict=True):
            past = self._build_past(subject if (kind, rate) == ("queues", IN) else None, at, values, now_seconds)
            watch = self._watches[name]
            ahead = now_seconds + (np.arange(WINDOWS, dtype=np.float64) + 0.5) * WINDOW_SECONDS
            forecast = watch.forecaster.predict(past.at, past.rates, now_seconds, ahead)
            band = watch.plan(forecast.band if forecast else None, now_seconds)
            if kind != "totals" and rate == IN:
                loads[(PLANT if kind == "plants" else QUEUE) + subject] = _build_load(past, forecast, now_seconds)
            if kind != "plants" and band is not None:
                bands.setdefault(subject, {})[rate] = _build_expected_band(band, past, now_seconds)
        for application, read in subjects.applications.items():
            loads[application] = _add_loads([loads[QUEUE + name] for name in read], now_seconds)
        return Forecasts(loads, ExpectedBands(totals=bands.pop("", {}), queues=bands))

    def _build_past(self, queue: str | None, at: Floats, rates: Floats, now_seconds: float) -> _PastRate:
        """Return a rate's whole minutes, and for the time before, the training set of its queue."""
        whole = ~np.isnan(rates) & (at < now_seconds - now_seconds % MINUTE_SECONDS)
        at, rates = at[whole], rates[whole]
        try:
            training_set = None if queue is None else self._trained(queue, now_seconds)
        except TrainingRefused as error:
            return _PastRate(at, rates, at.size, refused=str(error))
        if training_set is None:
            return _PastRate(at, rates, at.size)
        before = training_set.at_seconds < at.min() if at.size else np.ones(training_set.at_seconds.size, dtype=bool)
        return _PastRate(
            np.concatenate([training_set.at_seconds[before], at]),
            np.concatenate([training_set.rates_per_second[before], rates]),
            at.size,
            training_set.newest_day.isoformat(),
        )


def _build_load(past: _PastRate, forecast: expected_band.RateForecast | None, now_seconds: float) -> LoadForecast:
    days = float(past.at[-1] - past.at[0]) / expected_band.DAY_SECONDS if past.at.size else 0.0
    row = LoadForecast(
        at=now_seconds,
        window_seconds=WINDOW_SECONDS,
        days=round(days, DIGITS),
        trained_until=past.trained_until,
        refused=past.refused,
    )
    if forecast is None:
        return replace_fields(row, refused=f"collecting data: {past.at.size} of {expected_band.MIN_STRETCHES} minutes")
    return replace_fields(
        row,
        mean_per_second=np.round(forecast.mean, DIGITS).tolist(),
        deviation_per_second=np.round(forecast.deviation, DIGITS).tolist(),
    )


def _add_loads(rows: Sequence[LoadForecast], now_seconds: float) -> LoadForecast:
    """Return the sum of forecasts. The deviations are added, because their errors can have one cause."""
    refused = next((row.refused for row in rows if row.refused), None)
    if not rows or any(row.mean_per_second is None for row in rows):
        return LoadForecast(at=now_seconds, window_seconds=WINDOW_SECONDS, refused=refused)
    means, deviations = (
        np.round(np.sum([getattr(row, name) for row in rows], axis=0), DIGITS).tolist()
        for name in ("mean_per_second", "deviation_per_second")
    )
    trained = [row.trained_until for row in rows]
    return LoadForecast(
        at=now_seconds,
        window_seconds=WINDOW_SECONDS,
        mean_per_second=means,
        deviation_per_second=deviations,
        days=min(row.days for row in rows),
        trained_until=None if None in trained else min(filter(None, trained)),
        refused=refused,
    )


def _build_expected_band(band: expected_band.ForecastBand, past: _PastRate, now_seconds: float) -> ExpectedBand:
    if not past.measured:
        return ExpectedBand(low=round(band.low, DIGITS), high=round(band.high, DIGITS), days=round(band.days, DIGITS))
    newest = past.at[-1]
    is_new = newest >= now_seconds - now_seconds % MINUTE_SECONDS - MINUTE_SECONDS
    return ExpectedBand(
        low=round(band.low, DIGITS),
        high=round(band.high, DIGITS),
        days=round(band.days, DIGITS),
        minute=round(float(past.rates[-1]), DIGITS) if is_new else None,
        changes=_list_rate_changes(past.at[-past.measured :], past.rates[-past.measured :], now_seconds),
    )


def _list_rate_changes(at: Floats, rates: Floats, now_seconds: float) -> list[RateChange]:
    """Return the newest changes of the last day."""
    day = at >= now_seconds - expected_band.DAY_SECONDS
    changes = expected_band.change_points(at[day], rates[day])[-MAX_CHANGES:]
    return [
        RateChange(
            at=round(change.at_seconds, DIGITS), before=round(change.before, DIGITS), after=round(change.after, DIGITS)
        )
        for change in changes
    ]
