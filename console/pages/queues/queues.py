"""Queue pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from console.accounts.access import actor_of, requires
from console.actions import dead_letters
from console.actions.dead_letters import NamedDeadLetter
from console.input.shown_digest import digest_of
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import ConsolePage, Errors, FormPage, render_page
from console.pages.frame.past import past_of, time_shown
from console.pages.queues.ladder_view import LadderSteps, build_ladder
from controllers.shedding.ladder import LEVELS
from queues.models import Node, Queue
from queues.nodes.node_state import OFFLINE
from queues.pausing import PARTS
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.models import Override
from workers.steering.overrides import list_active_at

LETTERS = 5


@dataclass(frozen=True)
class PointsOfNode:
    """The configured points of a queue on a node. closed: why the node accepts no more ("" if it does)."""

    node: str
    points: int
    closed: str


@dataclass(frozen=True, kw_only=True)
class QueuesPage(ConsolePage):
    """All queues of the snapshot."""

    TEMPLATE, NAME = "queues/queues.html", "queues"


@dataclass(frozen=True, kw_only=True)
class QueuePage(FormPage):
    """One queue, and the actions on it."""

    TEMPLATE, NAME = "queues/queue.html", "queues"

    name: str
    queue: Queue  # as configured
    row: QueueStatus | None  # its part of the snapshot
    pauses: QuerySet[Override]  # in force
    division: list[PointsOfNode]
    division_digest: str  # of the points from which a manual plan is made
    dead_letters: Sequence[NamedDeadLetter]
    unreachable: Sequence[str]  # nodes whose dead letters are unknown
    ladder: LadderSteps | None
    levels: Sequence[str]


@require_safe
@requires("plant.view")
def queues(request: HttpRequest) -> HttpResponse:
    """Show the list of queues."""
    return render_page(request, QueuesPage(), "frame")


@require_safe
@requires("plant.view")
def queue(request: HttpRequest, name: str) -> HttpResponse:
    """Show one queue."""
    return queue_page(request, name)


def queue_page(
    request: HttpRequest, name: str, errors: Errors | None = None, submitted: QueryDict | None = None
) -> HttpResponse:
    queue_row = get_object_or_404(Queue, name=name)
    letters = dead_letters.read_newest_letters(queue_row, LETTERS, actor_of(request))
    division = list_points_by_node(queue_row, get_snapshot(request))
    page = QueuePage(
        name=name,
        queue=queue_row,
        row=get_snapshot(request).queues.get(name),
        pauses=list_pauses(name, time_shown(request)),
        division=division,
        division_digest=digest_of({point.node: point.points for point in division if point.points}),
        dead_letters=letters.letters,
        unreachable=letters.unreachable,
        ladder=build_ladder(name) if past_of(request) is None else None,  # as of now
        levels=LEVELS,
        errors=errors or {},
        submitted=submitted or {},
    )
    return render_page(request, page, f"queue:{name}")


def list_pauses(name: str, now: datetime) -> QuerySet[Override]:
    """Return the overrides that pause a queue."""
    return list_active_at(now).filter(queue=name, name__in=PARTS, law="", node=None).select_related("owner")


def list_points_by_node(queue: Queue, snapshot: Snapshot) -> list[PointsOfNode]:
    """Return the queue's points by node.

    Plans are computed from the points in the database, not from those of the last snapshot.
    """
    held = dict(queue.containers.values_list("node__name", "points"))
    return [
        PointsOfNode(node.name, held.get(node.name, 0), _explain_closed(node, snapshot.nodes.get(node.name)))
        for node in Node.objects.order_by("name")
    ]


def _explain_closed(node: Node, seen: NodeStatus | None) -> str:
    if node.drained:
        return "drained"
    if node.cordoned:
        return "cordoned"
    return "offline" if seen is not None and seen.state == OFFLINE else ""
