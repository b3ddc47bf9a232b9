"""Batch tasks on pages: state, schedule, duration; their runs and the chunks of a run; run now, change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import second_person, task_documents
from console.actions import tasks as task_steering
from console.connections.control_server import build_job_context
from console.input.form_values import parse_time
from console.models import AuditEntry
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    open_page,
    render_page,
    text_of,
)
from console.pages.work import task_form
from workers.batch import catalog, runs
from workers.batch.job import REQUIREMENTS, Job
from workers.models import Chunk, Run, Task

CHUNKS_PER_PAGE = 50
ORDER = (Chunk.State.FAILED, Chunk.State.WORKING, Chunk.State.PENDING, Chunk.State.DONE)


@dataclass(frozen=True, kw_only=True)
class RunPage(FormPage):
    """One run, and its chunks: those that need attention first."""

    TEMPLATE, NAME = "work/run.html", "tasks"

    run: task_documents.DescribedRun
    is_open: bool
    resumable: bool
    chunks: list[task_documents.DescribedChunk]  # those of page_obj
    skipped: list[dict[str, str]]  # [{"file", "why"}] of files that chunks could not read and left out
    page_obj: Page[Chunk]
    query: str = ""


@declare_page("plant.view")
def run_page(request: HttpRequest, run_id: int) -> HttpResponse:
    shown_run = get_object_or_404(Run.objects.select_related("task", "owner"), pk=run_id)
    ordered = sorted(shown_run.chunks.all(), key=lambda chunk: (ORDER.index(chunk.state), chunk.place))
    page_obj = Paginator(ordered, CHUNKS_PER_PAGE).get_page(request.GET.get("page"))
    page = RunPage(
        run=task_documents.describe_run(shown_run),
        is_open=shown_run.state in runs.OPEN,
        resumable=shown_run.state in runs.RESUMABLE and shown_run.chunks_total != 0,
        chunks=[task_documents.describe_chunk(chunk) for chunk in page_obj.object_list],
        skipped=[skip for chunk in ordered for skip in chunk.skipped],
        page_obj=page_obj,
    )
    return render_page(request, page, "frame")


@declare_action("task.cancel", run_page)
def cancel(request: HttpRequest, run_id: int) -> ActionResult:
    """Cancel a run. Posted: reason."""
    chosen_run = get_object_or_404(Run.objects.select_related("task"), pk=run_id)
    made = task_steering.cancel(actor_of(request), chosen_run, request.POST.get("reason", ""), timezone.now())
    return open_run(made, f"Run {run_id} was canceled; finished work is kept.")


@declare_action("task.resume", run_page)
def resume(request: HttpRequest, run_id: int) -> ActionResult:
    """Resume a run. Posted: reason."""
    chosen_run = get_object_or_404(Run.objects.select_related("task"), pk=run_id)
    made = task_steering.resume(actor_of(request), chosen_run, request.POST.get("reason", ""), timezone.now())
    return open_run(made, f"Run {run_id} continues with the unfinished work.")


def open_run(run: Run, message: str) -> ActionResult:
    url = reverse("run", args=[run.pk])
    return ActionResult(message, url, {"run": run.pk, "go": url})


TREND_RUNS = 24
RUNS_PER_PAGE = 15
ENDED = (Run.State.DONE, Run.State.FAILED, Run.State.CANCELLED)
DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class TaskWithTrend(task_documents.DescribedTask):
    """trend: its last runs, the oldest first; longest_seconds: of the finished ones; last: the newest."""

    trend: list[task_documents.DescribedRun]
    last: task_documents.DescribedRun | None
    longest_seconds: float | None

    @property
    def has_failed(self) -> bool:
        """Return whether its last run failed."""
        return self.last is not None and self.last.state == Run.State.FAILED


@dataclass(frozen=True, kw_only=True)
class TasksPage(FormPage):
    """All tasks and their runs, and the form of a new task."""

    TEMPLATE, NAME = "work/tasks.html", "tasks"

    tasks: list[TaskWithTrend]  # the worst first
    coming: TaskWithTrend | None  # the next by schedule
    open_runs: list[task_documents.DescribedRun]
    ended: list[task_documents.DescribedRun]  # those of page_obj
    page_obj: Page[Run]  # finished runs; `state` in the URL filters them
    state: str
    query: str
    lately: Mapping[str, int]  # runs that finished within a day, by result
    jobs: Mapping[str, Job]
    form: task_form.TaskForm
    requirements: Sequence[str]
    paused_schedules: int  # of tasks whose schedules are paused together


@dataclass(frozen=True, kw_only=True)
class TaskPage(FormPage):
    """One task and its runs."""

    TEMPLATE, NAME = "work/task.html", "tasks"

    task: TaskWithTrend
    runs: list[task_documents.DescribedRun]  # those of page_obj
    page_obj: Page[Run]
    query: str = ""
    parameters: list[task_documents.RunParameter]  # of every run, as typed
    run_parameters: list[task_documents.RunParameter]  # of the run to be started, as typed
    form: task_form.TaskForm
    proposals: list[AuditEntry]  # they wait for a second person
    requirements: Sequence[str]
    now_text: str


@declare_page("plant.view")
def tasks_page(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    rows = Run.objects.select_related("task", "owner")
    state = request.GET.get("state", "")
    chosen = rows.filter(state=state) if state in ENDED else rows.exclude(state__in=runs.OPEN)
    page_obj = Paginator(chosen.order_by("-ended_at", "-pk"), RUNS_PER_PAGE).get_page(request.GET.get("page"))
    described = [_build_row(task, now) for task in Task.objects.select_related("periodic")]
    described.sort(key=lambda task: (task.sound and not task.has_failed, task.name))
    lately = list(Run.objects.filter(ended_at__gt=now - DAY).values_list("state", flat=True))
    page = TasksPage(
        tasks=described,
        coming=min((task for task in described if task.next_at), key=lambda task: str(task.next_at), default=None),
        open_runs=[task_documents.describe_run(run) for run in rows.filter(state__in=runs.OPEN).order_by("pk")],
        ended=[task_documents.describe_run(run) for run in page_obj.object_list],
        page_obj=page_obj,
        state=state if state in ENDED else "",
        query=f"state={state}" if state in ENDED else "",
        lately={state.value: lately.count(state) for state in ENDED},
        jobs=catalog.JOBS,
        form=task_form.build_form(get_rejected_form(request).submitted),
        requirements=_list_requirements(request),
        paused_schedules=Task.objects.filter(is_paused=True).count(),
    )
    return render_page(request, page, "frame")


@declare_action("task.change", tasks_page)
def pause_schedules(request: HttpRequest) -> ActionResult:
    """Pause the schedules of all tasks. Posted: reason."""
    names = task_steering.pause_schedules(actor_of(request), request.POST.get("reason", ""))
    return open_page(f"Schedules are paused: {', '.join(names)}.", "tasks")


@declare_action("task.change", tasks_page)
def resume_schedules(request: HttpRequest) -> ActionResult:
    """Resume the schedules that were paused together. Posted: reason."""
    names = task_steering.resume_schedules(actor_of(request), request.POST.get("reason", ""))
    return open_page(f"Schedules are resumed: {', '.join(names)}.", "tasks")


def _list_requirements(request: HttpRequest, current: Sequence[str] = ()) -> list[str]:
    """Return what a task may require: roles, capabilities that a host has, and current requirements."""
    hosts = get_snapshot(request).hosts.values()
    return list(dict.fromkeys((*REQUIREMENTS, *sorted({n for host in hosts for n in host.capabilities}), *current)))


def _build_row(task: Task, now: datetime) -> TaskWithTrend:
    described = task_documents.describe_task(task, now, TREND_RUNS)
    trend = described.runs[::-1]
    longest = max((run.seconds for run in trend if run.seconds is not None), default=None)
    last = trend[-1] if trend else None
    return TaskWithTrend(**vars(described), trend=trend, last=last, longest_seconds=longest)


@declare_page("plant.view")
def task_page(request: HttpRequest, name: str) -> HttpResponse:
    shown_task = get_object_or_404(Task.objects.select_related("periodic"), name=name)
    mine = shown_task.runs.select_related("task", "owner").order_by("-created_at", "-pk")
    page_obj = Paginator(mine, RUNS_PER_PAGE).get_page(request.GET.get("page"))
    rows = task_documents.list_run_parameters(shown_task)
    # There are two forms: what was typed for one run is neither the task's schedule nor a parameter of every run.
    submitted = get_rejected_form(request).submitted
    changes = submitted if "parallel" in submitted else None
    page = TaskPage(
        task=_build_row(shown_task, timezone.now()),
        runs=[task_documents.describe_run(run) for run in page_obj.object_list],
        page_obj=page_obj,
        parameters=task_form.restore_typed_values(rows, changes),
        run_parameters=rows if changes else task_form.restore_typed_values(rows, submitted),
        form=task_form.build_form(changes) if changes else task_form.build_form_from_task(shown_task),
        proposals=second_person.list_waiting(name, timezone.now()),
        requirements=_list_requirements(request, shown_task.requirements),
        now_text=f"{timezone.now().astimezone(UTC):%H:%M}",
    )
    return render_page(request, page, "frame")


@declare_action("task.run", task_page)
def begin(request: HttpRequest, name: str) -> ActionResult:
    """Start a run and open it. Posted: set-NAME for each parameter, deadline (UTC, optional), reason."""
    get_object_or_404(Task, name=name)
    text = request.POST.get("deadline", "").strip()
    deadline_at = parse_time(text, "deadline") if text else None
    reason = request.POST.get("reason", "")
    try:
        made = task_steering.begin(
            actor_of(request), name, task_form.read_parameters(request.POST), deadline_at, reason, build_job_context()
        )
    except BadInput as error:
        raise task_form.move_error_to_field(error, request.POST) from None
    return open_run(made, f"Run {made.pk} of {name} is {made.state}.")


@declare_action("task.change", task_page)
def change(request: HttpRequest, name: str) -> ActionResult:
    """Change a task.

    Posted: when (hand, interval, calendar), interval and unit, crontab, deadline (HH:MM UTC), parallel, requirement
    (repeated), enabled, set-NAME, reason, digest (of the task as shown).
    """
    changed_task, posted = get_object_or_404(Task, name=name), request.POST
    try:
        wanted = task_form.read_task(posted, changed_task.job)
        reason, digest = posted.get("reason", ""), posted.get("digest", "")
        task_steering.change(actor_of(request), name, wanted, reason, digest)
    except BadInput as error:
        raise task_form.move_error_to_field(error, request.POST) from None
    url = reverse("task", args=[name])
    return ActionResult(f"{name} was changed.", url, {"go": url})


@declare_action("task.define", tasks_page)
def define(request: HttpRequest) -> ActionResult:
    """Create a task. Posted: name, job, and what `change` takes."""
    name = text_of(request, "name", "Enter a name")
    job = text_of(request, "job", "Choose a job, or enter python: and a dotted path")
    try:
        wanted = task_form.read_task(request.POST, job)
        task_steering.define(actor_of(request), name, wanted, request.POST.get("reason", ""))
    except BadInput as error:
        raise task_form.move_error_to_field(error, request.POST) from None
    url = reverse("task", args=[name])
    return ActionResult(f"Task {name} was created.", url, {"go": url})
