"""Manual changes: everything that people have in force, what ended lately, and overrides of many loops at once."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone

from common.parameter import Parameter
from console.accounts.access import Actor, actor_of
from console.actions import loops, manual_changes
from console.connections.control_server import control
from console.display.override_words import (
    describe_end,
    describe_ended,
    describe_overrides,
    format_override_title,
    format_short_value,
)
from console.display.states import find_subject_page
from console.input.form_values import parse_any_value, parse_expiry
from console.models import AuditEntry
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    View,
    call_page,
    declare_action,
    declare_page,
    render_page,
    report_overrides,
    text_of,
)
from console.pages.frame.past import past_of
from console.pages.loops.loops import loop_page
from console.pages.plant.plant import node_page, worker_host_page
from console.pages.queues.queues import queue_page
from controllers import catalog
from controllers.framework import guard
from queues.models import Node, Queue
from workers.alerts.lifecycle.models import Silence
from workers.alerts.rules.rules import format_matchers
from workers.documents.loops import ManualChange
from workers.documents.snapshot import Snapshot
from workers.models import Loop, Override, Plan
from workers.plants.registry import LOCAL
from workers.snapshot.manual_changes import build_override_change, format_changed_value, list_with_current_overrides
from workers.steering import overrides as in_force
from workers.steering.overrides import build_statuses
from workers.steering.scope import format_time, is_circuit_hold, is_drain, is_node_use, is_pause, is_threshold

MODE = Parameter("mode", "", "How the loops use their decisions.", kind="choice", choices=tuple(Loop.Mode.values))
RELATED = ("loop", "node", "owner", "ended_by")
LATELY = timedelta(days=1)
MAX_ENDED = 50
EVERYONE, MINE = "everyone", "mine"
EXTENSION_WORDS = {10: "10 min", 30: "30 min", 120: "2 h", 480: "8 h", 1440: "1 day"}
MINUTES = 30  # the extension that is selected


@dataclass(frozen=True)
class OverrideOption:
    """An option to override: its form value, its name, and the values it takes; choices: all of them, if few."""

    value: str
    name: str
    takes: str
    help: str
    choices: Sequence[str]


@dataclass(frozen=True)
class OverrideOptions:
    """The options of one law, or ("") of any law."""

    group: str
    law: str
    options: list[OverrideOption]


# The audit's action names by kind of manual change, for changes of earlier versions that don't record who made them.
AUDITED = {"cap": "ladder.cap", "cordon": "node.use", "drain": "node.use"}
# Ends of changes that leave no record but the audit log: their kind, icon, and subject in words.
AUDITED_ENDS = {
    "plant.release": ("Manual tasks", "tasks", "Tasks of {}"),
    "pipeline.start": ("Stop", "pause", "Application {}"),
}
KINDS = {
    "override": "Override",
    "hold": "Hold",
    "mode": "Mode",
    "pause": "Pause",
    "drain": "Drain",
    "cordon": "Cordon",
    "host drain": "Host drain",
    "circuit hold": "Circuit hold",
    "cap": "Cap",
    "tasks": "Manual tasks",
    "criterion": "Criterion",
    "stop": "Stop",
    "intervention": "Intervention",
    "silence": "Silence",
    "planned window": "Planned window",
    "snooze": "Snooze",
}
NOUNS = {"cap": "cap of the remedy ladder", "tasks": "setting of tasks", "criterion": "value of the criterion"}
ICONS = {"hold": "hold", "mode": "hold", "pause": "pause", "drain": "drain", "cordon": "drain", "host drain": "drain"}
ICONS |= {"cap": "cap", "tasks": "tasks", "stop": "pause", "silence": "mute", "snooze": "mute"}
ICONS |= {"planned window": "calendar", "circuit hold": "hold"}


@dataclass(frozen=True)
class ExtensionChoice:
    """Minutes by which a form offers to extend a change."""

    minutes: int
    words: str
    is_selected: bool


@dataclass(frozen=True)
class ManualChangeRow:
    """A manual change with its links.

    owner, reason: as recorded, or else as the audit log has them; extensions: that the user may choose. required_role:
    to end it, if the user may not; "": the user may, or nobody can.
    """

    change: ManualChange
    word: str
    icon: str
    url: str
    owner: str
    reason: str
    noun: str
    reminder: str
    may_end: bool
    required_role: str
    extensions: Sequence[ExtensionChoice]


@dataclass(frozen=True)
class KindCount:
    """A filter by kind, with the number of changes. kind: "" for all."""

    kind: str
    word: str
    icon: str
    count: int
    is_chosen: bool


@dataclass(frozen=True)
class EndedManualChange:
    """A change that has ended. since: None if the start is not recorded; by: "" if it ended by itself."""

    word: str
    icon: str
    title: str
    was: str
    value: str
    owner: str
    since: datetime | None
    ended_at: datetime
    by: str


@dataclass(frozen=True)
class ChangeJob:
    """A card that leads to a job. may: whether the user has its permission."""

    title: str
    about: str
    icon: str
    url: str
    may: bool


@dataclass(frozen=True)
class HeldLoops:
    """The loops that are on hold. words: by law."""

    count: int
    total: int
    words: str


@dataclass(frozen=True, kw_only=True)
class ManualChangesPage(FormPage):
    """Everything that people have in force, and the form for overrides of many loops."""

    TEMPLATE, NAME = "loops/manual_changes.html", "manual-changes"

    changes: Sequence[ManualChangeRow]  # as filtered, the soonest to end first
    all_changes: Sequence[ManualChangeRow]
    kinds: Sequence[KindCount]
    kind: str
    who: str
    next_to_end: ManualChangeRow | None
    endless: Sequence[ManualChangeRow]
    owners: Sequence[str]
    held: HeldLoops
    ended: Sequence[EndedManualChange]
    ended_alone: int
    jobs: Sequence[ChangeJob]
    commands: str
    laws: Sequence[str]
    queues: QuerySet[Queue, str]
    nodes: QuerySet[Node, str]
    choices: Sequence[OverrideOptions]


@declare_page("plant.view")
def manual_changes_page(request: HttpRequest) -> HttpResponse:
    """Show the manual changes. kind, who: filters in the address."""
    now, actor, snapshot = timezone.now(), actor_of(request), get_snapshot(request)
    changes = snapshot.hands
    if past_of(request) is None:
        active = in_force.list_active(now).select_related(*RELATED)
        changes = list_with_current_overrides(snapshot, build_statuses(active))
    rows = [_build_row(change, snapshot, actor, now) for change in changes]
    kind, who = request.GET.get("kind", ""), request.GET.get("who", EVERYONE)
    theirs = [row for row in rows if who != MINE or row.owner == actor.name]
    ended = list_ended(now)
    page = ManualChangesPage(
        changes=[row for row in theirs if kind in ("", row.change.kind)],
        all_changes=rows,
        kinds=list(_iterate_kinds(theirs, kind)),
        kind=kind,
        who=who,
        next_to_end=next((row for row in rows if row.change.until is not None), None),
        endless=[row for row in rows if row.change.until is None],
        owners=sorted({row.owner for row in rows if row.owner}),
        held=_count_held_loops(snapshot),
        ended=ended,
        ended_alone=sum(not row.by for row in ended),
        jobs=_list_jobs(actor),
        commands="\n".join(_iterate_commands(rows, now)),
        laws=list(catalog.LAWS),
        queues=Queue.objects.order_by("name").values_list("name", flat=True),
        nodes=Node.objects.order_by("name").values_list("name", flat=True),
        choices=list(list_override_options()),
    )
    return render_page(request, page)


@declare_page("plant.view")
def redirect_old_address(request: HttpRequest) -> HttpResponse:
    """Redirect from the address that the page had before it listed all manual changes."""
    return redirect("manual-changes")


def _list_extensions(change: ManualChange, now: datetime) -> list[ExtensionChoice]:
    minutes = manual_changes.list_extension_minutes(change, now)
    return [ExtensionChoice(choice, EXTENSION_WORDS[choice], choice == MINUTES) for choice in minutes]


def _build_row(change: ManualChange, snapshot: Snapshot, actor: Actor, now: datetime) -> ManualChangeRow:
    noted, action = None, AUDITED.get(change.kind)
    if not change.owner and action is not None:
        entries = AuditEntry.objects.filter(action=action, target=change.of.partition("/")[2])
        noted = entries.order_by("-pk").first()
    first = change.key.partition("/")[0]
    permission, extension = manual_changes.PERMISSIONS.get(first), manual_changes.EXTENSIONS.get(first)
    roles = [
        manual_changes.find_required_role(actor, change, snapshot, action) if action else ""
        for action in (permission, extension.permission if extension else None)
    ]
    return ManualChangeRow(
        change=change,
        word=KINDS.get(change.kind, change.kind.capitalize()),
        icon=ICONS.get(change.kind, "override"),
        url=_find_page(change.of, snapshot),
        owner=noted.actor if noted else change.owner,
        reason=noted.reason if noted else change.reason,
        noun=NOUNS.get(change.kind, change.kind),
        reminder=_describe_reminder(change, snapshot.at or 0.0),
        may_end=permission is not None and not roles[0],
        required_role=roles[0],
        extensions=[] if roles[1] else _list_extensions(change, now),
    )


def _describe_reminder(change: ManualChange, now: float) -> str:
    if change.remind_at is None:
        return ""
    left = change.remind_at - now
    return f"reminder in {_format_time_left(left)}" if left > 0 else "review is due"


def _format_time_left(seconds: float) -> str:
    """Return a time in hours, or in minutes if it is short."""
    return f"{math.ceil(seconds / 3_600)} h" if seconds > 3_600 else f"{math.ceil(seconds / 60)} min"


def _find_page(of: str, snapshot: Snapshot) -> str:
    """Return the page of a changed subject."""
    kind, _, name = of.partition("/")
    if kind == "loop" and name in snapshot.loops:
        return reverse("loop", args=[snapshot.loops[name].id])
    if kind in ("node", "queue", "host"):
        return find_subject_page(kind, name)
    if kind == "plant":
        return reverse("pipeline") if name == LOCAL else reverse("plant", args=[name])
    if kind == "application":
        return reverse("pipeline-application", args=[name])
    if kind == "alert":
        return reverse("alert", args=[int(name)])
    if kind == "window":
        return reverse("window", args=[int(name)])
    return reverse("silences") if kind == "silence" else reverse("loops")


def _iterate_kinds(rows: Sequence[ManualChangeRow], chosen: str) -> Iterator[KindCount]:
    yield KindCount("", "All", "", len(rows), not chosen)
    for kind, word in KINDS.items():
        count = sum(row.change.kind == kind for row in rows)
        if count or kind == chosen:
            yield KindCount(kind, word, ICONS.get(kind, "override"), count, kind == chosen)


def _count_held_loops(snapshot: Snapshot) -> HeldLoops:
    laws = [loop.law for loop in snapshot.loops.values() if loop.mode == Loop.Mode.HOLD]
    words = ", ".join(f"{laws.count(law)} {law.replace('_', ' ')}" for law in sorted(set(laws)))
    return HeldLoops(len(laws), len(snapshot.loops), words)


def list_ended(now: datetime) -> list[EndedManualChange]:
    """Return the changes that ended in the last day, newest first."""
    since = now - LATELY
    overrides = Override.objects.filter(ended_at__gt=since, ended_at__lte=now).select_related(*RELATED)
    silences = Silence.objects.filter(expires_at__gt=since).select_related("owner", "ended_by")
    entries = AuditEntry.objects.filter(action__in=AUDITED_ENDS, at__gt=since).order_by("-pk")
    rows = [
        *(_build_ended_override(row) for row in overrides.order_by("-ended_at")[:MAX_ENDED]),
        *(_build_ended_silence(row, now) for row in silences if (row.ended_at or row.expires_at) <= now),
        *(_build_audited_end(entry) for entry in entries[:MAX_ENDED]),
    ]
    return sorted(rows, key=lambda row: row.ended_at, reverse=True)[:MAX_ENDED]


def _build_audited_end(entry: AuditEntry) -> EndedManualChange:
    word, icon, title = AUDITED_ENDS[entry.action]
    tasks = entry.before.get("tasks") if isinstance(entry.before, dict) else None
    subject = ", ".join(tasks) if tasks else entry.target
    value = format_changed_value("", tasks) if tasks else ""
    return EndedManualChange(word, icon, title.format(subject), "", value, "", None, entry.at, entry.actor)


def _build_ended_override(row: Override) -> EndedManualChange:
    (status,) = build_statuses([row])
    change = build_override_change(status)
    return EndedManualChange(
        KINDS[change.kind],
        ICONS.get(change.kind, "override"),
        change.title,
        change.was,
        change.value,
        row.owner.get_username(),
        row.created_at,
        row.ended_at or timezone.now(),
        row.ended_by.get_username() if row.ended_by else "",
    )


def _build_ended_silence(row: Silence, now: datetime) -> EndedManualChange:
    return EndedManualChange(
        "Silence",
        "mute",
        f"Alerts with {format_matchers(row.matchers)}",
        "notified",
        "silenced",
        row.owner.get_username(),
        row.created_at,
        row.ended_at or row.expires_at,
        row.ended_by.get_username() if row.ended_by else "",
    )


def _list_jobs(actor: Actor) -> list[ChangeJob]:
    waiting = Plan.objects.filter(state=Plan.State.PROPOSED).count()
    jobs = (
        ("override.set", "Override a value", "threshold, target, or parameter", "override", "#new-title"),
        ("loop.mode", "Hold a loop", "or all loops of a queue or node", "hold", reverse("loops")),
        ("queue.pause", "Pause a queue", "its intake or its consumption", "pause", reverse("queues")),
        ("queue.circuit", "Hold a circuit", "of a queue's destination, open or closed", "hold", reverse("queues")),
        ("node.use", "Drain a node", "moves its points by a plan", "drain", reverse("nodes")),
        ("ladder.cap", "Cap a remedy ladder", "for example: never shed", "cap", reverse("queues")),
        ("pipeline.steer", "Set tasks manually", "of a pipeline operator", "tasks", reverse("pipeline")),
        ("plan.propose", "Rebalance now", "proposes a plan to approve", "plans", reverse("queues")),
        ("plan.approve", "Approve a plan", f"{waiting or 'none'} waiting", "check", reverse("plans")),
    )
    return [ChangeJob(title, about, icon, url, actor.may_somewhere(may)) for may, title, about, icon, url in jobs]


def _iterate_commands(rows: Sequence[ManualChangeRow], now: datetime) -> Iterator[str]:
    """Return the terminal commands that make the changes again, such as on another plant."""
    numbers = [int(row.change.key.partition("/")[2]) for row in rows if row.change.key.startswith("override/")]
    overrides = Override.objects.filter(pk__in=numbers).select_related("loop", "node", "owner")
    by_number = {override.pk: override for override in overrides}
    for number in numbers:
        if number in by_number:
            yield _format_command(by_number[number], now)


def _format_command(row: Override, now: datetime) -> str:
    scope = {"law": row.law, "queue": row.queue, "node": row.node.name if row.node else ""}
    if is_pause(row):
        words = [f"queues {row.queue} pause", "--part", row.name]
    elif is_circuit_hold(row):
        words = [f"queues {row.queue} circuit", "--circuit", str(row.value)]
    elif is_drain(row):
        words = [f"workers {row.host} drain"]
    elif is_node_use(row):
        words = [f"nodes {scope['node']} use", "--use", "drain" if row.name == "drained" else "cordon"]
    elif row.name == "mode" and row.loop is not None:
        words = [f"loops {row.loop_id} mode", "--mode", str(row.value)]
    else:
        places = {"loop": row.loop.name} if row.loop is not None else {key: name for key, name in scope.items() if name}
        words = ["overrides create", "--name", row.name, "--value", format_short_value(row.value)]
        words += [word for key, name in places.items() for word in (f"--{key}", name)]
    left = None if row.expires_at is None else max(1, round((row.expires_at - now).total_seconds() / 60))
    ends = ["--minutes", str(left)] if left is not None else [] if is_node_use(row) else ["--endless", "true"]
    command, *options = words
    options += ["--reason", row.reason, *([] if row.name == "drained" else ends)]
    return f"manage.py weir {command} {shlex.join(options)}"


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
    return OverrideOption(value, parameter.name, parameter.takes(), parameter.help, parameter.choices)


@declare_action("override.set", manual_changes_page)
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
    return report_overrides(describe_overrides(made), made, "manual-changes")


def _find_override_page(override: Override) -> tuple[View, str, dict[str, Any]]:
    """Return the page that shows an override, its name, and its arguments: of its loop, its node, or all overrides."""
    if override.loop_id:
        return loop_page, "loop", {"loop_id": override.loop_id}
    if override.node is not None and (is_threshold(override) or is_node_use(override)):
        return node_page, "node", {"name": override.node.name}
    if is_pause(override):
        return queue_page, "queue", {"name": override.queue}
    if is_drain(override):
        return worker_host_page, "worker-host", {"name": override.host}
    return manual_changes_page, "manual-changes", {}


def _find_override(override_id: int) -> Override:
    return get_object_or_404(Override.objects.select_related("loop", "node"), pk=override_id)


def _show_override_again(request: HttpRequest, override_id: int) -> HttpResponse:
    page, _, named = _find_override_page(_find_override(override_id))
    return call_page(page, request, **named)


def _build_override_url(override: Override) -> str:
    _, name, named = _find_override_page(override)
    return reverse(name, kwargs=named)


@declare_action("override.end", manual_changes_page)
def end(request: HttpRequest) -> ActionResult:
    """End a manual change. Posted: key, reason (optional), anyway (if ending it would hurt)."""
    key = text_of(request, "key", "Reload the page and select a change")
    shown = manual_changes.find_change(snapshot_of(request), key)
    ended = manual_changes.end(
        actor_of(request),
        key,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        control=control(),
        snapshot=snapshot_of(request),
        anyway=bool(request.POST.get("anyway")),
    )
    said = f"{_name_change(shown)} {'has' if ended else 'had already'} ended."
    return ActionResult(said, reverse("manual-changes"))


@declare_action("override.extend", manual_changes_page)
def extend(request: HttpRequest) -> ActionResult:
    """Extend a change, or set its end. Posted: key, and minutes (added to its end) or expires_at."""
    key = text_of(request, "key", "Reload the page and select a change")
    shown = manual_changes.find_change(snapshot_of(request), key)
    now = timezone.now()
    until = manual_changes.extend(actor_of(request), key, parse_expiry(request.POST), now=now, control=control())
    ends = f"until {format_time(until, now)}" if until else "without expiry"
    return ActionResult(f"{_name_change(shown)} is in force {ends}.", reverse("manual-changes"))


def _name_change(change: ManualChange | None) -> str:
    return f"The manual change “{change.title}”" if change else "The manual change"


@declare_action("override.end", _show_override_again)
def end_override(request: HttpRequest, override_id: int) -> ActionResult:
    """End an override. Posted: reason (optional). Ending twice is no error."""
    override = _find_override(override_id)
    reason = request.POST.get("reason", "")
    ended = loops.end_override(actor_of(request), override, now=timezone.now(), control=control(), reason=reason)
    return ActionResult(
        describe_ended(override) if ended else f"The override “{format_override_title(override)}” had already ended.",
        _build_override_url(override),
    )


@declare_action("override.undo", _show_override_again)
def undo_override(request: HttpRequest, override_id: int) -> ActionResult:
    """Undo an override and everything that was set with it. Undoing twice is no error."""
    override = _find_override(override_id)
    undone = loops.undo_override(actor_of(request), override, now=timezone.now(), control=control())
    said = " ".join(describe_ended(*override) for override in undone)
    already = f"The override “{format_override_title(override)}” had already ended."
    return ActionResult(said or already, _build_override_url(override))


@declare_action("override.extend", _show_override_again)
def extend_override(request: HttpRequest, override_id: int) -> ActionResult:
    """Extend an override. Posted: minutes (added to its expiry) or expires_at."""
    override = _find_override(override_id)
    expiry = parse_expiry(request.POST)
    loops.extend_override(actor_of(request), override, expiry, now=timezone.now(), control=control())
    message = f"The override “{format_override_title(override)}” is in force {describe_end(override)}."
    return ActionResult(message, _build_override_url(override))
