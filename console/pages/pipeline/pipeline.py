"""The pipeline: its running graph, an operator next to it, and fixed values of its rules."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import redis
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor, actor_of
from console.actions import pipelines
from console.actions.plant_control import HAND_MINUTES
from console.connections.control_server import control
from console.input.form_values import parse_expiry, parse_number, parse_whole_number
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    call_page,
    declare_action,
    declare_page,
    offer_end,
    read_or,
    read_reason,
    render_page,
    text_of,
)
from console.pages.frame.past import past_of
from console.pages.pipeline.pipeline_declaration import list_running_versions
from controllers.flow import admission, balance
from controllers.framework.reason import format_count
from controllers.shedding import law as shedding
from queues import keys
from queues.nodes.node_state import StateThresholds
from workers.documents import pipeline
from workers.documents.controls import CriterionHold
from workers.documents.loops import LoopStatus
from workers.documents.parts import CONSUMERS
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declaration import Application, parse_application_text
from workers.pipeline.declaration.declared import NO_ORDER, Orders
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.status.published import list_newest_lines
from workers.pipeline.tiers.state import StateStore
from workers.plants.registry import LOCAL


@dataclass(frozen=True)
class ShownCriterion:
    """A value that rules name: what it follows, if anything, and who fixed it until when."""

    name: str
    follows: pipeline.MonitoredStatus | None
    hold: CriterionHold | None


@dataclass(frozen=True)
class ShownPattern:
    """A pattern of an operator.

    declared: None if the running declaration can't be read here, and for the past.
    """

    name: str
    status: pipeline.PatternStatus
    declared: Pattern | None


@dataclass(frozen=True)
class ShownEdge:
    """Complex events of a type between two operators; per_second is None if unknown."""

    source: str
    target: str
    type: str
    per_second: float | None


@dataclass(frozen=True)
class ShownSink:
    """A queue that receives complex events of a type."""

    queue: str
    type: str
    per_second: float


@dataclass(frozen=True, kw_only=True)
class OpenedOperator:
    """An operator, and the declaration and figures of each of its patterns.

    reads, feeds, sinks: its inputs and outputs; source_per_second: events/s that come from no other operator.
    """

    name: str
    status: pipeline.OperatorStatus
    wanted_tasks: int
    patterns: list[ShownPattern]
    reads: list[ShownEdge]
    source_per_second: float
    feeds: list[ShownEdge]
    sinks: list[ShownSink]


@dataclass(frozen=True, kw_only=True)
class PipelinePage(FormPage):
    """A running application, and one operator in the drawer."""

    TEMPLATE, NAME = "pipeline/pipeline.html", "pipeline"

    application: str
    row: pipeline.ApplicationStatus | None  # its part of the snapshot
    applications: Sequence[str]
    flow: LoopStatus | None  # its flow loop
    balance: LoopStatus | None  # its balance loop
    shedding: LoopStatus | None  # its shedding loop, whose reference is the latency bound
    recent: list[pipeline.ComplexEvent]  # the newest complex events; past ones are not kept
    hides_recent: bool  # their events belong to queues that the user may not act on
    operator: OpenedOperator | None
    criteria: list[ShownCriterion]
    version: pipeline.ApplicationAtWork | None
    thresholds: StateThresholds  # threshold from which a replica or an operator is drawn as busy
    order: pipeline.PipelineOrder  # the state that a person requested
    log: list[pipeline.LogLine]  # of the process, the newest first
    is_late: bool  # it has not reported yet, although it should have


@declare_page("plant.view")
def pipeline_page(request: HttpRequest, name: str = "", operator: str = "") -> HttpResponse:
    """Show an application, or else the first one, and one operator in the drawer."""
    rows, loops = get_snapshot(request).pipeline.applications, get_snapshot(request).loops
    # What the snapshot does not contain is only known for the present.
    present = past_of(request) is None
    at_work = list_running_versions() if present else {}
    # Without a snapshot, and while the process restarts, the page says so, whatever ran before.
    known = {*rows, *at_work} if snapshot_of(request) is not None else ()
    if name and known and name not in known:
        raise Http404(f"Application {name} is not running.")
    name = name or next(iter(rows), "")
    row = rows.get(name)
    if operator and row and operator not in row.operators:
        raise Http404(f"{name} has no operator {operator}.")
    declared, running, part = None, at_work.get(name), get_snapshot(request).parts.get(CONSUMERS["pipeline"])
    if running is not None:
        with suppress(BadInput):  # it can't be read by this version
            declared = parse_application_text(running.text, pipelines.TABLES, name)
    hides_recent = not reads_events(actor_of(request), declared)
    page = PipelinePage(
        application=name,
        row=row,
        applications=list(rows),
        flow=loops.get(f"{admission.LAW.name}/{name}"),
        balance=loops.get(f"{balance.LAW.name}/{name}"),
        shedding=loops.get(f"{shedding.LAW.name}/{name}"),
        recent=read_or([], StateStore(control(), name).list_recent_events)
        if row and present and not hides_recent
        else [],
        hides_recent=hides_recent,
        operator=_build_operator(operator, row, declared) if operator and row else None,
        criteria=_list_criteria(row, name if present else None) if row else [],
        version=running,
        thresholds=StateThresholds(),
        order=read_or(NO_ORDER, lambda: Orders(control()).load(name)) if present else NO_ORDER,
        log=list_newest_lines(control()) if present else [],
        is_late=get_snapshot(request).pipeline.state is None and part is not None and part.state == "silent",
    )
    return render_page(request, page)


def reads_events(actor: Actor, declared: Application | None) -> bool:
    """Return whether an actor may read the events of an application's matches: it needs all of its queues."""
    return actor.can_access_queues(pipelines.list_application_queues(declared) if declared else None)


def _list_criteria(row: pipeline.ApplicationStatus, held_of: str | None) -> list[ShownCriterion]:
    held: dict[str, CriterionHold] = {}
    if held_of is not None:
        with suppress(redis.RedisError, BadInput):
            controls = Controls.read(control().get(keys.PIPELINE_CONTROLS.build(held_of)), Controls())
            held = controls.list_held_criteria(time.time())
    names = sorted({*row.controls.criteria, *row.monitored})
    return [ShownCriterion(name, row.monitored.get(name), held.get(name)) for name in names]


def _build_operator(operator: str, row: pipeline.ApplicationStatus, declared: Application | None) -> OpenedOperator:
    patterns = {pattern.name: pattern for pattern in declared.patterns} if declared else {}
    emitted = {(pattern.operator, pattern.emits): pattern.out_per_second for pattern in row.patterns.values()}
    own = {emits: rate for (name, emits), rate in emitted.items() if name == operator}
    status = row.operators[operator]
    edges = [
        ShownEdge(edge.source, edge.target, edge.type, emitted.get((edge.source, edge.type))) for edge in row.edges
    ]
    reads = [edge for edge in edges if edge.target == operator]
    between = sum(edge.per_second or 0.0 for edge in reads)
    return OpenedOperator(
        name=operator,
        status=status,
        wanted_tasks=row.controls.tasks.get(operator, row.controls.parallelism),
        patterns=[ShownPattern(name, row.patterns[name], patterns.get(name)) for name in status.patterns],
        reads=reads,
        source_per_second=max(0.0, status.in_per_second - between),
        feeds=[edge for edge in edges if edge.source == operator],
        sinks=[ShownSink(queue, emits, own[emits]) for emits in sorted(own) for queue in row.sinks.get(emits, [])],
    )


@declare_action("pipeline.steer", pipeline_page)
def tasks(request: HttpRequest, name: str, operator: str) -> ActionResult:
    """Set the number of tasks of an operator for some minutes."""
    reason = read_reason(request)
    wanted = parse_whole_number(text_of(request, "tasks", "Enter a whole number"), "tasks")
    minutes = parse_number(request.POST.get("minutes") or str(HAND_MINUTES), "minutes")
    pipelines.set_tasks(actor_of(request), name, operator, wanted, reason, control(), minutes)
    count = format_count(wanted, "task")
    message = f"{operator} will have {count} within two batches; loops hold for {minutes:g} min."
    undo = offer_end(f"tasks/{LOCAL}")
    return ActionResult(message, reverse("pipeline-operator", args=[name, operator]), {"undo": undo})


ORDERED = {
    "restart": "{} restarts within seconds. No events are lost.",
    "stop": "{} stops after the current batch. Its events wait.",
    "start": "{} continues within seconds where it stopped.",
}


def _show_order_again(request: HttpRequest, name: str) -> HttpResponse:
    """Show the page again when an order is rejected, even of an application that does not run."""
    known = name if name in get_snapshot(request).pipeline.applications else ""
    return call_page(pipeline_page, request, name=known)


@declare_action("pipeline.steer", _show_order_again)
def order(request: HttpRequest, name: str) -> ActionResult:
    """Order a restart, stop, or start. Posted: order (restart, stop, start), reason."""
    wanted = request.POST.get("order", "")
    if wanted not in ORDERED:
        raise BadInput("order", f"must be one of {', '.join(ORDERED)}, not {wanted[:40]!r}")
    reason = read_reason(request)
    getattr(pipelines, wanted)(actor_of(request), name, reason, control())
    data = {"undo": offer_end(f"stop/{name}")} if wanted == "stop" else {}
    return ActionResult(ORDERED[wanted].format(name), reverse("pipeline-application", args=[name]), data)


@declare_action("pipeline.steer", pipeline_page)
def hold_criterion(request: HttpRequest, name: str) -> ActionResult:
    """Fix a criterion at a person's value until it expires."""
    reason = read_reason(request)
    criterion = text_of(request, "criterion", "Choose a criterion")
    value = parse_number(text_of(request, "value", "Enter a number"), "value")
    expiry = parse_expiry(request.POST)
    pipelines.hold_criterion(actor_of(request), name, criterion, value, expiry, reason, timezone.now(), control())
    return ActionResult(
        f"{criterion} will be fixed at {value:g} within two batches.",
        reverse("pipeline-application", args=[name]),
        {"undo": offer_end(f"criterion/{name}/{criterion}")},
    )


@declare_action("pipeline.steer", pipeline_page)
def release_criterion(request: HttpRequest, name: str, criterion: str) -> ActionResult:
    """Release a criterion, which gets its own value again."""
    pipelines.release_criterion(actor_of(request), name, criterion, control())
    return ActionResult(
        f"{criterion} was released and is no longer fixed.", reverse("pipeline-application", args=[name])
    )
