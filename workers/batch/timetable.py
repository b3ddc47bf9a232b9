"""When a batch task runs, in words, and its next start, both read from its row of django-celery-beat."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from django_celery_beat.models import CrontabSchedule, PeriodicTask

from common.parsing import parse_digits

BY_HAND = "on request"
ANY = "*"
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
STEPS = ((86_400, "day", "days"), (3_600, "hour", "hours"), (60, "minute", "minutes"))


def describe_schedule(periodic: PeriodicTask | None) -> str:
    """Return `every 10 minutes`, `daily at 03:30 UTC`, or `crontab 0 */6 * * * UTC`.

    Without a row, the text says that the task runs on request.
    """
    if periodic is None:
        return BY_HAND
    if periodic.interval is not None:
        return format_interval(get_interval_seconds(periodic) or 0)
    return describe_calendar(periodic.crontab)


def get_interval_seconds(periodic: PeriodicTask | None) -> int | None:
    """Return the interval of a task that runs by interval, else None."""
    if periodic is None or periodic.interval is None:
        return None
    every: timedelta = periodic.interval.schedule.run_every
    return round(every.total_seconds())


def format_crontab_line(periodic: PeriodicTask | None) -> str | None:
    """Return the crontab of a task that runs by the calendar, else None."""
    crontab = None if periodic is None else periodic.crontab
    if crontab is None:
        return None
    day = f"{crontab.day_of_month} {crontab.month_of_year} {crontab.day_of_week}"
    return f"{crontab.minute} {crontab.hour} {day}"


def format_interval(seconds: int) -> str:
    """Format an interval in its largest whole unit."""
    for length, one, many in STEPS:
        if seconds >= length and seconds % length == 0:
            count = seconds // length
            return f"every {one}" if count == 1 else f"every {count} {many}"
    return "every second" if seconds == 1 else f"every {seconds} seconds"


def describe_calendar(row: CrontabSchedule) -> str:
    """Return common calendars in words, others as crontab."""
    minute, hour = str(row.minute), str(row.hour)
    days = (str(row.day_of_month), str(row.month_of_year), str(row.day_of_week))
    if parse_digits(minute) is not None and hour == ANY and days == (ANY, ANY, ANY):
        return f"hourly at minute {int(minute)}"
    if parse_digits(minute) is not None and parse_digits(hour) is not None:
        at = f"at {int(hour):02d}:{int(minute):02d} UTC"
        if days == (ANY, ANY, ANY):
            return f"daily {at}"
        if days[:2] == (ANY, ANY) and parse_digits(days[2]) is not None:
            return f"every {DAYS[int(days[2]) % 7]} {at}"
        if days[1:] == (ANY, ANY) and parse_digits(days[0]) is not None:
            return f"monthly on day {int(days[0])} {at}"
    return f"crontab {minute} {hour} {' '.join(days)} UTC"


def compute_next_start(periodic: PeriodicTask | None, last_at: datetime | None, now: datetime) -> datetime | None:
    """Return the next start, None for a task that is disabled or has no schedule.

    An interval counts from `last_at`, the last scheduled start: beat's own record of it is minutes behind.
    """
    if periodic is None or not periodic.enabled:
        return None
    seconds = get_interval_seconds(periodic)
    if seconds is None:
        due: tuple[datetime, timedelta, Any] = periodic.crontab.schedule.remaining_delta(now.astimezone(UTC))
        return due[0] + due[1]
    last: datetime = last_at or periodic.date_changed or now
    return last + timedelta(seconds=seconds * max(1, math.ceil((now - last).total_seconds() / seconds)))
