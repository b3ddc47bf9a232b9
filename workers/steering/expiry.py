"""The expiry of an override: after minutes, at a time, or when a person ends it.

Only some users may leave the end to a person.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from common import checks
from common.errors import BadInput
from workers.steering import plant_settings


@dataclass(frozen=True)
class Expiry:
    """An expiry. Exactly one is given: `minutes` from now, `expires_at` with its zone, or `endless`."""

    minutes: Any = None
    expires_at: datetime | None = None
    endless: bool = False

    def compute(self, now: datetime) -> datetime | None:
        """Return the end; None if there is none. Raises `BadInput` naming minutes or expires_at."""
        given = (self.minutes is not None) + (self.expires_at is not None) + self.endless
        if given != 1:
            raise BadInput("expires_at", "is ambiguous or missing; set either minutes or expires_at.")
        if self.endless:
            return None
        most = timedelta(days=plant_settings.get_setting_value("override.maximum_days"))
        if self.expires_at is None:
            return now + parse_minutes(self.minutes, most)
        if self.expires_at.tzinfo is None:
            raise BadInput("expires_at", "must be a time with a time zone, such as 2026-01-31T12:00:00Z")
        if not now < self.expires_at <= now + most:
            raise BadInput("expires_at", f"must be a future time, at most {most.days} days ahead")
        return self.expires_at


def parse_minutes(minutes: Any, most: timedelta) -> timedelta:
    """Return a period of minutes above 0 up to `most`. Raises `BadInput` naming minutes."""
    limit = most.total_seconds() / 60
    if not checks.is_number(minutes, 0, limit) or minutes <= 0:
        span = f"{limit:.0f} ({most.days} days)"
        raise BadInput("minutes", f"must be above 0 and at most {span}, not {checks.shorten_for_message(minutes)}")
    return timedelta(minutes=minutes)


def format_time(at: datetime, since: datetime) -> str:
    """Return a time in UTC, with its day if that is not the day of `since`: 14:30:00 UTC."""
    utc = at.astimezone(UTC)
    day = "" if utc.date() == since.astimezone(UTC).date() else f"{utc:%Y-%m-%d} "
    return f"{day}{utc:%H:%M:%S} UTC"


def notice_period() -> timedelta:
    """Return how long before its end an override gives notice, if it runs long enough."""
    return timedelta(seconds=plant_settings.get_setting_value("override.notice_seconds"))


def notice_at(created_at: datetime, expires_at: datetime | None, period: timedelta) -> datetime | None:
    """Return when the notice of the end starts; None if there is none."""
    return None if expires_at is None else expires_at - min(period, (expires_at - created_at) / 2)
