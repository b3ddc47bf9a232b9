"""What people did: the audit, filtered by the URL, page by page."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from console.accounts.access import ACTIONS, requires
from console.audit.audit_log import AuditFilter
from console.models import AuditEntry
from console.pages.frame.frame import show
from console.pages.frame.keyset import listing, span_of

TEXTS = ("actor", "action", "target", "text", "address", "request")


def filter_of(query: Mapping[str, str]) -> AuditFilter:
    """The filter an address names. Raises BadInput naming the field."""
    given: dict[str, Any] = {name: query.get(name, "").strip() for name in TEXTS}
    return AuditFilter(**given | span_of(query)).check()


@require_safe
@requires("audit.view")
def audit(request: HttpRequest) -> HttpResponse:
    """Context: that of `listing`, and actions, which the filter can choose from."""
    return show(
        request,
        "records/audit.html",
        "audit",
        view="frame",
        actions=sorted(ACTIONS),
        **listing(request, filter_of, AuditEntry.objects.all()),
    )
