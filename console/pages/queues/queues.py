"""Queues: their backlog, remedy ladders, pauses, and waiting events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput, NodeUnavailable
from console.accounts.access import actor_of
from console.actions import dead_letters
from console.actions.dead_letters import NamedDeadLetter
from console.actions.queues import fairness, ladders, stops, waiting_events
from console.actions.queues.waiting_events import FEW_EVENTS, ORDERS, PeekRequest, WaitingEvents
from console.connections.control_server import control
from console.display.override_words import describe_end
from console.input.form_values import digest_of, parse_expiry, parse_number, parse_optional_expiry
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import (
    ActionResult,
    ConsolePage,
    FormPage,
    declare_action,
    declare_page,
    read_reason,
    render_page,
    report_overrides,
    text_of,
)
from console.pages.frame.past import past_of, time_shown
from console.pages.queues import key_uses
from console.pages.queues.key_uses import FairnessOfQueue
from controllers.shedding.ladder import LAW, LEVELS
from queues import circuit_hold, pausing
from queues.durability import DURABILITIES, Durability
from queues.models import Node, Queue
from queues.nodes.node_state import OFFLINE
from queues.pausing import PARTS
from queues.segments.peek import MAX_EVENTS
from workers.control.ledger import ledger
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.models import Loop, Override
from workers.steering import overrides
from workers.steering.overrides import list_active_at
from workers.steering.scope import CIRCUIT

WORDS = {
    "rebalance": "Points move to nodes with free capacity",
    "workers": "More workers, threads, or tasks",
    "nodes": "More nodes",
    "throttle": "Producers are delayed",
    "shed": "Events are dropped",
}


@dataclass(frozen=True)
class LadderStep:
    """One level. kind: of its glyph and color (engaged, spent, ready, never)."""

    name: str
    about: str
    kind: str
    word: str


@dataclass(frozen=True)
class LadderSteps:
    """A queue's ladder.

    loop: its number; cap: the highest level allowed; reason, at: of its last decision.
    """

    queue: str
    loop: int
    mode: str
    acts: bool
    cap: str
    never_shed: bool
    reason: str | None
    at: datetime | None
    steps: list[LadderStep]
    unavailable: Mapping[str, str]  # level → why it cannot help this queue

    @property
    def name(self) -> str:
        """Return the name of its loop."""
        return f"{LAW.name}/{self.queue}"


def build_ladder(queue: str) -> LadderSteps | None:
    """Return the current ladder; None for a queue without one."""
    loop = Loop.objects.filter(name=f"{LAW.name}/{queue}").first()
    if loop is None:
        return None
    now = timezone.now()
    held = overrides.list_effective(loop, now)
    cap = overrides.get_effective_parameters(LAW, loop.parameters, held, now)["cap"]
    mode = overrides.get_effective_mode(loop, held, now)
    entry = ledger.find_last_entry(loop)
    rung = int(({**entry.terms.get("manual", {}), **entry.terms} if entry else {}).get("rung", 0))
    observed = (entry.observation or {}) if entry else {}
    saturated, unavailable, advice = (observed.get(name) or {} for name in ("saturated", "unavailable", "advice"))
    # A decision of another mode is not in force: the next decision is.
    is_done = mode in Loop.ACTING and entry is not None and entry.mode == mode
    steps = []
    for place, name in enumerate(LEVELS):
        if place > LEVELS.index(cap):
            kind, word = "never", "not allowed for this queue"
        elif name in unavailable:
            kind, word = "never", f"not available: {unavailable[name]}"
        elif place < rung:
            kind, word = "engaged", "enabled" if is_done else "would be enabled"
            if saturated.get(name):
                word += ", exhausted"
        else:
            kind, word = ("spent", "exhausted now") if saturated.get(name) else ("ready", "ready")
        if name in advice and name not in unavailable:
            word += ", advice to approve"
        steps.append(LadderStep(name, WORDS[name], kind, word))
    return LadderSteps(
        queue=queue,
        loop=loop.pk,
        mode=mode,
        acts=mode in Loop.ACTING,
        cap=cap,
        never_shed=cap != LEVELS[-1],
        reason=entry.reason if entry else None,
        at=entry.at if entry else None,
        steps=steps,
        unavailable=unavailable,
    )


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
    durability: Durability
    row: QueueStatus | None  # its part of the snapshot
    pauses: QuerySet[Override]  # in force
    division: list[PointsOfNode]
    division_digest: str  # of the points from which a manual plan is made
    dead_letters: Sequence[NamedDeadLetter]
    unreachable: Sequence[str]  # nodes whose dead letters are unknown
    ladder: LadderSteps | None
    levels: Sequence[str]
    fairness: FairnessOfQueue | None  # of a jobs queue, as of now


@declare_page("plant.view")
def queues(request: HttpRequest) -> HttpResponse:
    return render_page(request, QueuesPage(), "frame")


@declare_page("plant.view")
def queue_page(request: HttpRequest, name: str) -> HttpResponse:
    queue_row = get_object_or_404(Queue, name=name)
    letters = dead_letters.read_newest_letters(queue_row, LETTERS, actor_of(request))
    snapshot, is_now = get_snapshot(request), past_of(request) is None
    division = list_points_by_node(queue_row, snapshot)
    shows_fairness = is_now and queue_row.kind == Queue.Kind.JOBS
    page = QueuePage(
        name=name,
        queue=queue_row,
        durability=DURABILITIES[queue_row.durability],
        row=snapshot.queues.get(name),
        pauses=list_pauses(name, time_shown(request)),
        division=division,
        division_digest=digest_of({point.node: point.points for point in division if point.points}),
        dead_letters=letters.letters,
        unreachable=letters.unreachable,
        ladder=build_ladder(name) if is_now else None,  # as of now
        levels=LEVELS,
        fairness=key_uses.load(control(), name, snapshot.producers, timezone.now()) if shows_fairness else None,
    )
    return render_page(request, page, f"queue:{name}")


def list_pauses(name: str, now: datetime) -> QuerySet[Override]:
    """Return the overrides that pause a queue, hold its circuit, or limit its ladder."""
    stops = Q(queue=name, name__in=(*PARTS, CIRCUIT), law="", node=None)
    cap = Q(loop__name=f"{LAW.name}/{name}", name="cap")
    return list_active_at(now).filter(stops | cap).select_related("owner", "loop")


def list_points_by_node(queue: Queue, snapshot: Snapshot) -> list[PointsOfNode]:
    """Return the queue's points by node from the database, as plans are computed from them."""
    held = dict(queue.containers.values_list("node__name", "points"))
    rows = []
    for node in Node.objects.order_by("name"):
        seen = snapshot.nodes.get(node.name)
        closed = "offline" if seen is not None and seen.state == OFFLINE else ""
        closed = "drained" if node.drained else "cordoned" if node.cordoned else closed
        rows.append(PointsOfNode(node.name, held.get(node.name, 0), closed))
    return rows


@declare_action("ladder.cap", queue_page)
def cap(request: HttpRequest, name: str) -> ActionResult:
    """Limit a queue's ladder. Posted: cap (a level), reason, and an expiry or none."""
    reason, expiry = read_reason(request), parse_optional_expiry(request.POST)
    highest = text_of(request, "cap", f"Choose one of {', '.join(LEVELS)}")
    actor, now = actor_of(request), timezone.now()
    _, _, made = ladders.set_cap(actor, name, highest, reason=reason, now=now, expiry=expiry)
    level = highest.replace("_", " ")
    allowed = "can shed events again" if highest == LEVELS[-1] else f"stops at “{level}”"
    said = f"Starting with the next decision, the remedy ladder of queue {name} {allowed}."
    return report_overrides(said, [made] if made else [], "queue", name)


MEANS = {
    pausing.INTAKE: "publishers are rejected and asked to retry",
    pausing.CONSUMPTION: "waiting events stay in the queue; blocks in progress are finished",
}


@declare_action("queue.pause", queue_page)
def pause(request: HttpRequest, name: str) -> ActionResult:
    """Pause a queue. Posted: part (intake or consumption), reason, expiry."""
    part = text_of(request, "part", f"Choose {' or '.join(pausing.PARTS)}")
    made = stops.pause_queue(
        actor_of(request),
        name,
        part,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        expiry=parse_expiry(request.POST),
        control=control(),
    )
    said = f"{part.capitalize()} of {name} is paused {describe_end(made)}: {MEANS[part]}."
    return report_overrides(said, [made], "queue", name)


@declare_action("queue.circuit", queue_page)
def hold_circuit(request: HttpRequest, name: str) -> ActionResult:
    """Hold the circuit of a queue's destination. Posted: circuit (open or closed), reason, expiry."""
    circuit = text_of(request, "circuit", f"Choose {' or '.join(circuit_hold.HOLDS)}")
    made = stops.hold_circuit(
        actor_of(request),
        name,
        circuit,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        expiry=parse_expiry(request.POST),
        control=control(),
    )
    means = "its workers make no calls"
    if circuit == circuit_hold.CLOSED:
        means = "its workers make all first attempts, and retries still wait for the retry budget"
    said = f"The circuit of {name} is held {circuit} {describe_end(made)}: {means}."
    return report_overrides(said, [made], "queue", name)


@declare_action("queue.fairness", queue_page)
def change_fairness(request: HttpRequest, name: str) -> ActionResult:
    """Enable or disable fairness. Posted: enabled (yes or no), ordinary_weight (to enable), reason."""
    actor, reason, now = actor_of(request), read_reason(request), timezone.now()
    if text_of(request, "enabled", "Choose yes or no") == "no":
        fairness.disable(actor, name, reason=reason, now=now, control=control())
        said = f"Fairness of queue {name} was disabled. The overrides of its keys' weights have ended."
    else:
        weight = parse_number(text_of(request, "ordinary_weight", "Enter the number of active keys"), "ordinary_weight")
        fairness.enable(actor, name, float(weight), reason=reason, now=now, control=control())
        said = f"Fairness of queue {name} was enabled. A key with many events now delays the others only a little."
    return ActionResult(said, reverse("queue", args=[name]))


@declare_action("queue.fairness", queue_page)
def set_key_weight(request: HttpRequest, name: str) -> ActionResult:
    """Override the weight of a key. Posted: key, weight, reason, expiry."""
    key = text_of(request, "key", "Enter the key of the events")
    weight = parse_number(text_of(request, "weight", "Enter a number of shares"), "weight")
    fairness.set_weight(
        actor_of(request),
        name,
        key,
        float(weight),
        reason=read_reason(request),
        now=timezone.now(),
        expiry=parse_expiry(request.POST),
        control=control(),
    )
    return ActionResult(f"The weight of key {key[:40]} in {name} is {weight:g}.", reverse("queue", args=[name]))


@declare_action("queue.fairness", queue_page)
def end_key_weight(request: HttpRequest, name: str) -> ActionResult:
    """End the override of a key's weight. Posted: key."""
    key = text_of(request, "key", "Enter the key of the override")
    fairness.end_weight(actor_of(request), name, key, now=timezone.now(), control=control())
    return ActionResult(f"The override of key {key[:40]} in {name} has ended.", reverse("queue", args=[name]))


@dataclass(frozen=True, kw_only=True)
class WaitingEventsPage(FormPage):
    """Waiting events of a container. waiting: None until requested, or if the node does not answer."""

    TEMPLATE, NAME = "queues/waiting_events.html", "queues"

    name: str
    nodes: Sequence[str]
    orders: Sequence[str]
    most_events: int
    waiting: WaitingEvents | None


@declare_page("queue.peek")
def show_waiting_events(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form, and with `node` the events: order (newest or oldest), events (maximum number)."""
    queue = get_object_or_404(Queue, name=name)
    waiting, errors, status = None, {}, 200
    if "node" in request.GET:
        try:
            events = parse_number(request.GET.get("events", str(FEW_EVENTS)), "events")
            order = request.GET.get("order", ORDERS[0])
            asked = PeekRequest(name, request.GET["node"], order, events)  # type: ignore[arg-type]
            waiting = waiting_events.peek_at(actor_of(request), asked)
        except BadInput as error:
            errors, status = {error.field: [error.message]}, 422
        except NodeUnavailable:
            said = "is not responding. Its waiting events are kept."
            errors, status = {"node": [said]}, 503
    nodes = queue.containers.order_by("node__name").values_list("node__name", flat=True)
    page = WaitingEventsPage(
        name=name,
        nodes=list(nodes),
        orders=ORDERS,
        most_events=MAX_EVENTS,
        waiting=waiting,
        errors=errors,
        submitted={"order": ORDERS[0], "events": FEW_EVENTS, **request.GET.dict()},
    )
    return render_page(request, page, "frame", status)
