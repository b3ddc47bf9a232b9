"""Batch tasks: read, run, and changed; their runs read, canceled, and resumed."""

from datetime import time
from typing import Any, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.errors import BadInput
from console.actions import tasks
from console.actions.task_documents import (
    DescribedRun,
    DescribedTask,
    RunDetail,
    describe_chunk,
    describe_run,
    describe_task,
)
from console.actions.tasks import WantedTask
from console.api.request.answers import Router, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, Reason, RequestBody, check_rows
from console.connections.control_server import build_job_context
from console.input.form_values import Id
from workers.models import Run, Task

router = Router(tags=["tasks"])


class RunList(TypedDict):
    runs: list[DescribedRun]


class TaskList(TypedDict):
    tasks: list[DescribedTask]


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


class ScheduleChange(TypedDict):
    """Tasks whose schedules were paused or resumed together."""

    tasks: list[str]


@router.get("/tasks", summary="List batch tasks: schedule, next start, last runs")
def list_tasks(request: HttpRequest) -> TaskList:
    actor_for(request, "plant.view")
    task_rows = Task.objects.select_related("periodic").order_by("name")
    return {"tasks": [describe_task(task, timezone.now()) for task in task_rows]}


@router.post("/schedules/pause", summary="Pause the schedules of all tasks")
def pause_schedules(request: HttpRequest, body: Reason) -> ScheduleChange:
    return {"tasks": tasks.pause_schedules(actor_for(request, "task.change"), body.reason)}


@router.post("/schedules/resume", summary="Resume the schedules that were paused together")
def resume_schedules(request: HttpRequest, body: Reason) -> ScheduleChange:
    return {"tasks": tasks.resume_schedules(actor_for(request, "task.change"), body.reason)}


@router.post("/tasks", summary="Create a batch task")
def define_task(request: HttpRequest, body: NewTask) -> DescribedTask:
    actor = actor_for(request, "task.define")
    return describe_task(tasks.define(actor, body.name, body.list_changes(), body.reason), timezone.now())


@router.get("/tasks/{name}", summary="Get a batch task")
def get_task(request: HttpRequest, name: str) -> DescribedTask:
    actor_for(request, "plant.view")
    return describe_task(_get_task_or_404(name), timezone.now())


@router.post("/tasks/{name}", summary="Change a batch task: schedule, parameters, workers, or state")
def change_task(request: HttpRequest, name: str, body: ChangedTask) -> DescribedTask:
    actor = actor_for(request, "task.change")
    _get_task_or_404(name)
    return describe_task(tasks.change(actor, name, body.list_changes(), body.reason, body.digest), timezone.now())


@router.post("/tasks/{name}/run", summary="Run a batch task now")
def begin_run(request: HttpRequest, name: str, body: NewRun) -> DescribedRun:
    actor = actor_for(request, "task.run")
    _get_task_or_404(name)
    if body.deadline_at is not None and body.deadline_at.tzinfo is None:
        raise BadInput("deadline_at", "must be a time with a time zone, such as 2026-11-20T06:00:00Z.")
    made = tasks.begin(actor, name, body.parameters, body.deadline_at, body.reason, build_job_context())
    return describe_run(made)


@router.get("/runs", summary="List runs of batch tasks, newest first")
def list_runs(request: HttpRequest, task: str = "", state: str = "", rows: int = 50) -> RunList:
    """Return runs, filtered by `task` and `state` if given."""
    actor_for(request, "plant.view")
    if state and state not in Run.State.values:
        raise BadInput("state", f"must be one of {', '.join(Run.State.values)}, not {state!r}.")
    check_rows(rows)
    wanted = {"task__name": task, "state": state}
    chosen = Run.objects.filter(**{name: value for name, value in wanted.items() if value})
    newest = chosen.select_related("task", "owner").order_by("-pk")[:rows]
    return {"runs": [describe_run(run) for run in newest]}


@router.get("/runs/{run_id}", summary="Get a run, its progress, its chunks, and skipped files")
def get_run(request: HttpRequest, run_id: Id) -> RunDetail:
    actor_for(request, "plant.view")
    run = _run(run_id)
    chunks = [describe_chunk(chunk) for chunk in run.chunks.order_by("place")]
    return RunDetail(**vars(describe_run(run)), chunks=chunks)


@router.post("/runs/{run_id}/cancel", summary="Cancel a queued or running run; finished work is kept")
def cancel_run(request: HttpRequest, run_id: Id, body: Reason) -> DescribedRun:
    actor = actor_for(request, "task.cancel")
    return describe_run(tasks.cancel(actor, _run(run_id), body.reason, timezone.now()))


@router.post("/runs/{run_id}/resume", summary="Resume a failed or canceled run")
def resume_run(request: HttpRequest, run_id: Id, body: Reason) -> DescribedRun:
    actor = actor_for(request, "task.resume")
    return describe_run(tasks.resume(actor, _run(run_id), body.reason, timezone.now()))


def _get_task_or_404(name: str) -> Task:
    message = f"Task {name} is unknown. GET /api/v1/tasks lists the tasks."
    return get_or_404(Task.objects.select_related("periodic"), message, name=name)


def _run(run_id: int) -> Run:
    message = f"Run {run_id} is unknown. GET /api/v1/runs lists the runs."
    return get_or_404(Run.objects.select_related("task", "owner"), message, pk=run_id)
