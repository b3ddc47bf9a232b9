"""Definitions of batch tasks: validated, stored, scheduled, and their schedules in words.

The schedule is a row of django-celery-beat, `task: {name}`: interval or crontab (UTC), also editable there.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

from celery.schedules import ParseException, crontab
from django.db import transaction
from django.db.models import QuerySet
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from common import checks
from common.errors import BadInput
from common.parsing import parse_digits
from workers.batch import catalog
from workers.batch.job import read_value
from workers.control.loops import schedule_row
from workers.models import Task

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


START = "workers.tasks.start_task"
MAX_PARALLEL = 64
MAX_INTERVAL_SECONDS = 366 * 86_400
CRONTAB_EXPIRES_SECONDS = 3_600
CRONTAB_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


@transaction.atomic
def define(
    name: str,
    job: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    requirements: Sequence[str] | None = None,
    single_instance: bool | None = None,
    parallel: int | None = None,
    deadline: time | None = None,
    every_seconds: int | None = None,
    crontab_line: str | None = None,
    enabled: bool = True,
) -> Task:
    """Create a task or change the one with that name; missing values are those that its job declares.

    Raises BadInput naming the field, and then nothing was changed.
    """
    declared = catalog.get_job(job)
    checks.accept_name().validate(name, "name", end=".")
    known = {parameter.name: parameter for parameter in declared.parameters}
    given = dict(parameters or {})
    # A run can supply a parameter without a default; a task with a schedule needs it here.
    if every_seconds is not None or crontab_line is not None:
        declared.read(given)
    for key, value in given.items():
        if key not in known:
            raise BadInput(str(key), f"is not a parameter of {job}. The parameters are {', '.join(known) or 'none'}.")
        read_value(known[key], value)
    needed = list(declared.requirements if requirements is None else requirements)
    checks.check_capabilities(needed, "requirements")
    workers = declared.parallel if parallel is None else parallel
    fields = {
        "job": job,
        "parameters": given,
        "requirements": needed,
        "single_instance": declared.single_instance if single_instance is None else single_instance,
        "parallel": checks.accept_whole_number(1, MAX_PARALLEL).validate(workers, "parallel", end="."),
        "deadline": _clock(deadline),
        "enabled": enabled,
    }
    task, _ = Task.objects.update_or_create(name=name, defaults=fields)
    return schedule(task, every_seconds, crontab_line)


def _clock(deadline: time | None) -> time | None:
    """Return a time of day in UTC, like all times here; databases store none with a zone."""
    if deadline is None or deadline.tzinfo is None:
        return deadline
    if deadline.utcoffset() != timedelta(0):
        raise BadInput("deadline", f"must be a time of day in UTC, such as 06:00Z, not {deadline.isoformat()}.")
    return deadline.replace(tzinfo=None)


def schedule(task: Task, every_seconds: int | None = None, crontab_line: str | None = None) -> Task:
    """Schedule the task by interval or crontab; with neither, remove its schedule. Raises BadInput."""
    before = task.periodic
    if every_seconds is not None and crontab_line is not None:
        raise BadInput("crontab", "can't be combined with interval_seconds. Set only one of the two.")
    if every_seconds is None and crontab_line is None:
        Task.objects.filter(pk=task.pk).update(periodic=None)
        if before is not None:
            before.delete()
    else:
        fields = {
            "task": START,
            "kwargs": json.dumps({"name": task.name}),
            "queue": "control",
            "enabled": task.enabled and not task.is_paused,
            # A start that waited this long is outdated: the next one follows, or a person starts the task.
            "expire_seconds": every_seconds or CRONTAB_EXPIRES_SECONDS,
            "interval": None if every_seconds is None else _store_interval(every_seconds),
            "crontab": None if crontab_line is None else _store_crontab(crontab_line),
        }
        task.periodic, _ = PeriodicTask.objects.update_or_create(name=f"task: {task.name}", defaults=fields)
        task.save(update_fields=["periodic"])
    task.refresh_from_db()
    return task


@transaction.atomic
def pause_schedules() -> list[str]:
    """Pause the schedule of each enabled task, and return the names of these tasks. Runs on request are possible."""
    tasks = Task.objects.filter(enabled=True, is_paused=False, periodic__isnull=False)
    return _set_paused(tasks.order_by("name"), True)


@transaction.atomic
def resume_schedules() -> list[str]:
    """Resume the schedules that were paused together, and return the names of their tasks."""
    return _set_paused(Task.objects.filter(is_paused=True).order_by("name"), False)


def _set_paused(tasks: QuerySet[Task], is_paused: bool) -> list[str]:
    changed = list(tasks)
    for task in changed:
        task.is_paused = is_paused
        task.save(update_fields=["is_paused"])
        if task.periodic is not None:
            task.periodic.enabled = task.enabled and not is_paused
            task.periodic.save()  # which makes the beat read its schedules again
    return [task.name for task in changed]


def ensure_tasks() -> int:
    """Create missing tasks of the shipped jobs and return how many; changes by an operator are kept."""
    made = 0
    known = set(Task.objects.values_list("name", flat=True))
    for job in catalog.JOBS.values():
        if job.name not in known:
            define(job.name, job.name, every_seconds=job.every_seconds, crontab_line=job.crontab)
            made += 1
    return made


def _store_interval(every_seconds: object) -> IntervalSchedule:
    if not checks.is_whole(every_seconds, 1, MAX_INTERVAL_SECONDS):
        said = checks.shorten_for_message(every_seconds)
        raise BadInput("interval_seconds", f"must be a whole number of seconds up to 1 year, not {said}.")
    return schedule_row(IntervalSchedule, every=every_seconds, period=IntervalSchedule.SECONDS)


def _store_crontab(line: str) -> CrontabSchedule:
    parts = line.split()
    if len(parts) != len(CRONTAB_FIELDS):
        raise BadInput("crontab", f"must be minute, hour, day, month, and weekday, such as '0 3 * * *', not {line!r}.")
    fields = dict(zip(CRONTAB_FIELDS, parts, strict=True))
    try:
        crontab(**fields)
    except (ParseException, ValueError) as error:
        raise BadInput("crontab", f"{line!r} is invalid: {error}.") from None
    return schedule_row(CrontabSchedule, **fields, timezone="UTC")
