"""Batch tasks, their runs and chunks as plain documents: one shape for pages, API and command line."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from queues.errors import BadInput
from workers.batch import catalog, timetable
from workers.batch.jobs.job import Job
from workers.batch.jobs.parameters import JobParameter
from workers.models import Chunk, Run, Task

LAST_RUNS = 5


def task_document(task: Task, now: datetime) -> dict[str, Any]:
    """A task with its schedule and its last runs, the newest first."""
    declared, trouble = _declared(task)
    last_start = task.runs.filter(owner=None).order_by("-created_at").values_list("created_at", flat=True)
    next_at = timetable.next_at(task.periodic, last_start.first(), now) if task.enabled else None
    return {
        "name": task.name,
        "job": task.job,
        "help": declared.help if declared else trouble,
        "sound": declared is not None,
        "parameters": parameters_of(task),
        "schedule": timetable.words(task.periodic),
        "interval_seconds": timetable.interval_seconds(task.periodic),
        "crontab": timetable.crontab_line(task.periodic),
        "next_at": next_at and next_at.isoformat(),
        "requirements": task.requirements,
        "single_instance": task.single_instance,
        "parallel": task.parallel,
        "deadline": None if task.deadline is None else f"{task.deadline:%H:%M}",
        "enabled": task.enabled,
        "runs": [run_document(run) for run in last_runs(task, LAST_RUNS)],
    }


def last_runs(task: Task, count: int) -> Sequence[Run]:
    """The newest first."""
    return list(task.runs.select_related("owner", "task").order_by("-created_at", "-pk")[:count])


def run_document(run: Run) -> dict[str, Any]:
    """A run as JSON. `seconds`: how long it took; None until it has ended."""
    seconds = (run.ended_at - run.started_at).total_seconds() if run.started_at and run.ended_at else None
    return {
        "run": run.pk,
        "task": run.task.name,
        "state": run.state,
        "owner": run.owner.get_username() if run.owner else None,
        "parameters": run.parameters,
        "progress": run.progress,
        "chunks_total": run.chunks_total,
        "chunks_done": run.chunks_done,
        "workers_wanted": run.workers_wanted,
        "created_at": run.created_at.isoformat(),
        "started_at": run.started_at and run.started_at.isoformat(),
        "ended_at": run.ended_at and run.ended_at.isoformat(),
        "deadline_at": run.deadline_at and run.deadline_at.isoformat(),
        "seconds": seconds,
        "error": run.error,
        "command": command_of(run),
    }


def command_of(run: Run) -> str:
    """The same run from a command line, with what differs from the task's own parameters."""
    own = parameters_of(run.task)
    words = ["manage.py", "job", "run", run.task.name]
    for name, value in run.parameters.items():
        if value is not None and own.get(name) != value:
            text = ",".join(value) if isinstance(value, list) else str(value)
            words += ["--set", f"{name}={text}"]
    return shlex.join(words)


def parameters_of(task: Task) -> dict[str, Any]:
    """Every parameter of its job: the task's own value, else the default; none where the job is gone."""
    declared, _ = _declared(task)
    return {each.name: _value(task, each) for each in (declared.parameters if declared else ())}


def chunk_document(chunk: Chunk) -> dict[str, Any]:
    """A chunk as JSON."""
    names = ("identifier", "state", "worker", "tries", "rows", "seconds", "skipped", "error")
    return {name: getattr(chunk, name) for name in names}


def parameter_rows(task: Task) -> list[dict[str, Any]]:
    """What a run of the task takes: name, help, takes (in words), choices, value, required. None of a task
    whose job doesn't import.
    """
    declared, _ = _declared(task)
    return [_parameter(task, each) for each in (declared.parameters if declared else ())]


def _parameter(task: Task, declared: JobParameter) -> dict[str, Any]:
    value = _value(task, declared)
    return {
        "name": declared.name,
        "help": declared.help,
        "takes": declared.takes(),
        "choices": declared.choices,
        "value": ", ".join(value) if isinstance(value, list) else value,
        "required": declared.default is ... and value is None,
    }


def _declared(task: Task) -> tuple[Job | None, str]:
    """The task's job, or why there is none."""
    try:
        return catalog.job(task.job), ""
    except BadInput as error:
        return None, str(error)


def _value(task: Task, declared: JobParameter) -> Any:
    """The task's own, else the default; None where a run has to give it."""
    return task.parameters.get(declared.name, None if declared.default is ... else declared.default)
