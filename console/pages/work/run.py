"""One run of a task: its chunks, and canceling or resuming it."""

from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.access import actor_of, requires
from console.actions import tasks as task_steering
from console.actions.task_documents import DescribedChunk, DescribedRun, describe_chunk, describe_run
from console.pages.frame.action import ActionResult, declare_action
from console.pages.frame.page import Errors, FormPage, render_page
from workers.batch import runs
from workers.models import Chunk, Run

CHUNKS_PER_PAGE = 50
ORDER = (Chunk.State.FAILED, Chunk.State.WORKING, Chunk.State.PENDING, Chunk.State.DONE)


@dataclass(frozen=True, kw_only=True)
class RunPage(FormPage):
    """One run, and its chunks: those that need attention first."""

    TEMPLATE, NAME = "work/run.html", "tasks"

    run: DescribedRun
    is_open: bool
    resumable: bool
    chunks: list[DescribedChunk]  # those of page_obj
    skipped: list[dict[str, str]]  # [{"file", "why"}] of files that chunks could not read and left out
    page_obj: Page[Chunk]
    query: str = ""


@require_safe
@requires("plant.view")
def run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show one run."""
    return run_page(request, run_id)


def run_page(
    request: HttpRequest, run_id: int, errors: Errors | None = None, submitted: QueryDict | None = None
) -> HttpResponse:
    shown_run = get_object_or_404(Run.objects.select_related("task", "owner"), pk=run_id)
    ordered = sorted(shown_run.chunks.all(), key=lambda chunk: (ORDER.index(chunk.state), chunk.place))
    page_obj = Paginator(ordered, CHUNKS_PER_PAGE).get_page(request.GET.get("page"))
    page = RunPage(
        run=describe_run(shown_run),
        is_open=shown_run.state in runs.OPEN,
        resumable=shown_run.state in runs.RESUMABLE and shown_run.chunks_total != 0,
        chunks=[describe_chunk(chunk) for chunk in page_obj.object_list],
        skipped=[skip for chunk in ordered for skip in chunk.skipped],
        page_obj=page_obj,
        errors=errors or {},
        submitted=submitted or {},
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
    """Return a result that opens the run."""
    url = reverse("run", args=[run.pk])
    return ActionResult(message, url, {"run": run.pk, "go": url})
