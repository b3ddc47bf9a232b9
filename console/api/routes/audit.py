"""The audit log: who changed what, filtered and exported."""

from typing import Annotated, Literal, TypedDict

from django.db.models import Max, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Query, Schema
from pydantic import Field

from common.stored_document import Time, describe
from console.actions.exports import export, iterate_newest_first
from console.api.request.answers import EXPORTED_ROWS, Json, NextPage, Router, build_answer
from console.api.request.authentication import actor_for
from console.api.request.input import UtcTime, check_rows
from console.audit.audit_log import AuditFilter
from console.input.form_values import Id
from console.models import AuditEntry
from workers.coordination import keyset

router = Router(tags=["audit"])


class AuditRow(TypedDict):
    """One change by a person or a token."""

    id: int
    at: Time
    actor: Annotated[str, describe("A username, or token:NAME.")]
    action: str
    target: str
    reason: str
    before: Json
    after: Json
    address: str | None
    request_id: str


class AuditPage(TypedDict):
    """Changes, newest first."""

    next: NextPage
    entries: list[AuditRow]


class AuditSearch(Schema):
    """The filter; omitted fields match all. `from` ≤ time < `to`; action may be a family (`override`)."""

    actor: str = ""
    action: str = ""
    target: str = ""
    text: str = ""
    address: str = ""
    request: str = ""
    since: UtcTime | None = Field(None, alias="from")
    until: UtcTime | None = Field(None, alias="to")

    def build_filter(self) -> QuerySet[AuditEntry]:
        return AuditFilter(**self.dict()).check().choose(AuditEntry.objects.all())


@router.get("/audit", summary="List audit log entries, newest first")
def list_audit(
    request: HttpRequest, wanted: Query[AuditSearch], before: Id | None = None, after: Id | None = None, rows: int = 50
) -> AuditPage:
    """Return filtered entries; `next` is the value of `before` for older ones, null at the end."""
    actor_for(request, "audit.view")
    check_rows(rows)
    page = keyset.load_page(wanted.build_filter(), rows, before, after)
    return {"entries": [build_answer(AuditRow, row) for row in page.rows], "next": page.older}


@router.get("/audit/export", openapi_extra=EXPORTED_ROWS, summary="Export all audit log entries that match a filter")
def export_audit(
    request: HttpRequest, wanted: Query[AuditSearch], format: Literal["csv", "json"] = "csv"
) -> HttpResponseBase:
    """Return all entries as CSV, or as JSON lines; newest first."""
    actor_for(request, "audit.view")
    # Up to now: the entry of this export is not part of it.
    last = AuditEntry.objects.aggregate(last=Max("pk"))["last"] or 0
    chosen = wanted.build_filter().filter(pk__lte=last)
    pages = ([dict(build_answer(AuditRow, entry)) for entry in page] for page in iterate_newest_first(chosen))
    return export(request, pages, tuple(AuditRow.__annotations__), "audit", format)
