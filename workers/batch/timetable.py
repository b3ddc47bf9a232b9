"""When a batch task runs, in words, and when it does so next. Both read its row of django-celery-beat."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from django_celery_beat.models import CrontabSchedule, PeriodicTask

from queues.text.numbers import digits

BY_HAND = "when asked"
ANY = "*"
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
STEPS = ((86_400, "day", "days"), (3_600, "hour", "hours"), (60, "minute", "minutes"))


def words(periodic: PeriodicTask | None) -> str:
    """`every 10 minutes`, `daily at 03:30 UTC`, `crontab 0 */6 * * * UTC`; without a row: when asked."""
    if periodic is None:
        return BY_HAND
    if periodic.interval is not None:
        return format_interval(interval_seconds(periodic) or 0)
    return calendar(periodic.crontab)


def interval_seconds(periodic: PeriodicTask | None) -> int | None:
    """Of a task that runs by interval, else None."""
    if periodic is None or periodic.interval is None:
        return None
    every: timedelta = periodic.interval.schedule.run_every
    return round(every.total_seconds())


def crontab_line(periodic: PeriodicTask | None) -> str | None:
    """Of a task that runs by the calendar, else None."""
    crontab = None if periodic is None else periodic.crontab
    if crontab is None:
        return None
    return f"{crontab.minute} {crontab.hour} {crontab.day_of_month} {crontab.month_of_year} {crontab.day_of_week}"


def format_interval(seconds: int) -> str:
    """An interval in its largest whole unit."""
    for length, one, many in STEPS:
        if seconds >= length and seconds % length == 0:
            count = seconds // length
            return f"every {one}" if count == 1 else f"every {count} {many}"
    return "every second" if seconds == 1 else f"every {seconds} seconds"


def calendar(row: CrontabSchedule) -> str:
    """The usual ones in words; the others as they are written."""
    minute, hour = str(row.minute), str(row.hour)
    days = (str(row.day_of_month), str(row.month_of_year), str(row.day_of_week))
    if digits(minute) is not None and hour == ANY and days == (ANY, ANY, ANY):
        return f"hourly, {int(minute)} min past"
    if digits(minute) is not None and digits(hour) is not None:
        at = f"at {int(hour):02d}:{int(minute):02d} UTC"
        if days == (ANY, ANY, ANY):
            return f"daily {at}"
        if days[:2] == (ANY, ANY) and digits(days[2]) is not None:
            return f"each {DAYS[int(days[2]) % 7]} {at}"
        if days[1:] == (ANY, ANY) and digits(days[0]) is not None:
            return f"monthly on day {int(days[0])} {at}"
    return f"crontab {minute} {hour} {' '.join(days)} UTC"


def next_at(periodic: PeriodicTask | None, last_at: datetime | None, now: datetime) -> datetime | None:
    """The next start, None for a task that is off or has no schedule.

    An interval counts from `last_at`, the last start by schedule: beat's own note of it is minutes behind.
    """
    if periodic is None or not periodic.enabled:
        return None
    seconds = interval_seconds(periodic)
    if seconds is None:
        due: tuple[datetime, timedelta, Any] = periodic.crontab.schedule.remaining_delta(now.astimezone(UTC))
        return due[0] + due[1]
    last: datetime = last_at or periodic.date_changed or now
    return last + timedelta(seconds=seconds * max(1, math.ceil((now - last).total_seconds() / seconds)))
