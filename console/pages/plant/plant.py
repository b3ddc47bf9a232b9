"""Pages that show the current plant: nodes and workers."""

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions.loops import THRESHOLDS, override_thresholds
from console.actions.queues import stops
from console.connections.control_server import control
from console.display.override_words import describe_end, describe_overrides
from console.display.states import is_known_host
from console.incidents.quick_actions import OfferedActions, list_restarts
from console.input.form_values import is_untouched, parse_expiry, parse_number
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import (
    ActionResult,
    ConsolePage,
    FormPage,
    declare_action,
    declare_page,
    render_page,
    report_overrides,
)
from console.pages.frame.past import past_of, time_shown
from queues.models import Node
from queues.nodes.node_state import SILENT
from workers.documents.hosts import HostStatus
from workers.documents.loops import LoopStatus
from workers.documents.nodes import NodeStatus
from workers.models import Override
from workers.placement import recovery
from workers.steering.overrides import list_active_at


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
    restarts: OfferedActions  # of its server and its agent


@dataclass(frozen=True, kw_only=True)
class WorkersPage(ConsolePage):
    """Worker hosts, and the loops that start workers."""

    TEMPLATE, NAME = "plant/workers.html", "workers"


@declare_page("plant.view")
def nodes_page(request: HttpRequest) -> HttpResponse:
    return render_page(request, NodesPage(), "nodes")


@declare_page("plant.view")
def node_page(request: HttpRequest, name: str) -> HttpResponse:
    node_row = get_object_or_404(Node, name=name)
    queues, row = get_snapshot(request).queues, get_snapshot(request).nodes.get(name)
    page = NodePage(
        name=name,
        node=node_row,
        row=row,
        can_get_back=row is not None and row.state not in SILENT and recovery.can_restore_points(name, row.points),
        queues_here=[queue for queue, shown in queues.items() if name in shown.containers],
        overrides=list_active_at(time_shown(request)).filter(node=node_row).select_related("owner"),
        restarts=_list_restarts(request, "node", name),
    )
    return render_page(request, page, f"node:{name}")


def _list_restarts(request: HttpRequest, kind: str, name: str) -> OfferedActions:
    if past_of(request) is not None:
        return OfferedActions()
    return list_restarts({kind: name}, get_snapshot(request), actor_of(request))


@declare_action("node.thresholds", node_page)
def thresholds(request: HttpRequest, name: str) -> ActionResult:
    """Override thresholds. Posted: busy, toobusy (one or both; shares of capacity), each with `was-`; reason, end."""
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
    return report_overrides(describe_overrides(made), made, "node", name)


@declare_page("plant.view")
def workers(request: HttpRequest) -> HttpResponse:
    """Show the worker hosts."""
    return render_page(request, WorkersPage())


@dataclass(frozen=True, kw_only=True)
class WorkerHostPage(FormPage):
    """One worker host, and the actions on it."""

    TEMPLATE, NAME = "plant/worker_host.html", "workers"

    name: str
    row: HostStatus | None  # its part of the snapshot
    others: list[str]  # hosts of the same role that accept work
    loop: LoopStatus | None  # the loop that sizes its pool
    overrides: QuerySet[Override]
    restarts: OfferedActions  # of its worker process


@declare_page("plant.view")
def worker_host_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show one worker host; 404 for an unknown name."""
    seen = get_snapshot(request)
    row = seen.hosts.get(name)
    has_snapshot = snapshot_of(request) is not None
    if row is None and has_snapshot and past_of(request) is None and not is_known_host(name):
        raise Http404(f"{name} is not a worker host.")
    page = WorkerHostPage(
        name=name,
        row=row,
        others=[
            other
            for other, host in seen.hosts.items()
            if row is not None and host.role == row.role and other != name and host.draining is None
        ],
        loop=next((loop for loop in seen.loops.values() if loop.target.get("host") == name), None),
        overrides=list_active_at(time_shown(request)).filter(host=name).select_related("owner"),
        restarts=_list_restarts(request, "host", name),
    )
    return render_page(request, page, "frame")


@declare_action("host.drain", worker_host_page)
def drain(request: HttpRequest, name: str) -> ActionResult:
    """Drain a worker host. Posted: reason, expiry."""
    made = stops.drain_host(
        actor_of(request),
        name,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        expiry=parse_expiry(request.POST),
        control=control(),
    )
    said = f"{name} accepts no new work {describe_end(made)}. Running work is finished."
    return report_overrides(said, [made], "worker-host", name)
