"""Batch tasks: read, run, and changed; their runs read, canceled, and resumed."""

from datetime import time
from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone

from common.errors import BadInput
from console.actions import tasks
from console.actions.task_documents import build_chunk_document, build_task_document, run_document
from console.actions.tasks import WantedTask
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import Reason, RequestBody
from console.api.request.instant import GivenTime
from console.api.request.rows import check_rows
from console.api.schemas.tasks import ChunkRow, RunDetail, RunList, RunRow, TaskList, TaskRow
from console.connections.surroundings import build_job_context
from console.input.row_id import Id
from workers.models import Run, Task

router = Router(tags=["tasks"])


class NewRun(RequestBody):
    """`parameters` replace the task's own; `deadline_at`: when it must be finished."""

    reason: str
    parameters: dict[str, Any] = {}
    deadline_at: GivenTime | None = None


class Change(RequestBody):
    """A new definition of a task. With neither interval nor crontab it only runs on request."""

    reason: str
    job: str
    parameters: dict[str, Any] = {}
    parallel: int = 1
    requirements: list[str] = []
    interval_seconds: int | None = None
    crontab: str | None = None
    deadline: time | None = None
    enabled: bool = True

    def list_changes(self) -> WantedTask:
        return WantedTask(**self.model_dump(exclude={"reason", "name", "digest"}))


class ChangedTask(Change):
    """digest: of the task as it was read; if it has changed since, the request is rejected."""

    digest: str = ""


class NewTask(Change):
    """A new task; its job is of the catalog, or python: and a dotted path."""

    name: str


@router.get("/tasks", response=TaskList, summary="List batch tasks: schedule, next start, last runs")
def list_tasks(request: HttpRequest) -> TaskList:
    actor_for(request, "plant.view")
    task_rows = Task.objects.select_related("periodic").order_by("name")
    return {"tasks": [_build_task_row(task) for task in task_rows]}


@router.post("/tasks", response=TaskRow, summary="Create a batch task")
def define_task(request: HttpRequest, body: NewTask) -> TaskRow:
    actor = actor_for(request, "task.define")
    return _build_task_row(tasks.define(actor, body.name, body.list_changes(), body.reason))


@router.get("/tasks/{name}", response=TaskRow, summary="Get a batch task")
def get_task(request: HttpRequest, name: str) -> TaskRow:
    actor_for(request, "plant.view")
    return _build_task_row(_get_task_or_404(name))


@router.post("/tasks/{name}", response=TaskRow, summary="Change a batch task: schedule, parameters, workers, or state")
def change_task(request: HttpRequest, name: str, body: ChangedTask) -> TaskRow:
    actor = actor_for(request, "task.change")
    _get_task_or_404(name)
    return _build_task_row(tasks.change(actor, name, body.list_changes(), body.reason, body.digest))


@router.post("/tasks/{name}/run", response=RunRow, summary="Run a batch task now")
def begin_run(request: HttpRequest, name: str, body: NewRun) -> RunRow:
    actor = actor_for(request, "task.run")
    _get_task_or_404(name)
    if body.deadline_at is not None and body.deadline_at.tzinfo is None:
        raise BadInput("deadline_at", "must be a time with a time zone, such as 2026-11-20T06:00:00Z.")
    made = tasks.begin(actor, name, body.parameters, body.deadline_at, body.reason, build_job_context())
    return _run_row(made)


@router.get("/runs", response=RunList, summary="List runs of batch tasks, newest first")
def list_runs(request: HttpRequest, task: str = "", state: str = "", rows: int = 50) -> RunList:
    """Return runs, filtered by `task` and `state` if given."""
    actor_for(request, "plant.view")
    if state and state not in Run.State.values:
        raise BadInput("state", f"must be one of {', '.join(Run.State.values)}, not {state!r}.")
    check_rows(rows)
    wanted = {"task__name": task, "state": state}
    chosen = Run.objects.filter(**{name: value for name, value in wanted.items() if value})
    newest = chosen.select_related("task", "owner").order_by("-pk")[:rows]
    return {"runs": [_run_row(run) for run in newest]}


@router.get("/runs/{run_id}", response=RunDetail, summary="Get a run, its progress, its chunks, and skipped files")
def get_run(request: HttpRequest, run_id: Id) -> RunDetail:
    actor_for(request, "plant.view")
    run = _run(run_id)
    chunks = [convert(ChunkRow, build_chunk_document(chunk)) for chunk in run.chunks.order_by("place")]
    return {**_run_row(run), "chunks": chunks}


@router.post("/runs/{run_id}/cancel", response=RunRow, summary="Cancel a queued or running run; finished work is kept")
def cancel_run(request: HttpRequest, run_id: Id, body: Reason) -> RunRow:
    actor = actor_for(request, "task.cancel")
    return _run_row(tasks.cancel(actor, _run(run_id), body.reason, timezone.now()))


@router.post("/runs/{run_id}/resume", response=RunRow, summary="Resume a failed or canceled run")
def resume_run(request: HttpRequest, run_id: Id, body: Reason) -> RunRow:
    actor = actor_for(request, "task.resume")
    return _run_row(tasks.resume(actor, _run(run_id), body.reason, timezone.now()))


def _build_task_row(task: Task) -> TaskRow:
    return convert(TaskRow, build_task_document(task, timezone.now()))


def _run_row(run: Run) -> RunRow:
    return convert(RunRow, run_document(run))


def _get_task_or_404(name: str) -> Task:
    task = Task.objects.select_related("periodic").filter(name=name).first()
    if task is None:
        raise Http404(f"Task {name} is unknown; GET /api/v1/tasks lists the tasks.")
    return task


def _run(run_id: int) -> Run:
    run = Run.objects.select_related("task", "owner").filter(pk=run_id).first()
    if run is None:
        raise Http404(f"Run {run_id} is unknown; GET /api/v1/runs lists the runs.")
    return run
