"""The audit log, filtered by the URL, page by page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from console.accounts.access import ACTIONS, requires
from console.audit.audit_log import AuditFilter
from console.models import AuditEntry
from console.pages.frame.keyset import FilteredList, build_listing, span_of
from console.pages.frame.page import ConsolePage, render_page

TEXTS = ("actor", "action", "target", "text", "address", "request")


def filter_of(query: Mapping[str, str]) -> AuditFilter:
    """Return the filter that an address names. Raises `BadInput` that names the field."""
    given: dict[str, Any] = {name: query.get(name, "").strip() for name in TEXTS}
    return AuditFilter(**given | span_of(query)).check()


@dataclass(frozen=True, kw_only=True)
class AuditListPage(FilteredList, ConsolePage):
    """Actions of users."""

    TEMPLATE, NAME = "records/audit.html", "audit"

    actions: Sequence[str]  # choices of the filter


@require_safe
@requires("audit.view")
def audit(request: HttpRequest) -> HttpResponse:
    """Show the entries that the address requests."""
    listed = build_listing(request, filter_of, AuditEntry.objects.all())
    return render_page(request, AuditListPage(**vars(listed), actions=sorted(ACTIONS)), "frame")
