"""What people did: the audit, filtered by the URL, page by page."""

from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from console.access import ACTIONS, requires
from console.audit import AuditFilter
from console.models import AuditEntry
from console.pages.frame import show
from console.pages.keyset import chosen_or_refused, place_of, query_without_place, span_of
from workers import keyset

PAGE_ROWS = 50
TEXTS = ("actor", "action", "target", "text", "address", "request")


def filter_of(query: Mapping[str, str]) -> AuditFilter:
    """The filter an address names. Raises BadInput naming the field."""
    return AuditFilter(**{name: query.get(name, "").strip() for name in TEXTS}, **span_of(query)).check()


@require_safe
@requires("audit.view")
def audit(request: HttpRequest) -> HttpResponse:
    """Context: listed (a keyset page), counted, filters (the query), errors by field, query."""
    wanted, errors = chosen_or_refused(filter_of, request.GET)
    entries = AuditEntry.objects.all()
    chosen = entries.none() if wanted is None else wanted.choose(entries)
    listed = keyset.page(chosen, PAGE_ROWS, **place_of(request.GET))
    return show(
        request,
        "audit.html",
        "audit",
        view="frame",
        listed=listed,
        counted=keyset.counted(chosen, listed),
        most_counted=keyset.MOST_COUNTED,
        filters=request.GET,
        errors=errors,
        query=query_without_place(request),
        actions=sorted(ACTIONS),
    )
