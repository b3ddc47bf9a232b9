"""The form of a task: its values, and what was posted."""

from dataclasses import dataclass, replace
from datetime import time

from django.http import QueryDict
from django.utils import timezone

from common.errors import BadInput
from console.actions.task_documents import RunParameter, describe_task
from console.actions.tasks import WantedTask
from console.input.form_values import WAS, parse_whole_number
from workers.models import Task

SET = "set-"  # the fields of a job's parameters
WHEN = ("hand", "interval", "calendar")
UNITS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}


@dataclass(frozen=True, kw_only=True)
class TaskForm:
    """The fields of a task's schedule as typed; name and job belong to a new task."""

    name: str = ""
    job: str = ""
    when: str
    interval: str
    unit: str
    crontab: str
    done_by: str
    parallel: str
    requirements: list[str]
    enabled: bool


def read_parameters(posted: QueryDict) -> dict[str, str]:
    """Return the typed parameters.

    An empty field keeps the task's own value or the default; a field that was filled and is now empty gets the default.
    """
    return {
        field.removeprefix(SET): text
        for field in posted
        if field.startswith(SET) and ((text := posted.get(field, "").strip()) or posted.get(WAS + field))
    }


def read_task(posted: QueryDict, job: str) -> WantedTask:
    """Read the posted task. Raises `BadInput` that names the task's field: see `at_field`."""
    when = posted.get("when", "hand")
    if when not in WHEN:
        raise BadInput("when", f"must be one of {', '.join(WHEN)}, not {when[:40]!r}.")
    interval = None
    if when == "interval":
        unit = posted.get("unit", "seconds")
        if unit not in UNITS:
            raise BadInput("unit", f"must be one of {', '.join(UNITS)}, not {unit[:40]!r}.")
        interval = parse_whole_number(posted.get("interval", "").strip(), "interval") * UNITS[unit]
    done_by = posted.get("done_by", "").strip()
    try:
        deadline = time.fromisoformat(done_by) if done_by else None
    except ValueError:
        raise BadInput("done_by", f"must be a time of day such as 06:00, not {done_by[:40]!r}.") from None
    return WantedTask(
        job=job,
        parameters=read_parameters(posted),
        parallel=parse_whole_number(posted.get("parallel", "1"), "parallel"),
        requirements=posted.getlist("requirement"),
        interval_seconds=interval,
        crontab=posted.get("crontab", "").strip() if when == "calendar" else None,
        deadline=deadline,
        enabled=posted.get("enabled", "") == "1",
    )


def move_error_to_field(error: BadInput, posted: QueryDict) -> BadInput:
    """Rename the error's field: a job's parameter is the field set-NAME on the page."""
    if SET + error.field in posted:
        return BadInput(SET + error.field, error.message)
    if error.field == "deadline" and "done_by" in posted:
        return BadInput("done_by", error.message)
    return BadInput("interval", error.message) if error.field == "interval_seconds" else error


def restore_typed_values(rows: list[RunParameter], submitted: QueryDict | None) -> list[RunParameter]:
    """Return rows of parameters with the typed values of a rejected form."""
    if not submitted:
        return rows
    return [replace(row, value=submitted.get(SET + row.name, row.value)) for row in rows]


def build_form(submitted: QueryDict | None) -> TaskForm:
    """Return the schedule's fields as typed, or those of a new task."""
    posted = submitted or QueryDict("when=hand&unit=minutes&parallel=1&enabled=1")
    names = ("name", "job", "when", "interval", "unit", "crontab", "done_by", "parallel")
    return TaskForm(
        **{name: posted.get(name, "") for name in names},
        requirements=posted.getlist("requirement"),
        enabled=posted.get("enabled", "") == "1",
    )


def build_form_from_task(task: Task) -> TaskForm:
    """Return the current schedule fields of the task."""
    described = describe_task(task, timezone.now())
    seconds = described.interval_seconds
    unit = next((name for name, length in reversed(UNITS.items()) if seconds and seconds % length == 0), "minutes")
    calendar = described.crontab is not None
    return TaskForm(
        when="interval" if seconds else "calendar" if calendar else "hand",
        interval=str(seconds // UNITS[unit]) if seconds else "",
        unit=unit,
        crontab=described.crontab or "",
        done_by=described.deadline or "",
        parallel=str(task.parallel),
        requirements=task.requirements,
        enabled=task.enabled,
    )
