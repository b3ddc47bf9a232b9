"""The time range and the instant that are shown: read from and written to addresses."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from common.errors import BadInput
from console.input.form_values import format_iso_time, parse_number, parse_time

PRESETS = {15: "15 min", 60: "1 h", 360: "6 h", 1_440: "1 d", 10_080: "7 d"}  # minutes → words
FIRST_MINUTES = 60
MAX_MINUTES = 400 * 1_440
MIN_LENGTH = timedelta(seconds=10)


@dataclass(frozen=True)
class Window:
    """From `since` to `until`.

    It is live (ends now, and continues) if `minutes` is its length; otherwise it is fixed. `at` is the time shown,
    inside the window; None: its end.
    """

    since: datetime
    until: datetime
    minutes: int | None = None
    at: datetime | None = None

    @property
    def live(self) -> bool:
        return self.minutes is not None

    @property
    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()

    @property
    def shown_at(self) -> datetime:
        return self.at or self.until

    @property
    def query(self) -> str:
        """Return the window as an address: a live one stays live, whenever it is opened."""
        return urlencode({"minutes": self.minutes}) if self.live else self.fixed_query

    @property
    def fixed_query(self) -> str:
        """Return the window as it is now, for links that must show the same tomorrow."""
        return self.between if self.at is None else f"{self.between}&{urlencode({'at': format_iso_time(self.at)})}"

    @property
    def between(self) -> str:
        """Return its start and its end as in an address."""
        return urlencode({"from": format_iso_time(self.since), "to": format_iso_time(self.until)})

    def share(self, shown_at: datetime) -> float:
        """Return the position of an instant: 0 at the start, 1 at the end."""
        return (shown_at - self.since).total_seconds() / self.seconds

    def clip(self, begin: datetime, end: datetime) -> tuple[float, float]:
        """Return the position of the part of a range that is inside the window."""
        return max(0.0, self.share(begin)), min(1.0, self.share(end))

    def shift(self, shares: float, now: datetime) -> "Window":
        """Return a window of the same length, earlier or later by so many lengths, but never after now."""
        until = min(self.until + shares * (self.until - self.since), now)
        return Window(until - (self.until - self.since), until)

    def zoom(self, factor: float, now: datetime) -> "Window":
        """Return a window around the time shown (or the middle), `factor` times as long."""
        middle = self.at or self.since + (self.until - self.since) / 2
        length = min(max((self.until - self.since) * factor, MIN_LENGTH), timedelta(minutes=MAX_MINUTES))
        until = min(middle + length / 2, now)
        return Window(until - length, until, at=self.at)


def parse_window(query: Mapping[str, str], now: datetime) -> Window:
    """Return the window of `minutes` (live), `from` and `to`, `at` alone, or all. Raises `BadInput` that names one."""
    at = _parse_instant(query, "at", now)
    since, until = _parse_instant(query, "from", now), _parse_instant(query, "to", None)
    if since is None and until is None:
        minutes = _parse_minutes(query)
        return Window(now - timedelta(minutes=minutes), now, minutes) if at is None else _build_around(at, minutes, now)
    if since is None or until is None:
        missing = "from" if since is None else "to"
        raise BadInput(missing, "is missing. A range has a start and an end.")
    return _build_fixed(since, min(until, now), at)


def _build_fixed(since: datetime, until: datetime, at: datetime | None) -> Window:
    if until <= since:
        raise BadInput("to", "must be after from.")
    if until - since > timedelta(minutes=MAX_MINUTES):
        raise BadInput("from", f"is more than {MAX_MINUTES // 1_440} days before to. Choose a shorter range.")
    if at is not None and not since <= at <= until:
        raise BadInput("at", "must be between from and to.")
    return Window(since, max(until, since + MIN_LENGTH), at=at)


def _build_around(at: datetime, minutes: int, now: datetime) -> Window:
    until = min(at + timedelta(minutes=minutes) / 2, now)
    return Window(until - timedelta(minutes=minutes), until, at=at)


def _parse_minutes(query: Mapping[str, str]) -> int:
    text = query.get("minutes", "").strip()
    minutes = parse_number(text, "minutes") if text else FIRST_MINUTES
    if not 1 <= minutes <= MAX_MINUTES:
        raise BadInput("minutes", f"must be 1 to {MAX_MINUTES:,}, not {minutes:g}.")
    return round(minutes)


def _parse_instant(query: Mapping[str, str], name: str, now: datetime | None) -> datetime | None:
    """Return an instant of the address, which must not be after `now`."""
    text = query.get(name, "").strip()
    shown_at = parse_time(text, name) if text else None
    if shown_at is not None and now is not None and shown_at > now:
        raise BadInput(name, "is in the future. The timeline shows the past.")
    return shown_at


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
    step = next((seconds for seconds in SECONDS if window.seconds / seconds <= MAX_TIMES), None)
    if step is None:
        return [_tick(window, at, "day") for at in _iterate_midnights(window, zone)]
    offset = (window.since.astimezone(zone).utcoffset() or timedelta()).total_seconds()
    first = math.ceil((window.since.timestamp() + offset) / step) * step - offset
    count = math.floor((window.until.timestamp() - first) / step) + 1
    moments = [datetime.fromtimestamp(first + step * place, UTC) for place in range(count)]
    return [_tick(window, at, "clock" if step < 60 else "minute") for at in moments]


def _iterate_midnights(window: Window, zone: ZoneInfo) -> Iterator[datetime]:
    days = window.seconds / DAY_SECONDS
    step = next((interval for interval in DAYS if days / interval <= MAX_TIMES), math.ceil(days / MAX_TIMES))
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
    step = power * next(multiple for multiple in NICE if power * multiple >= rough * (1 - 1e-9))
    count = math.ceil(highest / step - 1e-9)
    return [step * place for place in range(count + 1)]
