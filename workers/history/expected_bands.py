"""The bands in which rates are expected, and when rates went to another level, found once a minute from what
came (`controllers.design.expected_band`, `controllers.design.change_points`).

A band in force was made `AHEAD_SECONDS` ago, or, after a start, is the first that was made. The past is read,
and bands are made, in a thread of their own: the watcher, who asks each second, waits for nobody. The bands
stand in the snapshot, so that charts, alerts and the history have the same.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import redis

from controllers.design.change_points import change_points
from controllers.design.expected_band import AHEAD_SECONDS, DAY_SECONDS, BandForecaster, ForecastBand
from queues.stored_document import replace_fields
from workers.documents.bands import ExpectedBand, ExpectedBands, RateChange
from workers.history.minute_rates import MINUTE_SECONDS, MinuteRates

Floats = npt.NDArray[np.float64]
RATES = ("in_per_second", "out_per_second")
MOST_QUEUES = 50  # by name: a band takes some milliseconds of a core, each minute
MOST_CHANGES = 5  # a rate that changes more often has no level
DIGITS = 3
logger = logging.getLogger(__name__)


@dataclass
class PlannedBands:
    """Of one rate: when each band is in force, the earliest first."""

    forecaster: BandForecaster = field(default_factory=BandForecaster)
    planned: deque[tuple[float, ForecastBand]] = field(default_factory=deque)

    def plan(self, band: ForecastBand | None, now_seconds: float) -> ForecastBand | None:
        """Keep a band for its time; the one that is in force now."""
        # Where the clock was set back, what was made before would stand until it has caught up.
        while len(self.planned) > 1 and self.planned[-1][0] > now_seconds + AHEAD_SECONDS:
            self.planned.pop()
        if band is not None:
            self.planned.append((now_seconds + AHEAD_SECONDS, band))
        while len(self.planned) > 1 and self.planned[1][0] <= now_seconds:
            self.planned.popleft()
        return self.planned[0][1] if self.planned else None


class BandWatch:
    """Asked each second by one thread; `minutes` reads what came of some series until now."""

    def __init__(self, minutes: Callable[[Sequence[str], float], tuple[Floats, Floats]]) -> None:
        self._minutes = minutes
        self._plans: dict[str, PlannedBands] = {}
        self._found = ExpectedBands()
        self._renewed_at: float | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def load(cls, control: redis.Redis, data: Path) -> "BandWatch":
        """From what the plant has kept."""
        return cls(MinuteRates(control, data).build)

    def rows(self, queues: Sequence[str], now_seconds: float) -> ExpectedBands:
        """What was made last; a queue that has just come has none yet, one that is gone has none."""
        is_due = self._renewed_at is None or abs(now_seconds - self._renewed_at) >= MINUTE_SECONDS
        if is_due and not (self._thread and self._thread.is_alive()):
            self._renewed_at = now_seconds
            known = sorted(queues)[:MOST_QUEUES]
            self._thread = threading.Thread(
                target=self._renew, args=(known, now_seconds), name="bands", daemon=True
            )
            self._thread.start()
        there = {name: rows for name, rows in self._found.queues.items() if name in queues}
        return replace_fields(self._found, queues=there)

    def wait(self) -> None:
        """Until what is being made is."""
        if self._thread:
            self._thread.join()

    def _renew(self, queues: Sequence[str], now_seconds: float) -> None:
        subjects = [("totals", ""), *(("queues", name) for name in queues)]
        series = {
            (kind, name, rate): ".".join(filter(None, (kind, name, rate)))
            for kind, name in subjects
            for rate in RATES
        }
        try:
            at, rates = self._minutes(list(series.values()), now_seconds)
            rows = {
                key: self._band(name, at, values, now_seconds)
                for (key, name), values in zip(series.items(), rates, strict=True)
            }
        except Exception:  # a fault here must not end the watch of the plant; what was known goes out of date
            logger.exception("No bands are made.")
            self._found = ExpectedBands()
            return
        self._plans = {name: self._plans[name] for name in series.values() if name in self._plans}
        bands: dict[str, dict[str, ExpectedBand]] = {}
        for (_, name, rate), row in rows.items():
            if row is not None:
                bands.setdefault(name, {})[rate] = row
        self._found = ExpectedBands(totals=bands.pop("", {}), queues=bands)

    def _band(self, name: str, at: Floats, rates: Floats, now_seconds: float) -> ExpectedBand | None:
        known = ~np.isnan(rates)
        whole = known & (at < now_seconds - now_seconds % MINUTE_SECONDS)
        plan = self._plans.setdefault(name, PlannedBands())
        made = plan.forecaster.band(at[whole], rates[whole], now_seconds) if whole.any() else None
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
            changes=_changes(at[whole], rates[whole], now_seconds),
        )


def _changes(at: Floats, rates: Floats, now_seconds: float) -> list[RateChange]:
    """The newest of the last day."""
    day = at >= now_seconds - DAY_SECONDS
    changes = change_points(at[day], rates[day])[-MOST_CHANGES:]
    return [
        RateChange(
            at=round(change.at_seconds, DIGITS),
            before=round(change.before, DIGITS),
            after=round(change.after, DIGITS),
        )
        for change in changes
    ]
