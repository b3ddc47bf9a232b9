"""`manage.py job list | run NAME | show RUN | cancel RUN | resume RUN`: batch tasks from the command line."""

import time
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import transaction
from django_celery_beat.models import PeriodicTask

from console import audit
from console.access import Actor
from console.control_server import control
from console.management.document import JsonCommand
from queues.errors import BadInput
from workers import batch_tasks, batch_worker, runs, task_managers
from workers.jobs import catalog
from workers.jobs.job import Surroundings
from workers.jobs.parameters import moment
from workers.models import Run, Task

ACTIONS = ("list", "run", "show", "cancel", "resume")
LAST_RUNS = 5
POLL_SECONDS = 0.5
ACTOR = Actor(name="manage.py", role="administrator")


class Command(JsonCommand):
    help = "Batch tasks: list them, run one, show, cancel or resume a run."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help=", ".join(ACTIONS))
        parser.add_argument("subject", metavar="NAME|RUN", nargs="?", help="a task's name, or a run's number")
        parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="values")
        parser.add_argument("--deadline", help="when a run is to be done, as 2026-11-20T06:00:00Z")
        parser.add_argument("--reason", default="", help="kept in the audit")
        parser.add_argument(
            "--here", action="store_true", help="do the work in this process, not on a worker"
        )
        parser.add_argument("--json", action="store_true")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        batch_tasks.ensure_tasks()
        if options["action"] == "list":
            return {"tasks": [describe_task(task) for task in Task.objects.order_by("name")]}
        if options["subject"] is None:
            raise BadInput("NAME" if options["action"] == "run" else "RUN", "is missing; see job list.")
        return getattr(self, f"_{options['action']}")(options)

    def human(self, document: dict[str, Any]) -> str:
        if "tasks" in document:
            return "\n".join(
                f"{task['name']:<20} {_last(task):<32} {task['help']}" for task in document["tasks"]
            )
        return "\n".join(f"{key:<12} {value}" for key, value in document.items())

    def _run(self, options: dict[str, Any]) -> dict[str, Any]:
        where = Surroundings(settings.WEIR_DATA, control(), datetime.now(UTC))
        deadline_at = _deadline(options["deadline"])
        with transaction.atomic():
            run = runs.begin(
                options["subject"], where, read_values(options["values"]), deadline_at=deadline_at
            )
            audit.record(ACTOR, "task.run", run.task.name, reason=options["reason"], after=run.parameters)
        if options["here"]:
            work_here(run, where)
        return describe_run(runs.run_of(run.pk))

    def _show(self, options: dict[str, Any]) -> dict[str, Any]:
        return describe_run(runs.run_of(options["subject"]))

    def _cancel(self, options: dict[str, Any]) -> dict[str, Any]:
        return self._change("cancel", options)

    def _resume(self, options: dict[str, Any]) -> dict[str, Any]:
        return self._change("resume", options)

    def _change(self, action: str, options: dict[str, Any]) -> dict[str, Any]:
        run = runs.run_of(options["subject"])
        change = runs.cancel if action == "cancel" else runs.resume
        with transaction.atomic():
            changed = change(run, datetime.now(UTC))
            states = {"before": {"state": run.state}, "after": {"state": changed.state}}
            audit.record(ACTOR, f"task.{action}", str(run.pk), reason=options["reason"], **states)
        return describe_run(changed)


def work_here(run: Run, where: Surroundings) -> None:
    """Be the run's manager and its only worker, until it has ended."""

    def work(number: int, worker: str, role: str) -> None:
        batch_worker.work_at(number, worker, where.control, where.data, lambda: datetime.now(UTC))

    while run.state in runs.OPEN:
        # No lease: the plant's own managers may well be at this run too, and that is fine.
        run = task_managers.manage(run, where.control, datetime.now(UTC), work)
        if run.state in runs.OPEN:
            time.sleep(POLL_SECONDS)


def read_values(texts: list[str]) -> dict[str, str]:
    """`["days=3"]` → {"days": "3"}. Raises BadInput."""
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise BadInput("--set", f"takes KEY=VALUE, not {text!r}.")
        values[name] = value
    return values


def _deadline(text: str | None) -> datetime | None:
    try:
        return None if text is None else moment(text)
    except ValueError:
        raise BadInput("deadline", f"takes a time as 2026-11-20T06:00:00Z, not {text!r}.") from None


def describe_task(task: Task) -> dict[str, Any]:
    """A task with its schedule and its last runs, the newest first."""
    try:
        job = catalog.job(task.job)
        described, declared = job.help, job.parameters
    except BadInput as error:
        described, declared = str(error), ()
    return {
        "name": task.name,
        "job": task.job,
        "help": described,
        "parameters": {each.name: task.parameters.get(each.name, _shown(each.default)) for each in declared},
        "schedule": None if task.periodic is None else _schedule(task.periodic),
        "requirements": task.requirements,
        "single_instance": task.single_instance,
        "parallel": task.parallel,
        "deadline": None if task.deadline is None else task.deadline.isoformat(),
        "enabled": task.enabled,
        "runs": [describe_run(run) for run in task.runs.order_by("-created_at", "-pk")[:LAST_RUNS]],
    }


def describe_run(run: Run) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "run": run.pk,
        "task": run.task.name,
        "state": run.state,
        "parameters": run.parameters,
        "progress": run.progress,
        "chunks_total": run.chunks_total,
        "chunks_done": run.chunks_done,
        "created_at": run.created_at.isoformat(),
        "started_at": run.started_at and run.started_at.isoformat(),
        "ended_at": run.ended_at and run.ended_at.isoformat(),
        "deadline_at": run.deadline_at and run.deadline_at.isoformat(),
        "error": run.error,
    }


def _schedule(periodic: PeriodicTask) -> str:
    when = periodic.interval or periodic.crontab
    return " ".join(str(when).split())


def _shown(default: Any) -> Any:
    return None if default is ... else default


def _last(task: dict[str, Any]) -> str:
    if not task["runs"]:
        return "never ran"
    newest = task["runs"][0]
    return f"run {newest['run']} {newest['state']} {newest['created_at'][:16]}"
