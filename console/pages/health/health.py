"""For monitoring systems: whether the process is alive, whether the plant is ready, and its metrics."""

from collections.abc import Iterator
from contextlib import suppress

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import Metric

from console.accounts.access import actor_of, find_token_actor, parse_bearer_secret
from console.connections.control_server import load_latest_snapshot
from console.pages.health import readiness
from console.pages.health.exposition import render_exposition
from console.pages.health.record_figures import build_rejection_metric, record_families, record_figures
from console.web.admission import count_refusals
from console.web.proxies import is_direct_from_this_host


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
