"""What was decided and what was done: the ledger and the audit, filtered by the URL, page by page."""

from datetime import datetime
from typing import Any

from django import forms
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from console.access import requires
from console.models import AuditEntry
from console.pages.frame import show
from queues.errors import BadInput
from workers import ledger as ledger_of_loops
from workers.models import LedgerEntry, Loop

PAGE_ROWS = 50


class LedgerFilter(forms.Form):
    """The ledger's filter: loop (id or name), verdict, acted (only entries with an action), from, to."""

    loop = forms.CharField(required=False, max_length=120)
    verdict = forms.ChoiceField(required=False, choices=[("", "any"), *LedgerEntry.Verdict.choices])
    acted = forms.BooleanField(required=False)
    since = forms.DateTimeField(required=False)
    until = forms.DateTimeField(required=False)

    def __init__(self, query: Any):
        super().__init__({**query.dict(), "since": query.get("from", ""), "until": query.get("to", "")})

    def choose(self, entries: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
        """The entries wanted; a field that is not valid chooses nothing, and its error stands beside it."""
        if not self.is_valid():
            return entries.none()
        return chosen_entries(entries, **self.cleaned_data)


def chosen_entries(
    entries: QuerySet[LedgerEntry],
    loop: str,
    verdict: str,
    acted: bool,
    since: datetime | None,
    until: datetime | None,
) -> QuerySet[LedgerEntry]:
    """The entries of a loop (id or name), with a verdict, that acted, in a time range; empty chooses all."""
    if loop:
        entries = entries.filter(loop_id=int(loop)) if loop.isdigit() else entries.filter(loop__name=loop)
    if verdict:
        entries = entries.filter(verdict=verdict)
    if acted:
        entries = entries.exclude(action=None)
    if since:
        entries = entries.filter(at__gte=since)
    return entries.filter(at__lt=until) if until else entries


@require_safe
@requires("plant.view")
def ledger(request: HttpRequest) -> HttpResponse:
    """Context: page_obj, filters (bound form, errors by field), query (the URL's, for page links), loops."""
    filters = LedgerFilter(request.GET)
    chosen = filters.choose(LedgerEntry.objects.select_related("loop")).order_by("-at", "-id")
    return show(
        request,
        "ledger.html",
        "ledger",
        page_obj=_page(request, chosen),
        filters=filters,
        query=_query_without_page(request),
        loops=Loop.objects.order_by("name"),
        verdicts=LedgerEntry.Verdict.values,
    )


@require_safe
@requires("plant.view")
def entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    """Context: entry, export (what `manage.py decide` takes), replay ({same, decision, error})."""
    found = get_object_or_404(LedgerEntry.objects.select_related("loop"), pk=entry_id)
    export = ledger_of_loops.export(found)
    return show(request, "entry.html", "ledger", entry=found, export=export, replay=_replay(found))


def _replay(entry: LedgerEntry) -> dict[str, Any]:
    """The decision taken once more from what is recorded: {same, decision, error}."""
    try:
        decision = ledger_of_loops.replay(entry)
    except BadInput as error:
        return {"same": None, "decision": None, "error": str(error)}
    return {"same": ledger_of_loops.same(entry, decision), "decision": decision, "error": ""}


@require_safe
@requires("audit.view")
def audit(request: HttpRequest) -> HttpResponse:
    """Context: page_obj, filters ({actor, action} from the URL), query."""
    entries = AuditEntry.objects.order_by("-at", "-id")
    filters = {name: request.GET.get(name, "") for name in ("actor", "action")}
    chosen = entries.filter(**{name: value for name, value in filters.items() if value})
    query = _query_without_page(request)
    return show(request, "audit.html", "audit", page_obj=_page(request, chosen), filters=filters, query=query)


def _page(request: HttpRequest, entries: QuerySet) -> Any:
    return Paginator(entries, PAGE_ROWS).get_page(request.GET.get("page"))


def _query_without_page(request: HttpRequest) -> str:
    query = request.GET.copy()
    query.pop("page", None)
    return query.urlencode()
