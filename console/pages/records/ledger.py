"""The ledger and the audit log, filtered by the URL, page by page; and one decision with its replay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from common.errors import BadInput
from console.accounts.access import ACTIONS
from console.audit.audit_log import AuditFilter
from console.models import AuditEntry
from console.pages.frame.filtered_list import FilteredList, build_listing, span_of
from console.pages.frame.page import ConsolePage, Document, declare_page, render_page
from controllers import catalog
from controllers.framework import guard
from queues.models import Node, Queue
from workers.control.ledger import folds, runs
from workers.control.ledger import ledger as ledger_of_loops
from workers.control.ledger.ledger_search import ANY_LIMIT, LedgerFilter
from workers.coordination import keyset
from workers.models import LedgerEntry, Loop

ACTED = {"1": True, "0": False}
TICKS, ALL_TICKS = ("", "folded", "all"), "all"  # as in the export: whether ticks without an action are combined
NARROW = ("acted", "verdict", "limited_by", "text")  # these filters request every single tick
TEXTS = ("loop", "law", "queue", "node", "verdict", "mode", "limited_by", "text")


def filter_of(query: Mapping[str, str]) -> LedgerFilter:
    """Return the filter that an address names. Raises `BadInput` that names the field."""
    acted = query.get("acted", "")
    if acted and acted not in ACTED:
        raise BadInput("acted", f"must be 1 or 0, not {acted[:40]!r}.")
    if query.get("ticks", "") not in TICKS:
        raise BadInput("ticks", f"must be folded or all, not {query['ticks'][:40]!r}.")
    texts: dict[str, Any] = {name: query.get(name, "").strip() for name in TEXTS}
    return LedgerFilter(**texts | span_of(query), acted=ACTED.get(acted)).check()


@dataclass(frozen=True, kw_only=True)
class LedgerListPage(FilteredList, ConsolePage):
    """Decisions, and the choices of the filter."""

    TEMPLATE, NAME = "records/ledger.html", "ledger"

    loops: QuerySet[Loop]
    laws: Sequence[str]
    queues: QuerySet[Queue, str]
    nodes: QuerySet[Node, str]
    verdicts: Sequence[str]
    modes: Sequence[str]
    limits: Sequence[str]
    live: bool  # the newest page, to which new decisions are added


@dataclass(frozen=True, kw_only=True)
class EntryPage(ConsolePage):
    """One decision. export: input of `manage.py decide`."""

    TEMPLATE, NAME = "records/entry.html", "ledger"

    entry: LedgerEntry
    export: Document
    replay: ledger_of_loops.Replay


@declare_page("plant.view")
def ledger(request: HttpRequest) -> HttpResponse:
    """Show the decisions that the address requests. Links of earlier versions have each=1 instead of ticks=all."""
    if "each" in request.GET:
        query = request.GET.copy()
        if query.pop("each")[-1] == "1":
            query["ticks"] = ALL_TICKS
        return redirect(f"{request.path}?{query.urlencode()}")
    is_narrow = any(request.GET.get(name) for name in NARROW)
    pages = list_ticks if is_narrow or request.GET.get("ticks") == ALL_TICKS else runs.load_page
    page = LedgerListPage(
        **vars(build_listing(request, filter_of, LedgerEntry.objects.select_related("loop").defer("folded"), pages)),
        live=not any(request.GET.get(name) for name in ("before", "after", "to")),
        loops=Loop.objects.order_by("name"),
        laws=list(catalog.LAWS),
        queues=Queue.objects.order_by("name").values_list("name", flat=True),
        nodes=Node.objects.order_by("name").values_list("name", flat=True),
        verdicts=LedgerEntry.Verdict.values,
        modes=Loop.Mode.values,
        limits=(ANY_LIMIT, *guard.LIMITS),
    )
    return render_page(request, page, "frame")


def list_ticks(
    chosen: QuerySet[LedgerEntry], lines: int, before: int | None = None, after: int | None = None
) -> keyset.KeysetPage:
    """Return the selected ticks, each with its delay."""
    page = keyset.load_page(chosen, lines, before, after)
    return replace(page, rows=runs.load_entries([entry.pk for entry in page.rows]))


@declare_page("plant.view")
def entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    """Show one decision, with its replay."""
    ledger_entry = folds.find_entry(entry_id)
    if ledger_entry is None:
        raise Http404(f"Decision {entry_id} does not exist.")
    page = EntryPage(
        entry=ledger_entry, export=ledger_of_loops.export(ledger_entry), replay=ledger_of_loops.replay(ledger_entry)
    )
    return render_page(request, page, "frame")


AUDIT_TEXTS = ("actor", "action", "target", "text", "address", "request")


def audit_filter_of(query: Mapping[str, str]) -> AuditFilter:
    """Return the filter that an address names. Raises `BadInput` that names the field."""
    given: dict[str, Any] = {name: query.get(name, "").strip() for name in AUDIT_TEXTS}
    return AuditFilter(**given | span_of(query)).check()


@dataclass(frozen=True, kw_only=True)
class AuditListPage(FilteredList, ConsolePage):
    """Actions of users."""

    TEMPLATE, NAME = "records/audit.html", "audit"

    actions: Sequence[str]  # choices of the filter


@declare_page("audit.view")
def audit(request: HttpRequest) -> HttpResponse:
    """Show the entries that the address requests."""
    listed = build_listing(request, audit_filter_of, AuditEntry.objects.all())
    return render_page(request, AuditListPage(**vars(listed), actions=sorted(ACTIONS)), "frame")
