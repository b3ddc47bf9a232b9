"""Expected ranges of rates and forecasts of offered load, computed once a minute from past arrivals."""

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
from controllers.design.expected_band import (
    AHEAD_SECONDS,
    DAY_SECONDS,
    MIN_STRETCHES,
    BandForecaster,
    ForecastBand,
    PastRanges,
    change_points,
)
from controllers.design.forecast import Forecaster
from workers.documents.plants import LoadForecast
from workers.documents.snapshot import ExpectedBand, ExpectedBands, RateChange
from workers.history import metric_history, training_sets
from workers.history.training_sets import TrainingRefused

Floats = npt.NDArray[np.float64]
MINUTE_SECONDS = 60.0
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


RATES = ("in_per_second", "out_per_second")
MAX_QUEUES = 50  # by name: a range takes some milliseconds of a core each minute
MAX_CHANGES = 5  # a rate that changes more often has no level
DIGITS = 3
logger = logging.getLogger(__name__)


@dataclass
class PlannedBands:
    """The planned ranges of one rate, by the time from which each is in force, the earliest first."""

    forecaster: BandForecaster = field(default_factory=BandForecaster)
    planned: deque[tuple[float, ForecastBand]] = field(default_factory=deque)

    def plan(self, band: ForecastBand | None, now_seconds: float) -> ForecastBand | None:
        """Plan a range for its time; return the one in force now."""
        # After the clock was set back, older plans would stay in force until it has caught up.
        while len(self.planned) > 1 and self.planned[-1][0] > now_seconds + AHEAD_SECONDS:
            self.planned.pop()
        if band is not None:
            self.planned.append((now_seconds + AHEAD_SECONDS, band))
        while len(self.planned) > 1 and self.planned[1][0] <= now_seconds:
            self.planned.popleft()
        return self.planned[0][1] if self.planned else None


class BandWatch:
    """Computation of expected ranges, queried each second by one thread.

    `minutes` reads the past of some series.
    """

    def __init__(self, minutes: Callable[[Sequence[str], float], tuple[Floats, Floats]]) -> None:
        self._minutes = minutes
        self._plans: dict[str, PlannedBands] = {}
        self._found = ExpectedBands()
        self._renewed_at: float | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def load(cls, control: redis.Redis, data: Path) -> "BandWatch":
        """Create one that reads the plant's history."""
        return cls(MinuteRates(control, data).build)

    def collect_rows(self, queues: Sequence[str], now_seconds: float) -> ExpectedBands:
        """Return the latest ranges; new queues have none yet, and deleted queues are left out."""
        is_due = self._renewed_at is None or abs(now_seconds - self._renewed_at) >= MINUTE_SECONDS
        if is_due and not (self._thread and self._thread.is_alive()):
            self._renewed_at = now_seconds
            known = sorted(queues)[:MAX_QUEUES]
            self._thread = threading.Thread(target=self._renew, args=(known, now_seconds), name="bands", daemon=True)
            self._thread.start()
        there = {name: rows for name, rows in self._found.queues.items() if name in queues}
        return replace_fields(self._found, queues=there)

    def wait(self) -> None:
        """Wait for the computation in progress."""
        if self._thread:
            self._thread.join()

    def _renew(self, queues: Sequence[str], now_seconds: float) -> None:
        subjects = [("totals", ""), *(("queues", name) for name in queues)]
        series = {
            (kind, name, rate): ".".join(filter(None, (kind, name, rate))) for kind, name in subjects for rate in RATES
        }
        try:
            at, rates = self._minutes(list(series.values()), now_seconds)
            rows = {
                key: self._build_expected_band(name, at, values, now_seconds)
                for (key, name), values in zip(series.items(), rates, strict=True)
            }
        except Exception:  # a failure here must not end the observation of the plant; the known ranges go out of date
            logger.exception("Computing the expected ranges failed.")
            self._found = ExpectedBands()
            return
        self._plans = {name: self._plans[name] for name in series.values() if name in self._plans}
        bands: dict[str, dict[str, ExpectedBand]] = {}
        for (_, name, rate), row in rows.items():
            if row is not None:
                bands.setdefault(name, {})[rate] = row
        self._found = ExpectedBands(totals=bands.pop("", {}), queues=bands)

    def _build_expected_band(self, name: str, at: Floats, rates: Floats, now_seconds: float) -> ExpectedBand | None:
        known = ~np.isnan(rates)
        whole = known & (at < now_seconds - now_seconds % MINUTE_SECONDS)
        plan = self._plans.setdefault(name, PlannedBands())
        made = plan.forecaster.predict_limits(at[whole], rates[whole], now_seconds) if whole.any() else None
        band = plan.plan(made, now_seconds)
        if band is None:
            return None
        newest = at[whole][-1] if whole.any() else 0.0
        is_new = newest >= now_seconds - now_seconds % MINUTE_SECONDS - MINUTE_SECONDS
        return ExpectedBand(
            low=round(band.low, DIGITS),
            high=round(band.high, DIGITS),
            days=round(band.days, DIGITS),
            minute=round(float(rates[whole][-1]), DIGITS) if is_new else None,
            changes=_list_rate_changes(at[whole], rates[whole], now_seconds),
        )


def _list_rate_changes(at: Floats, rates: Floats, now_seconds: float) -> list[RateChange]:
    """Return the newest changes of the last day."""
    day = at >= now_seconds - DAY_SECONDS
    changes = change_points(at[day], rates[day])[-MAX_CHANGES:]
    return [
        RateChange(
            at=round(change.at_seconds, DIGITS), before=round(change.before, DIGITS), after=round(change.after, DIGITS)
        )
        for change in changes
    ]


WINDOW_SECONDS, WINDOWS, EVERY_SECONDS = 60.0, 15, 60.0
PLANT = "plant:"  # prefix of a registered plant's name among applications


@dataclass(frozen=True)
class LoadSource:
    """The source of offered load: the queues that an application reads, or a registered plant."""

    queues: tuple[str, ...] = ()
    plant: str = ""

    @property
    def series(self) -> list[str]:
        """Return its series, events/s each."""
        if self.plant:
            return [f"plants.{self.plant}.in_per_second"]
        return [f"queues.{name}.in_per_second" for name in self.queues]


Sources = Mapping[str, LoadSource]


@dataclass(frozen=True)
class OfferedLoad:
    """The offered load by time, events/s, and the use of a training set."""

    at_seconds: Floats
    rates_per_second: Floats
    trained_until: str | None
    refused: str | None


class LoadForecasts:
    """Computation of forecasts, queried each second by one thread.

    `past` reads the arrivals of a source until now.
    """

    def __init__(self, past: Callable[[LoadSource, float], OfferedLoad], every_seconds: float = EVERY_SECONDS) -> None:
        self._past, self._every_seconds = past, every_seconds
        self._forecasters: dict[str, Forecaster] = {}
        self._documents: dict[str, LoadForecast] = {}
        self._renewed_at: float | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def load(cls, control: redis.Redis, data: Path) -> "LoadForecasts":
        """Create one that reads the plant's history."""
        history = History(control, data)
        return cls(lambda source, now: read_past_load(history, data, source, now))

    def collect_rows(self, sources: Sources, now_seconds: float) -> dict[str, LoadForecast]:
        """Return the latest forecasts by name; new sources have none yet."""
        is_due = self._renewed_at is None or abs(now_seconds - self._renewed_at) >= self._every_seconds
        is_new = not sources.keys() <= self._documents.keys()
        if (is_due or is_new) and not (self._thread and self._thread.is_alive()):
            self._renewed_at = now_seconds
            self._thread = threading.Thread(
                target=self._renew, args=(dict(sources), now_seconds), name="foresight", daemon=True
            )
            self._thread.start()
        return {name: self._documents[name] for name in sources if name in self._documents}

    def wait(self) -> None:
        """Wait for the computation in progress."""
        if self._thread:
            self._thread.join()

    def _renew(self, sources: Sources, now_seconds: float) -> None:
        forecasts = {}
        for name, source in sources.items():
            try:
                forecasts[name] = self._forecast(name, self._past(source, now_seconds), now_seconds)
            except Exception as error:  # a failure here must not end the observation of the plant
                logger.exception("No forecast for %s.", name)
                forecasts[name] = build_unknown_forecast(
                    now_seconds, refused=f"the forecast failed ({type(error).__name__})"
                )
        self._documents = forecasts

    def _forecast(self, name: str, past: OfferedLoad, now_seconds: float) -> LoadForecast:
        stretches = PastRanges.build(past.at_seconds, past.rates_per_second)
        if stretches.at_seconds.size < MIN_STRETCHES:
            known = stretches.at_seconds.size
            why = f"collecting data: {known} of {MIN_STRETCHES} minutes"
            return build_unknown_forecast(now_seconds, past, why)
        forecaster = self._forecasters.setdefault(name, Forecaster(DAY_SECONDS))
        ahead = now_seconds + (np.arange(WINDOWS, dtype=np.float64) + 0.5) * WINDOW_SECONDS
        mean, deviation = forecaster.predict_ahead(stretches.at_seconds, stretches.means, ahead)
        return replace_fields(
            build_unknown_forecast(now_seconds, past),
            mean_per_second=np.round(mean, DIGITS).tolist(),
            deviation_per_second=np.round(deviation, DIGITS).tolist(),
        )


def build_unknown_forecast(
    now_seconds: float, past: OfferedLoad | None = None, refused: str | None = None
) -> LoadForecast:
    """Return a document without a forecast."""
    at = past.at_seconds if past else np.zeros(0)
    return LoadForecast(
        at=now_seconds,
        window_seconds=WINDOW_SECONDS,
        days=round(float(at.max() - at.min()) / DAY_SECONDS, DIGITS) if at.size else 0.0,
        trained_until=past.trained_until if past else None,
        refused=refused or (past.refused if past else None),
    )


class History:
    """The load offered by a source, all of its queues together, by the minute."""

    def __init__(self, control: redis.Redis, data: Path) -> None:
        self._control, self._data = control, data
        self._known: dict[LoadSource, MinuteRates] = {}

    def build(self, source: LoadSource, now_seconds: float) -> tuple[Floats, Floats]:
        """Return times and the load offered then, events/s."""
        minutes = self._known.setdefault(source, MinuteRates(self._control, self._data))
        at, rates = minutes.build(source.series, now_seconds)
        return at, np.nansum(rates, axis=0)


def read_past_load(history: History, data: Path, source: LoadSource, now_seconds: float) -> OfferedLoad:
    """Return the measured load and, for the time before, that of the training sets of its queues."""
    at, measured = history.build(source, now_seconds)
    try:
        trained = [training_sets.load_newest_set(data, name, now_seconds) for name in source.queues]
    except TrainingRefused as error:
        return OfferedLoad(at, measured, None, str(error))
    if not trained or any(training_set is None for training_set in trained):
        return OfferedLoad(at, measured, None, None)
    return _join_sets(at, measured, [training_set for training_set in trained if training_set is not None])


def _join_sets(at: Floats, rates: Floats, trained: Sequence[training_sets.TrainingSet]) -> OfferedLoad:
    """Join the windows that the sets of all queues have, up to the start of the measured load."""
    common = trained[0].at_seconds
    for training_set in trained[1:]:
        common = np.intersect1d(common, training_set.at_seconds)
    before = common[common < at.min()] if at.size else common
    sums = sum(
        training_set.rates_per_second[np.searchsorted(training_set.at_seconds, before)] for training_set in trained
    )
    until = min(training_set.newest_day for training_set in trained)
    return OfferedLoad(np.concatenate([before, at]), np.concatenate([np.asarray(sums), rates]), until.isoformat(), None)
