"""The plant at an instant, for people with a link and no login; and sharing it from the timeline.

A link's content never changes, so its picture is drawn once, however often it is requested.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import redis
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from common.stored_document import BadDocument, replace_fields
from console.accounts.access import actor_of
from console.actions import shared_links
from console.connections.control_server import control
from console.display import public_status
from console.display.formats import format_value
from console.display.plant_picture import PlantCard, render_png
from console.display.state_words import get_health_word
from console.input.form_values import parse_number, parse_time
from console.input.row_id import parse_row_id
from console.models import SharedLink
from console.pages.frame.action import ActionResult, declare_action, text_of
from console.pages.frame.page import Errors
from console.pages.records.timeline import timeline_page
from console.web.template_context import TemplateContext, render_context
from workers.documents.alerts import AlertStatus
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import PlantTotals, Snapshot
from workers.history import metric_history
from workers.history.snapshot_archive import snapshot_at
from workers.snapshot.judgement import WORDS

RATE, BEFORE = "totals.in_per_second", timedelta(hours=2)
MAX_POINTS = 240
MAX_PICTURES = 64  # kept in a process, about 15 kB each
# Not indexed, and not cached by proxies.
PRIVATE_HEADERS = {"X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}


class NoPicture(Exception):  # noqa: N818
    """No snapshot of the instant is readable now: the file may be missing, or just be rewritten."""


@dataclass(frozen=True, kw_only=True)
class SharedLinkPage(TemplateContext):
    """What a link shows: no people, addresses, or errors.

    worst: the worst problem, "" for none. picture: the full address of the picture.
    """

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
    picture: str


@dataclass(frozen=True, kw_only=True)
class NoLinkPage(TemplateContext):
    """A link that opens nothing; the reason is not disclosed."""

    TEMPLATE = "records/no_link.html"


@login_not_required
@never_cache
@require_safe
def show_shared_instant(request: HttpRequest, signed: str) -> HttpResponse:
    """Show the plant at the link's instant."""
    link, snapshot = _open_link(signed)
    if link is None or snapshot is None:
        return _set_private_headers(render_context(request, NoLinkPage(), status=404))
    page = SharedLinkPage(
        at=_get_shown_instant(snapshot, link.at),
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
        picture=request.build_absolute_uri(reverse("shared-link-picture", args=[signed])),
    )
    return _set_private_headers(render_context(request, page))


@login_not_required
@never_cache
@require_safe
def picture(request: HttpRequest, signed: str) -> HttpResponse:
    """Return the picture as PNG, with the rates of the two hours before."""
    link = shared_links.open_link(signed, timezone.now())
    try:
        drawn = None if link is None else _draw_picture(settings.WEIR_DATA, link.at)
    # None of these errors is cached, so the next attempt may succeed.
    except (redis.RedisError, BadDocument, OSError, NoPicture):
        drawn = None
    if drawn is None:
        return _set_private_headers(HttpResponse("This link is not valid.\n", status=404, content_type="text/plain"))
    return _set_private_headers(HttpResponse(drawn, content_type="image/png"))


@functools.lru_cache(maxsize=MAX_PICTURES)
def _draw_picture(data: Path, asked: datetime) -> bytes:
    """Draw the picture of an instant. Raises RedisError, BadDocument, OSError, NoPicture."""
    snapshot = snapshot_at(data, asked.timestamp())
    if snapshot is None:
        raise NoPicture
    at, totals = _get_shown_instant(snapshot, asked), snapshot.totals
    card = PlantCard(
        title=f"Weir, plant {snapshot.plant}, {at.astimezone(UTC):%-d %b %Y, %H:%M:%S} UTC",
        severity=snapshot.health.severity,
        state=WORDS[snapshot.health.severity],
        sentence=public_status.describe_worst_problem(snapshot),
        tiles=(
            ("Events in", f"{format_value(totals.in_per_second, 'rate')} /s"),
            ("Events out", f"{format_value(totals.out_per_second, 'rate')} /s"),
            ("Latency, p95", f"{format_value(totals.latency_p95_seconds, 'fraction')} s"),
            ("Waiting events", format_value(totals.backlog_events, "integer")),
        ),
        rates=_load_rates(data, at),
        about="Events/s in, previous two hours",
    )
    return render_png(card)


def _open_link(signed: str) -> tuple[SharedLink | None, Snapshot | None]:
    link = shared_links.open_link(signed, timezone.now())
    if link is None:
        return None, None
    try:
        return link, snapshot_at(settings.WEIR_DATA, link.at.timestamp())
    except (BadDocument, OSError):
        return link, None


def _get_shown_instant(snapshot: Snapshot, asked: datetime) -> datetime:
    return asked if snapshot.at is None else datetime.fromtimestamp(snapshot.at, UTC)


def _load_rates(data: Path, at: datetime) -> list[float | None]:
    since, until = (at - BEFORE).timestamp(), at.timestamp()
    columns = metric_history.read_columns(control(), data, since, until, [RATE], means=True)
    return _thin_series(columns["at"], columns[RATE], since, until)


def _thin_series(
    times: Sequence[float | None], rates: Sequence[float | None], since: float, until: float
) -> list[float | None]:
    """Return means of equal steps; None if none was measured."""
    sums, counts = [0.0] * MAX_POINTS, [0] * MAX_POINTS
    for at, rate in zip(times, rates, strict=True):
        if at is not None and rate is not None:
            place = min(int((at - since) / (until - since) * MAX_POINTS), MAX_POINTS - 1)
            sums[place], counts[place] = sums[place] + rate, counts[place] + 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def _set_private_headers(response: HttpResponse) -> HttpResponse:
    for name, value in PRIVATE_HEADERS.items():
        response[name] = value
    return response


def _timeline_again(request: HttpRequest, errors: Errors, submitted: QueryDict) -> HttpResponse:
    return timeline_page(request, errors, submitted)


@declare_action("link.make", _timeline_again)
def share(request: HttpRequest) -> ActionResult:
    """Share an instant. Posted: at, hours, reason."""
    at = parse_time(text_of(request, "at", "choose the time that the link shows"), "at")
    hours = parse_number(text_of(request, "hours", "enter how long the link is valid"), "hours")
    reason = request.POST.get("reason", "")
    shared_links.share(actor_of(request), at=at, hours=hours, reason=reason, now=timezone.now())
    return ActionResult("Link created. It is listed under Shared links.", f"{reverse('timeline')}#shared-links")


@declare_action("link.end", _timeline_again)
def end(request: HttpRequest) -> ActionResult:
    """End a link. Posted: link (its number), reason."""
    number = parse_row_id(text_of(request, "link", "choose the link to end")) or 0
    link = get_object_or_404(SharedLink, pk=number)
    reason = request.POST.get("reason", "")
    shared_links.end(actor_of(request), link, reason=reason, now=timezone.now())
    return ActionResult("Link ended. It can no longer be opened.", f"{reverse('timeline')}#shared-links")
