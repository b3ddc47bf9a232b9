"""Overrides: active, ended, and new ones on many loops at once; ended and extended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.parameter import Parameter
from console.accounts.access import actor_of
from console.actions import loops
from console.connections.control_server import control
from console.display.override_words import describe_end, describe_ended, format_override_title, format_short_value
from console.input.form_values import parse_any_value, parse_expiry
from console.models import AuditEntry
from console.pages.frame.filtered_list import place_of, query_without_place
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    View,
    call_page,
    declare_action,
    declare_page,
    render_page,
    report_overrides,
)
from console.pages.loops.loops import loop_page
from console.pages.plant.plant import node_page, worker_host_page
from console.pages.queues.queues import queue_page
from controllers import catalog
from controllers.framework import guard
from queues.models import Node, Queue
from workers.coordination import keyset
from workers.documents.loops import ManualChange
from workers.models import Loop, Override
from workers.steering import overrides as in_force
from workers.steering.scope import Scope, is_drain, is_pause, is_threshold

PAGE_ROWS = 50
MODE = Parameter("mode", "", "How the loops use their decisions.", kind="choice", choices=tuple(Loop.Mode.values))
RELATED = ("loop", "node", "owner", "ended_by")


@dataclass(frozen=True)
class OverrideOption:
    """An option to override: its form value, its name, and the values it takes."""

    value: str
    name: str
    takes: str
    help: str


@dataclass(frozen=True)
class OverrideOptions:
    """The options of one law, or ("") of any law."""

    group: str
    law: str
    options: list[OverrideOption]


# The audit's action names by kind of manual change, for changes that don't record who made them.
AUDITED = {"ladder cap": "ladder.cap", "cordon": "node.use", "drain": "node.use"}


@dataclass(frozen=True)
class ShownManualChange:
    """A manual change and who made it: as it says itself, or else as the audit has it."""

    hand: ManualChange
    owner: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class OverridesPage(FormPage):
    """All overrides, and the form for a new one."""

    TEMPLATE, NAME = "loops/overrides.html", "overrides"

    in_force: QuerySet[Override]  # active, the next to expire first
    hands: list[ShownManualChange]  # the soonest to end first
    listed: keyset.KeysetPage  # ended ones
    query: str
    laws: Sequence[str]
    queues: QuerySet[Queue, str]
    nodes: QuerySet[Node, str]
    choices: Sequence[OverrideOptions]


@declare_page("plant.view")
def overrides_page(request: HttpRequest) -> HttpResponse:
    """Show the list of overrides."""
    now = timezone.now()
    rows = Override.objects.select_related(*RELATED)
    held = in_force.list_active(now).select_related(*RELATED)
    hands = []
    for hand in get_snapshot(request).hands:
        action, noted = AUDITED.get(hand.kind), None
        if not hand.owner and action is not None:
            entries = AuditEntry.objects.filter(action=action, target=hand.of.partition("/")[2])
            noted = entries.order_by("-pk").first()
        hands.append(
            ShownManualChange(hand, noted.actor if noted else hand.owner, noted.reason if noted else hand.reason)
        )
    page = OverridesPage(
        in_force=in_force.sort_by_expiry(held),
        hands=hands,
        listed=keyset.load_page(rows.exclude(pk__in=held.values("pk")), PAGE_ROWS, **place_of(request.GET)),
        query=query_without_place(request),
        laws=list(catalog.LAWS),
        queues=Queue.objects.order_by("name").values_list("name", flat=True),
        nodes=Node.objects.order_by("name").values_list("name", flat=True),
        choices=list(list_override_options()),
    )
    return render_page(request, page)


def list_override_options() -> Iterator[OverrideOptions]:
    """Return what can be overridden on many loops."""
    yield OverrideOptions("Any loop", "", [_build_option("mode", MODE)])
    of_guard = [_build_option(f"guard.{setting.name}", setting) for setting in guard.PARAMETERS]
    yield OverrideOptions("Guard of any loop", "", of_guard)
    for name, law in catalog.LAWS.items():
        own = [_build_option(f"{name}/{parameter.name}", parameter) for parameter in law.parameters]
        if law.actuator is not None:
            own.append(_build_option(f"{name}/{law.actuator}", catalog.build_actuator_parameter(law)))
        yield OverrideOptions(name, name, own)


def _build_option(value: str, parameter: Parameter) -> OverrideOption:
    return OverrideOption(value, parameter.name, parameter.takes(), parameter.help)


@declare_action("override.set", overrides_page)
def create(request: HttpRequest) -> ActionResult:
    """Create overrides.

    Posted: law, queue, node (one or more), name (of the law: `law/name`), value, reason, expiry.
    """
    posted = request.POST
    made = loops.override_by_name(
        actor_of(request),
        posted.get("name", ""),
        parse_any_value(posted.get("value", ""), "value"),
        law=posted.get("law", ""),
        queue=posted.get("queue", ""),
        node=posted.get("node", ""),
        reason=posted.get("reason", ""),
        now=timezone.now(),
        expiry=parse_expiry(posted),
    )
    (row,) = made
    what = f"{row.name.replace('_', ' ')} is {format_short_value(row.value)} on {Scope.build(row)}"
    return report_overrides(f"{what[:1].upper()}{what[1:]} {describe_end(row)}.", made, "overrides")


def _find_override_page(override: Override) -> tuple[View, str, dict[str, Any]]:
    """Return the page that shows an override, its name, and its arguments: of its loop, its node, or all overrides."""
    if override.loop_id:
        return loop_page, "loop", {"loop_id": override.loop_id}
    if override.node is not None and is_threshold(override):
        return node_page, "node", {"name": override.node.name}
    if is_pause(override):
        return queue_page, "queue", {"name": override.queue}
    if is_drain(override):
        return worker_host_page, "worker-host", {"name": override.host}
    return overrides_page, "overrides", {}


def _find_override(override_id: int) -> Override:
    return get_object_or_404(Override.objects.select_related("loop", "node"), pk=override_id)


def _show_override_again(request: HttpRequest, override_id: int) -> HttpResponse:
    page, _, named = _find_override_page(_find_override(override_id))
    return call_page(page, request, **named)


def _build_override_url(override: Override) -> str:
    _, name, named = _find_override_page(override)
    return reverse(name, kwargs=named)


@declare_action("override.end", _show_override_again)
def end_override(request: HttpRequest, override_id: int) -> ActionResult:
    """End an override. Posted: reason (optional). Ending twice is no error."""
    override = _find_override(override_id)
    reason = request.POST.get("reason", "")
    ended = loops.end_override(actor_of(request), override, now=timezone.now(), control=control(), reason=reason)
    return ActionResult(
        describe_ended(override) if ended else f"{format_override_title(override)} had already ended.",
        _build_override_url(override),
    )


@declare_action("override.undo", _show_override_again)
def undo_override(request: HttpRequest, override_id: int) -> ActionResult:
    """Undo an override and everything that was set with it. Undoing twice is no error."""
    override = _find_override(override_id)
    undone = loops.undo_override(actor_of(request), override, now=timezone.now(), control=control())
    said = " ".join(describe_ended(*override) for override in undone)
    return ActionResult(said or f"{format_override_title(override)} had already ended.", _build_override_url(override))


@declare_action("override.extend", _show_override_again)
def extend_override(request: HttpRequest, override_id: int) -> ActionResult:
    """Extend an override. Posted: minutes (added to its expiry) or expires_at."""
    override = _find_override(override_id)
    expiry = parse_expiry(request.POST)
    loops.extend_override(
        actor_of(request),
        override,
        now=timezone.now(),
        control=control(),
        minutes=expiry.minutes,
        expires_at=expiry.expires_at,
    )
    message = f"{format_override_title(override)} is in force {describe_end(override)}."
    return ActionResult(message, _build_override_url(override))
