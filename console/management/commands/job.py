"""`manage.py job list | run NAME | show RUN | cancel RUN | resume RUN`: batch tasks from the command line."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from common import checks
from common.errors import BadInput
from console.accounts.access import Actor
from console.actions import tasks
from console.actions.task_documents import build_task_document, run_document
from console.connections.control_server import build_job_context
from console.management.document import JsonCommand
from workers.batch import runs, task_definitions, task_managers
from workers.batch import worker as batch_worker
from workers.batch.job import JobContext
from workers.models import Run, Task

ACTIONS = ("list", "run", "show", "cancel", "resume")
POLL_SECONDS = 0.5
ACTOR = Actor(name="manage.py", role="administrator")


class Command(JsonCommand):
    help = "List batch tasks, run a task, or show, cancel, or resume a run."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help=", ".join(ACTIONS))
        parser.add_argument("subject", metavar="NAME|RUN", nargs="?", help="task name or run number")
        parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="values")
        parser.add_argument("--deadline", help="deadline of the run, such as 2026-11-20T06:00:00Z")
        parser.add_argument("--reason", default="requested on the command line", help="reason for the audit log")
        parser.add_argument("--here", action="store_true", help="execute in this process instead of on a worker")
        parser.add_argument("--json", action="store_true")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        task_definitions.ensure_tasks()
        if options["action"] == "list":
            return {"tasks": [build_task_document(task, datetime.now(UTC)) for task in Task.objects.order_by("name")]}
        if options["subject"] is None:
            raise BadInput(
                "NAME" if options["action"] == "run" else "RUN",
                "is missing. To list tasks and runs, run manage.py job list.",
            )
        answer: dict[str, Any] = getattr(self, f"_{options['action']}")(options)
        return answer

    def format_output(self, document: dict[str, Any]) -> str:
        if "tasks" in document:
            return "\n".join(
                f"{task['name']:<20} {_describe_last_run(task):<32} {task['help']}" for task in document["tasks"]
            )
        return "\n".join(f"{key:<12} {value}" for key, value in document.items())

    def _run(self, options: dict[str, Any]) -> dict[str, Any]:
        where = build_job_context()
        deadline_at = _deadline(options["deadline"])
        given = read_values(options["values"])
        run = tasks.begin(ACTOR, options["subject"], given, deadline_at, options["reason"], where)
        if options["here"]:
            work_here(run, where)
        return run_document(runs.run_of(run.pk))

    def _show(self, options: dict[str, Any]) -> dict[str, Any]:
        return run_document(runs.run_of(options["subject"]))

    def _cancel(self, options: dict[str, Any]) -> dict[str, Any]:
        return self._change(tasks.cancel, options)

    def _resume(self, options: dict[str, Any]) -> dict[str, Any]:
        return self._change(tasks.resume, options)

    def _change(self, change: Callable[..., Run], options: dict[str, Any]) -> dict[str, Any]:
        run = runs.run_of(options["subject"])
        return run_document(change(ACTOR, run, options["reason"], datetime.now(UTC)))


def work_here(run: Run, where: JobContext) -> None:
    """Act as the run's manager and its only worker, until it has ended."""

    def work(number: int, worker: str, role: str, priority: int) -> None:
        batch_worker.work_at(number, worker, where.control, where.data, lambda: datetime.now(UTC))

    while run.state in runs.OPEN:
        # No lease: the plant's own managers may also handle this run, which is fine.
        run = task_managers.manage_run(run, where.control, datetime.now(UTC), work)
        if run.state in runs.OPEN:
            time.sleep(POLL_SECONDS)


def read_values(texts: list[str]) -> dict[str, str]:
    """Parse `["days=3"]` to {"days": "3"}. Raises `BadInput`."""
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise BadInput("--set", f"must be KEY=VALUE, not {text!r}.")
        values[name] = value
    return values


def _deadline(text: str | None) -> datetime | None:
    try:
        return None if text is None else checks.parse_timestamp(text)
    except ValueError:
        raise BadInput("deadline", f"must be a time such as 2026-11-20T06:00:00Z, not {text!r}.") from None


def _describe_last_run(task: dict[str, Any]) -> str:
    if not task["runs"]:
        return "never ran"
    newest = task["runs"][0]
    return f"run {newest['run']} {newest['state']} {newest['created_at'][:16]}"
