"""The plant at an instant, for people with a link and no login; and sharing it from the timeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from common.stored_document import BadDocument, replace_fields
from console.accounts.access import actor_of
from console.actions import shared_links
from console.display import public_status
from console.display.states import get_health_word
from console.input.form_values import parse_number, parse_row_id, parse_time
from console.models import SharedLink
from console.pages.frame.page import ActionResult, declare_action, text_of
from console.pages.records.timeline import timeline_page
from console.web.template_context import TemplateContext, render_context
from workers.documents.alerts import AlertStatus
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import PlantTotals
from workers.history.snapshot_archive import snapshot_at

# Not indexed, and not cached by proxies.
PRIVATE_HEADERS = {"X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}


@dataclass(frozen=True, kw_only=True)
class SharedLinkPage(TemplateContext):
    """The content that a link shows: no people, addresses, or errors. worst: the worst problem, "" for none."""

    TEMPLATE = "records/shared_link.html"

    at: datetime
    expires_at: datetime
    plant: str
    state: str
    word: str
    worst: str
    totals: PlantTotals
    nodes: dict[str, NodeStatus]
    queues: dict[str, QueueStatus]
    alerts: Sequence[AlertStatus]


@dataclass(frozen=True, kw_only=True)
class NoLinkPage(TemplateContext):
    """A link that opens nothing; the reason is not disclosed."""

    TEMPLATE = "records/no_link.html"


@login_not_required
@never_cache
@require_safe
def show_shared_instant(request: HttpRequest, signed: str) -> HttpResponse:
    """Show the plant at the link's instant."""
    link, snapshot = shared_links.open_link(signed, timezone.now()), None
    if link is not None:
        try:
            snapshot = snapshot_at(settings.WEIR_DATA, link.at.timestamp())
        except (BadDocument, OSError):
            snapshot = None
    if link is None or snapshot is None:
        response = render_context(request, NoLinkPage(), status=404)
    else:
        page = SharedLinkPage(
            at=link.at if snapshot.at is None else datetime.fromtimestamp(snapshot.at, UTC),
            expires_at=link.expires_at,
            plant=snapshot.plant,
            state=snapshot.health.state,
            word=get_health_word(snapshot.health),
            worst=public_status.describe_worst_problem(snapshot),
            totals=snapshot.totals,
            nodes=snapshot.nodes,
            queues=snapshot.queues,
            alerts=[
                replace_fields(alert, title=public_status.get_public_title(alert))
                for alert in snapshot.alerts
                if alert.under is None
            ],
        )
        response = render_context(request, page)
    for name, value in PRIVATE_HEADERS.items():
        response[name] = value
    return response


@declare_action("link.make", timeline_page)
def share(request: HttpRequest) -> ActionResult:
    """Share an instant. Posted: at, hours, reason."""
    at = parse_time(text_of(request, "at", "Choose the time that the link shows"), "at")
    hours = parse_number(text_of(request, "hours", "Enter how long the link is valid"), "hours")
    reason = request.POST.get("reason", "")
    shared_links.share(actor_of(request), at=at, hours=hours, reason=reason, now=timezone.now())
    return ActionResult("Link created. It is listed under Shared links.", f"{reverse('timeline')}#shared-links")


@declare_action("link.end", timeline_page)
def end(request: HttpRequest) -> ActionResult:
    """End a link. Posted: link (its number), reason."""
    number = parse_row_id(text_of(request, "link", "Choose the link to end")) or 0
    link = get_object_or_404(SharedLink, pk=number)
    reason = request.POST.get("reason", "")
    shared_links.end(actor_of(request), link, reason=reason, now=timezone.now())
    return ActionResult("Link ended. It can no longer be opened.", f"{reverse('timeline')}#shared-links")
