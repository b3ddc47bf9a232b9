"""Definitions of batch tasks: validated, stored, and scheduled.

The schedule is a row of django-celery-beat, `task: {name}`: interval or crontab (UTC), also editable there.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import time, timedelta
from typing import Any

from celery.schedules import ParseException, crontab
from django.db import transaction
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from common import checks
from common.errors import BadInput
from workers.batch import catalog
from workers.batch.jobs.job import REQUIREMENTS
from workers.control.loops import schedule_row
from workers.models import Task

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
        _read(known, key, value, job)
    fields = {
        "job": job,
        "parameters": given,
        "requirements": _validate_requirements(declared.requirements if requirements is None else requirements),
        "single_instance": declared.single_instance if single_instance is None else single_instance,
        "parallel": _parallel(declared.parallel if parallel is None else parallel),
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
    when = _format_schedule(every_seconds, crontab_line)
    before = task.periodic
    if when is None:
        Task.objects.filter(pk=task.pk).update(periodic=None)
        if before is not None:
            before.delete()
    else:
        fields = {
            "task": START,
            "kwargs": json.dumps({"name": task.name}),
            "queue": "control",
            "enabled": task.enabled,
            # A start that waited this long is outdated: the next one follows, or a person starts the task.
            "expire_seconds": every_seconds or CRONTAB_EXPIRES_SECONDS,
            "interval": None,
            "crontab": None,
            **when,
        }
        task.periodic, _ = PeriodicTask.objects.update_or_create(name=f"task: {task.name}", defaults=fields)
        task.save(update_fields=["periodic"])
    task.refresh_from_db()
    return task


def ensure_tasks() -> int:
    """Create missing tasks of the shipped jobs and return how many; changes by an operator are kept."""
    made = 0
    known = set(Task.objects.values_list("name", flat=True))
    for job in catalog.JOBS.values():
        if job.name not in known:
            define(job.name, job.name, every_seconds=job.every_seconds, crontab_line=job.crontab)
            made += 1
    return made


def _format_schedule(every_seconds: int | None, crontab_line: str | None) -> dict[str, Any] | None:
    if every_seconds is not None and crontab_line is not None:
        raise BadInput("crontab", "can't be combined with interval_seconds; set only one of the two.")
    if every_seconds is not None:
        return {"interval": _store_interval(every_seconds)}
    return None if crontab_line is None else {"crontab": _store_crontab(crontab_line)}


def _store_interval(every_seconds: Any) -> IntervalSchedule:
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


def _validate_requirements(wanted: Sequence[str]) -> list[str]:
    for requirement in wanted:
        if requirement not in REQUIREMENTS:
            raise BadInput("requirements", f"must be one of {', '.join(REQUIREMENTS)}, not {requirement!r}.")
    return list(wanted)


def _parallel(workers: Any) -> int:
    return int(checks.accept_whole_number(1, MAX_PARALLEL).validate(workers, "parallel", end="."))


def _read(known: Mapping[str, Any], name: str, value: Any, job: str) -> Any:
    if name not in known:
        raise BadInput(str(name), f"is not a parameter of {job}; the parameters are {', '.join(known) or 'none'}.")
    return known[name].read(value)
