"""Forecasts of the load offered to each application and to each registered plant with adjustable tasks.

They are computed once a minute from past arrivals (`controllers.design`). The past is the measured history
(`metric_history`) and, for an application, the newest `forecast_training` set of its queues for the time before. It is
read and forecast in a separate thread, so that the observer, which asks each second, never waits. The forecast is in
the snapshot, so that laws and pages share it (`workers.documents.plants.LoadForecast`).
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import redis

from common.stored_document import replace_fields
from controllers.design.expected_band import MIN_STRETCHES, PastRanges
from controllers.design.forecast import Forecaster
from workers.documents.plants import LoadForecast
from workers.history import training_sets
from workers.history.minute_rates import DAY_SECONDS, MinuteRates
from workers.history.training_sets import TrainingRefused

Floats = npt.NDArray[np.float64]
WINDOW_SECONDS, WINDOWS, EVERY_SECONDS = 60.0, 15, 60.0
DIGITS = 3
PLANT = "plant:"  # prefix of a registered plant's name among applications
logger = logging.getLogger(__name__)


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
                forecasts[name] = document(now_seconds, refused=f"the forecast failed ({type(error).__name__})")
        self._documents = forecasts

    def _forecast(self, name: str, past: OfferedLoad, now_seconds: float) -> LoadForecast:
        stretches = PastRanges.build(past.at_seconds, past.rates_per_second)
        if stretches.at_seconds.size < MIN_STRETCHES:
            known = stretches.at_seconds.size
            why = f"collecting data: {known} of {MIN_STRETCHES} minutes"
            return document(now_seconds, past, why)
        forecaster = self._forecasters.setdefault(name, Forecaster(DAY_SECONDS))
        ahead = now_seconds + (np.arange(WINDOWS, dtype=np.float64) + 0.5) * WINDOW_SECONDS
        mean, deviation = forecaster.predict_ahead(stretches.at_seconds, stretches.means, ahead)
        return replace_fields(
            document(now_seconds, past),
            mean_per_second=np.round(mean, DIGITS).tolist(),
            deviation_per_second=np.round(deviation, DIGITS).tolist(),
        )


def document(now_seconds: float, past: OfferedLoad | None = None, refused: str | None = None) -> LoadForecast:
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
