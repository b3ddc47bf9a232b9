"""Batch tasks on pages: what runs, when, how long it takes; run now, cancel, resume, change."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.access import actor_of, requires
from console.actions import second_person
from console.actions import tasks as task_steering
from console.actions.task_documents import (
    chunk_document,
    last_runs,
    parameter_rows,
    run_document,
    task_document,
)
from console.actions.tasks import WantedTask
from console.connections.surroundings import surroundings
from console.input.form_values import number_of, time_of
from console.pages.frame.action import Done, action, text_of
from console.pages.frame.frame import show
from queues.errors import BadInput
from workers.batch import catalog, runs
from workers.batch.jobs.job import REQUIREMENTS
from workers.models import Chunk, Run, Task

TREND_RUNS = 24
RUNS_PER_PAGE = 15
CHUNKS_PER_PAGE = 50
SET = "set-"  # the fields of a job's parameters
WHEN = ("hand", "interval", "calendar")
UNITS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}
ORDER = (Chunk.State.FAILED, Chunk.State.WORKING, Chunk.State.PENDING, Chunk.State.DONE)
ENDED = (Run.State.DONE, Run.State.FAILED, Run.State.CANCELLED)
DAY = timedelta(days=1)


@require_safe
@requires("plant.view")
def tasks(request: HttpRequest) -> HttpResponse:
    """Context: tasks (documents with `trend`, `last`), coming (the next by schedule), open_runs, ended and
    page_obj of ended runs (`state` in the URL chooses), lately (counts of a day), jobs, form.
    """
    return tasks_page(request)


def tasks_page(request: HttpRequest, errors: Any = None, submitted: Any = None) -> HttpResponse:
    now = timezone.now()
    rows = Run.objects.select_related("task", "owner")
    state = request.GET.get("state", "")
    chosen = rows.filter(state=state) if state in ENDED else rows.exclude(state__in=runs.OPEN)
    page_obj = Paginator(chosen.order_by("-ended_at", "-pk"), RUNS_PER_PAGE).get_page(request.GET.get("page"))
    described = [_described(task, now) for task in Task.objects.select_related("periodic")]
    return show(
        request,
        "work/tasks.html",
        "tasks",
        view="frame",
        tasks=sorted(described, key=_worst_first),
        coming=min((each for each in described if each["next_at"]), key=_next_at, default=None),
        open_runs=[run_document(run) for run in rows.filter(state__in=runs.OPEN).order_by("pk")],
        ended=[run_document(run) for run in page_obj.object_list],
        page_obj=page_obj,
        state=state if state in ENDED else "",
        query=f"state={state}" if state in ENDED else "",
        lately=_lately(now),
        jobs=catalog.JOBS,
        form=_form_of(submitted),
        requirements=REQUIREMENTS,
        errors=errors or {},
    )


def _worst_first(task: Mapping[str, Any]) -> tuple[bool, str]:
    sound = task["sound"] and (task["last"] or {}).get("state") != Run.State.FAILED
    return sound, task["name"]


def _next_at(task: Mapping[str, Any]) -> str:
    return str(task["next_at"])


def _described(task: Task, now: datetime) -> dict[str, Any]:
    trend = [run_document(run) for run in reversed(last_runs(task, TREND_RUNS))]
    longest = max((run["seconds"] for run in trend if run["seconds"] is not None), default=None)
    last = trend[-1] if trend else None
    return {**task_document(task, now), "trend": trend, "last": last, "longest_seconds": longest}


def _lately(now: datetime) -> dict[str, int]:
    """Ended within a day, by how."""
    states = Run.objects.filter(ended_at__gt=now - DAY).values_list("state", flat=True)
    return {state.value: list(states).count(state) for state in ENDED}


@require_safe
@requires("plant.view")
def task(request: HttpRequest, name: str) -> HttpResponse:
    """Context: task (document), parameters (`parameter_rows`), proposals (entries of the audit that
    wait for a second person), runs, page_obj, form (values as typed)."""
    return task_page(request, name)


def task_page(request: HttpRequest, name: str, errors: Any = None, submitted: Any = None) -> HttpResponse:
    found = get_object_or_404(Task.objects.select_related("periodic"), name=name)
    mine = found.runs.select_related("task", "owner").order_by("-created_at", "-pk")
    page_obj = Paginator(mine, RUNS_PER_PAGE).get_page(request.GET.get("page"))
    return show(
        request,
        "work/task.html",
        "tasks",
        view="frame",
        task=_described(found, timezone.now()),
        runs=[run_document(run) for run in page_obj.object_list],
        page_obj=page_obj,
        parameters=_typed(parameter_rows(found), submitted),
        form=_form_of(submitted) if submitted else _form_of_task(found),
        proposals=second_person.waiting(name, timezone.now()),
        requirements=REQUIREMENTS,
        now_text=f"{timezone.now().astimezone(UTC):%H:%M}",
        errors=errors or {},
        submitted=submitted or {},
    )


@require_safe
@requires("plant.view")
def run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Context: run (document), is_open, resumable, chunks, page_obj, counts of chunks by state."""
    return run_page(request, run_id)


def run_page(request: HttpRequest, run_id: int, errors: Any = None, submitted: Any = None) -> HttpResponse:
    found = get_object_or_404(Run.objects.select_related("task", "owner"), pk=run_id)
    ordered = sorted(found.chunks.all(), key=lambda chunk: (ORDER.index(chunk.state), chunk.place))
    page_obj = Paginator(ordered, CHUNKS_PER_PAGE).get_page(request.GET.get("page"))
    return show(
        request,
        "work/run.html",
        "tasks",
        view="frame",
        run=run_document(found),
        is_open=found.state in runs.OPEN,
        resumable=found.state in runs.RESUMABLE,
        chunks=[chunk_document(chunk) for chunk in page_obj.object_list],
        skipped=[each for chunk in ordered for each in chunk.skipped],
        page_obj=page_obj,
        errors=errors or {},
        submitted=submitted or {},
    )


@action("task.run", task_page)
def begin(request: HttpRequest, name: str) -> Done:
    """Posted: set-NAME for each parameter, deadline (UTC, may be missing), reason. Opens the run."""
    get_object_or_404(Task, name=name)
    text = request.POST.get("deadline", "").strip()
    deadline_at = time_of(text, "deadline") if text else None
    reason = request.POST.get("reason", "")
    try:
        made = task_steering.begin(
            actor_of(request), name, _values(request.POST), deadline_at, reason, surroundings()
        )
    except BadInput as error:
        raise _at_field(error, request.POST) from None
    return _opened(made, f"Run {made.pk} of {name} is {made.state}.")


@action("task.change", task_page)
def change(request: HttpRequest, name: str) -> Done:
    """Posted: when (hand, interval, calendar), interval and unit, crontab, deadline (HH:MM UTC), parallel,
    requirement (repeated), enabled, set-NAME, reason.
    """
    found = get_object_or_404(Task, name=name)
    try:
        wanted = _wanted(request.POST, found.job)
        task_steering.change(actor_of(request), name, wanted, request.POST.get("reason", ""))
    except BadInput as error:
        raise _at_field(error, request.POST) from None
    url = reverse("task", args=[name])
    return Done(f"{name} is changed.", url, {"go": url})


@action("task.define", tasks_page)
def define(request: HttpRequest) -> Done:
    """Posted: name, job, and what `change` takes."""
    name = text_of(request, "name", "give the task one")
    job = text_of(request, "job", "choose one, or python: and a dotted path")
    try:
        wanted = _wanted(request.POST, job)
        task_steering.define(actor_of(request), name, wanted, request.POST.get("reason", ""))
    except BadInput as error:
        raise _at_field(error, request.POST) from None
    url = reverse("task", args=[name])
    return Done(f"{name} is a task.", url, {"go": url})


@action("task.cancel", run_page)
def cancel(request: HttpRequest, run_id: int) -> Done:
    """Posted: reason."""
    found = get_object_or_404(Run.objects.select_related("task"), pk=run_id)
    made = task_steering.cancel(actor_of(request), found, request.POST.get("reason", ""), timezone.now())
    return _opened(made, f"Run {run_id} is cancelled; what is done stays.")


@action("task.resume", run_page)
def resume(request: HttpRequest, run_id: int) -> Done:
    """Posted: reason."""
    found = get_object_or_404(Run.objects.select_related("task"), pk=run_id)
    made = task_steering.resume(actor_of(request), found, request.POST.get("reason", ""), timezone.now())
    return _opened(made, f"Run {run_id} goes on with what was not done.")


def _opened(made: Run, message: str) -> Done:
    url = reverse("run", args=[made.pk])
    return Done(message, url, {"run": made.pk, "go": url})


def _values(posted: QueryDict) -> dict[str, str]:
    """The parameters that were typed; an empty field leaves the task's own, or the default."""
    return {
        field.removeprefix(SET): text
        for field in posted
        if field.startswith(SET) and (text := posted.get(field, "").strip())
    }


def _wanted(posted: QueryDict, job: str) -> WantedTask:
    when = posted.get("when", "hand")
    if when not in WHEN:
        raise BadInput("when", f"takes {', '.join(WHEN)}, not {when[:40]!r}.")
    return WantedTask(
        job=job,
        parameters=_values(posted),
        parallel=_whole(posted.get("parallel", "1"), "parallel"),
        requirements=posted.getlist("requirement"),
        interval_seconds=_interval_seconds(posted) if when == "interval" else None,
        crontab=posted.get("crontab", "").strip() if when == "calendar" else None,
        deadline=_clock(posted.get("done_by", "").strip()),
        enabled=posted.get("enabled", "") == "1",
    )


def _interval_seconds(posted: QueryDict) -> int:
    unit = posted.get("unit", "seconds")
    if unit not in UNITS:
        raise BadInput("unit", f"takes {', '.join(UNITS)}, not {unit[:40]!r}.")
    return _whole(posted.get("interval", "").strip(), "interval") * UNITS[unit]


def _clock(text: str) -> time | None:
    try:
        return time.fromisoformat(text) if text else None
    except ValueError:
        raise BadInput("done_by", f"takes a time of day as 06:00, not {text[:40]!r}.") from None


def _whole(text: str, field: str) -> int:
    value = number_of(text, field)
    if not isinstance(value, int):
        raise BadInput(field, f"takes a whole number, not {text[:40]!r}.")
    return value


def _at_field(error: BadInput, posted: QueryDict) -> BadInput:
    """A job's parameter is the field set-NAME on the page."""
    if SET + error.field in posted:
        return BadInput(SET + error.field, error.message)
    return BadInput("interval", error.message) if error.field == "interval_seconds" else error


def _typed(rows: list[dict[str, Any]], submitted: Any) -> list[dict[str, Any]]:
    """Rows of parameters with what was typed, where something was refused."""
    if not submitted:
        return rows
    return [{**row, "value": submitted.get(SET + row["name"], row["value"])} for row in rows]


def _form_of(submitted: Any) -> dict[str, Any]:
    """The schedule's fields as they were typed, or those of a new task."""
    posted = submitted or QueryDict("when=hand&unit=minutes&parallel=1&enabled=1")
    names = ("name", "job", "when", "interval", "unit", "crontab", "done_by", "parallel", "reason")
    return {
        **{name: posted.get(name, "") for name in names},
        "requirements": posted.getlist("requirement"),
        "enabled": posted.get("enabled", "") == "1",
    }


def _form_of_task(task: Task) -> dict[str, Any]:
    """The schedule's fields as the task is."""
    document = task_document(task, timezone.now())
    seconds = document["interval_seconds"]
    unit = next(
        (name for name, length in reversed(UNITS.items()) if seconds and seconds % length == 0), "minutes"
    )
    calendar = document["crontab"] is not None
    return {
        "when": "interval" if seconds else "calendar" if calendar else "hand",
        "interval": seconds // UNITS[unit] if seconds else "",
        "unit": unit,
        "crontab": document["crontab"] or "",
        "done_by": document["deadline"] or "",
        "parallel": task.parallel,
        "requirements": task.requirements,
        "enabled": task.enabled,
    }
