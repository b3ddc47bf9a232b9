"""One worker host: what runs there, and its drain."""

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.access import actor_of, requires
from console.actions.queues import stops
from console.connections.control_server import control
from console.display.override_words import describe_end, describe_replaced_overrides
from console.display.subject_pages import is_known_host
from console.input.form_values import parse_expiry
from console.pages.frame.action import ActionResult, declare_action
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import Errors, FormPage, render_page
from console.pages.frame.past import past_of, time_shown
from workers.documents.hosts import HostStatus
from workers.documents.loops import LoopStatus
from workers.models import Override
from workers.steering.overrides import list_active_at


@dataclass(frozen=True, kw_only=True)
class WorkerHostPage(FormPage):
    """One worker host, and the actions on it."""

    TEMPLATE, NAME = "plant/worker_host.html", "workers"

    name: str
    row: HostStatus | None  # its part of the snapshot
    others: list[str]  # hosts of the same role that accept work
    loop: LoopStatus | None  # the loop that sizes its pool
    overrides: QuerySet[Override]


@require_safe
@requires("plant.view")
def worker_host(request: HttpRequest, name: str) -> HttpResponse:
    """Show one worker host; 404 for an unknown name."""
    return worker_host_page(request, name)


def worker_host_page(
    request: HttpRequest, name: str, errors: Errors | None = None, submitted: QueryDict | None = None
) -> HttpResponse:
    seen = get_snapshot(request)
    row = seen.hosts.get(name)
    has_snapshot = snapshot_of(request) is not None
    if row is None and has_snapshot and past_of(request) is None and not is_known_host(name):
        raise Http404(f"{name} is not a worker host.")
    page = WorkerHostPage(
        name=name,
        row=row,
        others=[
            other
            for other, each in seen.hosts.items()
            if row is not None and each.role == row.role and other != name and each.draining is None
        ],
        loop=next((loop for loop in seen.loops.values() if loop.target.get("host") == name), None),
        overrides=list_active_at(time_shown(request)).filter(host=name).select_related("owner"),
        errors=errors or {},
        submitted=submitted or {},
    )
    return render_page(request, page, "frame")


@declare_action("host.drain", worker_host_page)
def drain(request: HttpRequest, name: str) -> ActionResult:
    """Drain a worker host. Posted: reason, expiry."""
    made = stops.drain_host(
        actor_of(request),
        name,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        expiry=parse_expiry(request.POST),
        control=control(),
    )
    said = f"{name} accepts no new work {describe_end(made)}; running work is finished."
    said += describe_replaced_overrides([made])
    return ActionResult(said, reverse("worker-host", args=[name]), {"overrides": [made.pk]})
