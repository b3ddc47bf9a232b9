"""For monitoring systems: whether the process is alive, whether the plant is ready, and its metrics."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError
from django.db.models import Max, Min, Subquery
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from console.accounts.access import actor_of, find_token_actor, parse_bearer_secret
from console.connections.control_server import load_latest_snapshot
from console.pages.health import readiness
from console.pages.health.exposition import render_exposition
from console.web.admission import count_refusals
from console.web.proxies import is_direct_from_this_host
from workers.alerts.lifecycle.models import Message
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop
from workers.steering.scope import list_active_loops

FAILED_WITHIN = timedelta(minutes=15)  # actions
GIVEN_UP_WITHIN = timedelta(days=1)  # messages


@dataclass(frozen=True)
class RecordFigures:
    """Figures from the database.

    decisions: since the ledger began, including those that retention has deleted. message_wait_seconds: age of the
    oldest waiting message; 0 if none waits. Failed actions and messages are recent ones.
    """

    decisions: int
    open_actions: int
    failed_actions: int
    messages_waiting: int
    message_wait_seconds: float
    messages_failed: int


def record_figures(now: datetime) -> RecordFigures:
    """Read the figures with indices alone, except for the rows that are counted. Raises `DatabaseError`."""
    waiting = Message.objects.filter(state=Message.State.WAITING)
    oldest = waiting.aggregate(oldest=Min("created_at"))["oldest"]
    given_up = Message.objects.filter(state=Message.State.FAILED, created_at__gt=now - GIVEN_UP_WITHIN)
    # Loops whose last entry is an action that is neither confirmed nor failed; reads a row a loop.
    last = LedgerEntry.objects.filter(pk__in=list_active_loops().values_list(Subquery(ledger.select_last_entry_ids())))
    open_actions = last.filter(mode__in=Loop.ACTING, action__isnull=False, applied=False, error="").count()
    # An index finds the actions from an instant on, and only their rows are read.
    since, failed_actions = now - FAILED_WITHIN, 0
    first = LedgerEntry.objects.filter(at__gte=since).order_by("at").values_list("pk", flat=True).first()
    if first is not None:
        acted = LedgerEntry.objects.filter(pk__gte=first, acted=True, at__gte=since).values("pk")
        failed_actions = LedgerEntry.objects.filter(pk__in=acted).exclude(error="").count()
    return RecordFigures(
        decisions=LedgerEntry.objects.aggregate(newest=Max("pk"))["newest"] or 0,
        open_actions=open_actions,
        failed_actions=failed_actions,
        messages_waiting=waiting.count(),
        message_wait_seconds=max(0.0, (now - oldest).total_seconds()) if oldest else 0.0,
        messages_failed=given_up.exclude(error__in=Message.NO_FAULT).count(),
    )


def record_families(figures: RecordFigures) -> Iterator[Metric]:
    yield CounterMetricFamily("weir_ledger_decisions", "Decisions of all loops", figures.decisions)
    gauges = {
        "weir_ledger_open_actions": ("Actions neither confirmed nor failed", figures.open_actions),
        "weir_ledger_failed_actions": ("Failed actions of the last 15 minutes", figures.failed_actions),
        "weir_messages_waiting": ("Messages to receivers waiting to be sent", figures.messages_waiting),
        "weir_message_wait_seconds": ("Wait of the oldest message in seconds", figures.message_wait_seconds),
        "weir_messages_failed": ("Undeliverable messages of the last day", figures.messages_failed),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value)


def build_rejection_metric(refused: Mapping[str, int]) -> Metric:
    """Return {line of requests: requests rejected by a full line since this process started}."""
    text = "Requests that this process rejected because too many were waiting"
    family = CounterMetricFamily("weir_console_refused_requests", text, labels=("line",))
    for line, count in refused.items():
        family.add_metric((line,), count)
    return family


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that this process is alive; nothing else is checked."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 if every needed part is ready, else 503, with the age of each part.

    Details of a part (errors, addresses, counts) are only shown to those who may see the plant.
    """
    parts = readiness.SHARED.list_parts(timezone.now())
    ready = all(part.ok for part in parts.values())
    known = parts["database"].ok and _may_read(request)
    document = {"ready": ready, "parts": {name: part.document(known) for name, part in parts.items()}}
    return JsonResponse(document, status=200 if ready else 503)


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return Prometheus text for a token, a login, or (WEIR_METRICS_LOOPBACK) a scraper on this machine."""
    if not ((settings.WEIR_METRICS_LOOPBACK and is_direct_from_this_host(request)) or _may_read(request)):
        return HttpResponse("Metrics require a token (Authorization: Bearer …) or a login.\n", status=401)
    text = render_exposition(load_latest_snapshot(), _collect_extra_figures(request))
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


def _collect_extra_figures(request: HttpRequest) -> Iterator[Metric]:
    """Return figures beside the snapshot's.

    Unknown figures are left out: the database may be unreachable, and a request may not have passed through admission
    lines.
    """
    with suppress(DatabaseError):
        yield from record_families(record_figures(timezone.now()))
    if (refused := count_refusals(getattr(request, "scope", {}))) is not None:
        yield build_rejection_metric(refused)


def _may_read(request: HttpRequest) -> bool:
    secret = parse_bearer_secret(request.META.get("HTTP_AUTHORIZATION"))
    actor = find_token_actor(secret, timezone.now()) if secret else actor_of(request)
    return actor is not None and actor.may("plant.view")
