"""Pages that show the current plant: overview, nodes, workers, and pipeline."""

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.access import actor_of, requires
from console.actions.loops import THRESHOLDS, override_thresholds
from console.connections.control_server import control
from console.display.override_words import describe_end, describe_replaced_overrides
from console.display.worst_first import RankedSubject, rank_subjects
from console.input.form_values import is_untouched, parse_expiry, parse_number
from console.pages.frame.action import ActionResult, declare_action
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import ConsolePage, Errors, FormPage, render_page
from console.pages.frame.past import time_shown
from console.pages.plant.plant_view import AttachedPlant, list_attached
from queues.models import Node
from queues.nodes.node_state import SILENT
from workers.control.ledger import runs
from workers.control.ledger.runs import TickRun
from workers.documents.nodes import NodeStatus
from workers.documents.parts import Parts, find_starting_parts
from workers.models import LedgerEntry, Override
from workers.placement import recovery
from workers.steering.overrides import list_active_at

LATEST_DECISIONS = 5
WORST = 5
MAX_ATTACHED = 8


@dataclass(frozen=True, kw_only=True)
class OverviewPage(ConsolePage):
    """The plant at a glance."""

    TEMPLATE, NAME = "plant/overview.html", "overview"

    decisions: list[LedgerEntry | TickRun]  # the latest actions, below the latest ticks
    worst: list[RankedSubject]  # nodes and queues, the worst first
    worst_queues: list[RankedSubject]  # for phones, which list the nodes above
    starting: Parts  # every part by name, while one of them starts
    attached: list[AttachedPlant]  # the first of them; those with problems come first
    more_attached: int


@dataclass(frozen=True, kw_only=True)
class NodesPage(FormPage):
    """All nodes; errors belong to an action on an unknown node."""

    TEMPLATE, NAME = "plant/nodes.html", "nodes"


@dataclass(frozen=True, kw_only=True)
class NodePage(FormPage):
    """One node, and the actions on it."""

    TEMPLATE, NAME = "plant/node.html", "nodes"

    name: str
    node: Node  # as configured
    row: NodeStatus | None  # its part of the snapshot
    queues_here: list[str]  # the queues that have a container here
    overrides: QuerySet[Override]
    can_get_back: bool  # it has lost its points, and a plan can restore them


@dataclass(frozen=True, kw_only=True)
class WorkersPage(ConsolePage):
    """Worker hosts, and the loops that start workers."""

    TEMPLATE, NAME = "plant/workers.html", "workers"


@require_safe
@requires("plant.view")
def overview(request: HttpRequest) -> HttpResponse:
    """Show what is worst, and the last actions of the loops."""
    worst, attached = rank_subjects(snapshot_of(request)), list_attached(get_snapshot(request))
    page = OverviewPage(
        decisions=runs.list_news_lines(time_shown(request), LATEST_DECISIONS),
        worst=worst[:WORST],
        worst_queues=[row for row in worst if row.kind == "queue"][:WORST],
        starting=_list_starting_parts(get_snapshot(request).parts),
        attached=attached[:MAX_ATTACHED],
        more_attached=max(0, len(attached) - MAX_ATTACHED),
    )
    return render_page(request, page, "flow")


def _list_starting_parts(parts: Parts) -> Parts:
    """Return the checklist of a start; empty once all parts have run."""
    return dict(sorted(parts.items())) if find_starting_parts(parts) else {}


@require_safe
@requires("plant.view")
def nodes(request: HttpRequest) -> HttpResponse:
    """Show the list of nodes."""
    return nodes_page(request)


def nodes_page(request: HttpRequest, errors: Errors | None = None, submitted: QueryDict | None = None) -> HttpResponse:
    return render_page(request, NodesPage(errors=errors or {}, submitted=submitted or {}), "nodes")


@require_safe
@requires("plant.view")
def node(request: HttpRequest, name: str) -> HttpResponse:
    """Show one node."""
    return node_page(request, name)


def node_page(
    request: HttpRequest, name: str, errors: Errors | None = None, submitted: QueryDict | None = None
) -> HttpResponse:
    node_row = get_object_or_404(Node, name=name)
    queues, row = get_snapshot(request).queues, get_snapshot(request).nodes.get(name)
    page = NodePage(
        name=name,
        node=node_row,
        row=row,
        can_get_back=row is not None and row.state not in SILENT and recovery.can_restore_points(name, row.points),
        queues_here=[queue for queue, shown in queues.items() if name in shown.containers],
        overrides=list_active_at(time_shown(request)).filter(node=node_row).select_related("owner"),
        errors=errors or {},
        submitted=submitted or {},
    )
    return render_page(request, page, f"node:{name}")


@declare_action("node.thresholds", node_page)
def thresholds(request: HttpRequest, name: str) -> ActionResult:
    """Override thresholds.

    Posted: busy, toobusy (one or both; shares of capacity), each with `was-`; reason, expiry.
    """
    node_row = get_object_or_404(Node, name=name)
    wanted = {
        key: parse_number(request.POST[key], key)
        for key in THRESHOLDS
        if request.POST.get(key, "").strip() and not is_untouched(request.POST, key)
    }
    made = override_thresholds(
        actor_of(request),
        node_row,
        wanted,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        control=control(),
        expiry=parse_expiry(request.POST),
    )
    what = " and ".join(f"{override.name.removesuffix('_threshold')} at {override.value:g}" for override in made)
    message = f"Thresholds of {name}: {what} of capacity {describe_end(made[0])}.{describe_replaced_overrides(made)}"
    return ActionResult(message, reverse("node", args=[name]), {"overrides": [override.pk for override in made]})


@require_safe
@requires("plant.view")
def workers(request: HttpRequest) -> HttpResponse:
    """Show the worker hosts."""
    return render_page(request, WorkersPage())
