"""Round positions on an axis: of time, in the reader's zone, and of values."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from console.timeline.window import Window

SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200)
DAY_SECONDS = 86_400
DAYS = (1, 2, 7, 14, 28, 56)
MAX_TIMES, MAX_VALUES = 6, 3
NICE = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class AxisTick:
    """A position from 0 to 1, and its value."""

    share: float
    at: datetime
    format: str  # format of `shown_at`: clock, minute, or day


def compute_time_ticks(window: Window, zone: ZoneInfo) -> list[AxisTick]:
    """Return at most MAX_TIMES round times.

    From one day on they are midnights of the reader's zone, even if its clocks change in between.
    """
    step = next((each for each in SECONDS if window.seconds / each <= MAX_TIMES), None)
    if step is None:
        return [_tick(window, at, "day") for at in _iterate_midnights(window, zone)]
    offset = (window.since.astimezone(zone).utcoffset() or timedelta()).total_seconds()
    first = math.ceil((window.since.timestamp() + offset) / step) * step - offset
    count = math.floor((window.until.timestamp() - first) / step) + 1
    moments = [datetime.fromtimestamp(first + step * place, UTC) for place in range(count)]
    return [_tick(window, at, "clock" if step < 60 else "minute") for at in moments]


def _iterate_midnights(window: Window, zone: ZoneInfo) -> Iterator[datetime]:
    days = window.seconds / DAY_SECONDS
    step = next((each for each in DAYS if days / each <= MAX_TIMES), math.ceil(days / MAX_TIMES))
    day = window.since.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    while day <= window.until:
        # The first ordinal was a Monday: every seventh day is one, wherever the window starts.
        if day >= window.since and (day.toordinal() - 1) % step == 0:
            yield day
        day = (day.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=zone)


def _tick(window: Window, at: datetime, format: str) -> AxisTick:
    return AxisTick(window.share(at), at, format)


def compute_value_ticks(highest: float) -> list[float]:
    """Return 0 and round values up to the first that is not below `highest`."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / MAX_VALUES
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(each for each in NICE if power * each >= rough * (1 - 1e-9))
    count = math.ceil(highest / step - 1e-9)
    return [step * place for place in range(count + 1)]
