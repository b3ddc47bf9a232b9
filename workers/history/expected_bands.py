"""Expected ranges of rates and changes of their level, computed once a minute from past arrivals.

See `controllers.design.expected_band` and `controllers.design.change_points`. A range in force was computed
`AHEAD_SECONDS` ago or, after a start, is the first one. The past is read and ranges are computed in a separate thread,
so that the observer, which asks each second, never waits. The ranges are in the snapshot, so that charts, alerts, and
the history share them.
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

from common.stored_document import replace_fields
from controllers.design.change_points import change_points
from controllers.design.expected_band import AHEAD_SECONDS, DAY_SECONDS, BandForecaster, ForecastBand
from workers.documents.bands import ExpectedBand, ExpectedBands, RateChange
from workers.history.minute_rates import MINUTE_SECONDS, MinuteRates

Floats = npt.NDArray[np.float64]
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
