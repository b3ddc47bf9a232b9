"""Buttons at an open alert: actions that only need a reason, related pages, and the undo of earlier changes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from common.parsing import parse_digits
from console.accounts.access import Actor
from console.display.formats import format_for_input
from console.display.override_words import format_short_value
from console.display.states import find_subject_page
from console.incidents.changes import IncidentChange
from console.input.form_values import format_iso_time
from console.models import AuditEntry, Mark
from controllers.framework.reason import format_count
from controllers.shedding.ladder import LAW as LADDER
from queues.models import Node, Queue
from workers.alerts.lifecycle.models import Alert
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override, PipelineVersion, Plan
from workers.placement.plans import can_roll_back
from workers.steering import overrides, plant_settings

MINUTES = 30  # of a hold or a pause
SUBJECTS = ("queue", "node", "host")
FAILING = ("failed", "stalled")
OF_PROCESSES = ("workers_missing", "observer_silent", "loops_stopped", "loop_silent", "host_overloaded")


@dataclass(frozen=True)
class QuickAction:
    """A button that posts its name and value with the reason of its form. may: the permission it needs."""

    words: str
    url: str
    name: str
    value: str
    may: str


@dataclass(frozen=True)
class RelatedPage:
    """A page with more details or actions. may: the permission that opens it."""

    words: str
    url: str
    may: str = "plant.view"


def find_loop(alert: Alert) -> Loop | None:
    """Return the loop that the alert is about."""
    return Loop.objects.filter(name=alert.labels["loop"]).first() if "loop" in alert.labels else None


def list_quick_actions(alert: Alert, loop: Loop | None, snapshot: Snapshot) -> list[QuickAction]:
    """Return the actions for the alert's condition and subject that are not done already.

    Return none if the alert is resolved.
    """
    return [] if alert.resolved_at is not None else list(_iterate_quick_actions(alert, loop, snapshot))


def _iterate_quick_actions(alert: Alert, loop: Loop | None, snapshot: Snapshot) -> Iterator[QuickAction]:
    labels = alert.labels
    if "pipeline" in labels:
        for name, row in sorted(snapshot.pipeline.applications.items()):
            if row.state in FAILING:
                url = reverse("pipeline-order", args=[name])
                yield QuickAction(f"Restart {name}", url, "order", "restart", "pipeline.steer")
    if alert.condition == "workers_missing":
        for name, host in sorted(snapshot.hosts.items()):
            if host.role == "jobs" and host.draining is not None:
                url = reverse("override-end", args=[host.draining.override])
                yield QuickAction(f"Return {name} to service", url, "end", "now", "override.end")
    if alert.condition == "override_ending" and parse_digits(labels.get("override", "")) is not None:
        url = reverse("override-end", args=[int(labels["override"])])
        yield QuickAction("End override", url, "end", "now", "override.end")
    elif loop is not None:
        # An override of its mode may be in force, which the snapshot contains.
        mode = snapshot.loops[loop.name].mode if loop.name in snapshot.loops else loop.mode
        if mode != Loop.Mode.HOLD:
            url = reverse("loop-mode", args=[loop.pk])
            yield QuickAction(f"Hold loop for {MINUTES} min", url, "mode", Loop.Mode.HOLD, "loop.mode")
    elif labels.get("queue") in snapshot.queues:
        # Excess arrivals are stopped where they enter; wrong handling is stopped at the handler.
        part = "consumption" if alert.condition == "dead_letters" else "intake"
        if part not in {pause.part for pause in snapshot.queues[labels["queue"]].pauses}:
            url = reverse("queue-pause", args=[labels["queue"]])
            yield QuickAction(f"Pause {part} for {MINUTES} min", url, "part", part, "queue.pause")
    elif alert.condition == "node_toobusy" and labels.get("node") in snapshot.nodes:
        yield QuickAction("Relieve busy nodes", reverse("rebalance"), "goal", "below-busy", "plan.propose")


def iterate_related_pages(alert: Alert, loop: Loop | None) -> Iterator[RelatedPage]:
    """Return pages with more actions on the alert."""
    labels = alert.labels
    if "pipeline" in labels:
        yield RelatedPage("Pipeline and log", f"{reverse('pipeline')}#pipeline-process")
    if alert.condition in OF_PROCESSES:
        yield RelatedPage("Processes and logs", reverse("processes"), "process.view")
    for kind in (subject for subject in SUBJECTS if subject in labels):
        yield RelatedPage(f"{kind.capitalize()} {labels[kind]}", find_subject_page(kind, labels[kind]))
    if loop is not None:
        yield RelatedPage("Loop", reverse("loop", args=[loop.pk]))
    if "plan" in labels and parse_digits(labels["plan"]) is not None:
        yield RelatedPage(f"Plan {labels['plan']}", reverse("plan", args=[int(labels["plan"])]))
    if "task" in labels:
        yield RelatedPage(f"Task {labels['task']}", reverse("task", args=[labels["task"]]))
    if alert.condition == "override_ending":
        yield RelatedPage("Overrides", reverse("overrides"))


AROUND = timedelta(minutes=10)
HERE = {0: "at the subject", 1: "1 step upstream"}


@dataclass(frozen=True, kw_only=True)
class ShownChange:
    """A change with a link to its details.

    away: its distance in words; record: how often its kind preceded such incidents; undo: a button; back: a page on
    which it can be undone.
    """

    change: IncidentChange
    url: str
    outside_url: str
    away: str
    record: str
    undo: QuickAction | None = None
    back: RelatedPage | None = None


def build_change_rows(changes: Sequence[IncidentChange], actor: Actor) -> list[ShownChange]:
    """Return the changes as rows, in their order; undo buttons only if the actor may use them."""
    rows = []
    for change in changes:
        kind, _, name = change.ref.partition(":")
        links = SHOWN[kind](name, change) if kind in SHOWN else _Links()
        rows.append(
            ShownChange(
                change=change,
                url=links.url or _build_timeline_url(change.at),
                outside_url=links.outside_url,
                away=describe_distance(change),
                record=record_words(change),
                undo=links.undo if links.undo is not None and actor.may(links.undo.may) else None,
                back=links.back if links.back is not None and actor.may(links.back.may) else None,
            )
        )
    return rows


def describe_distance(change: IncidentChange) -> str:
    """Return how far the change is from the disturbed subject, in words."""
    if change.steps is None:
        return "not known to be upstream"
    return HERE.get(change.steps, f"{change.steps} steps upstream")


def record_words(change: IncidentChange) -> str:
    """Return how often changes of its kind preceded incidents of this condition, in words."""
    if not change.incidents:
        return "no earlier incident of this kind to compare with"
    earlier = format_count(change.incidents, "earlier incident")
    return f"similar changes preceded {change.before} of {earlier} of this kind"


@dataclass(frozen=True, kw_only=True)
class _Links:
    url: str = ""
    outside_url: str = ""
    undo: QuickAction | None = None
    back: RelatedPage | None = None


def _build_override_undo(numbers: str, change: IncidentChange) -> _Links:
    """Build the undo of an override. Overrides that were set together are ended on their own page."""
    keys = [int(number) for number in numbers.split(",")]
    override = Override.objects.select_related("loop").filter(pk=keys[0]).first()
    if override is None:
        return _Links()
    alone = len(keys) == 1
    url = reverse("loop", args=[override.loop.pk]) if alone and override.loop else reverse("overrides")
    if change.kind == "override ended" or not overrides.list_active(timezone.now()).filter(pk__in=keys).exists():
        return _Links(url=url)
    if not alone:
        return _Links(url=url, back=RelatedPage("End overrides", url, "override.end"))
    end = reverse("override-end", args=[override.pk])
    return _Links(url=url, undo=QuickAction("End override", end, "end", "now", "override.end"))


def _build_plan_undo(name: str, change: IncidentChange) -> _Links:
    plan = Plan.objects.filter(pk=int(name)).first()
    if plan is None:
        return _Links()
    url = reverse("plan", args=[plan.pk])
    if not can_roll_back(plan):
        return _Links(url=url)
    back = reverse("plan-roll-back", args=[plan.pk])
    return _Links(url=url, undo=QuickAction("Propose rollback", back, "plan", name, "plan.propose"))


def _build_declaration_undo(name: str, change: IncidentChange) -> _Links:
    application, _, number = name.partition(":")
    url = reverse("pipeline-declaration", args=[application])
    rows = PipelineVersion.objects.filter(application=application, number__lt=int(number))
    before = rows.order_by("-number").values_list("number", flat=True).first()
    version = "shipped" if before is None else str(before)
    words = "Restore the default version" if before is None else f"Restore version {before}"
    page = f"{url}?{urlencode({'version': version})}"
    return _Links(url=f"{url}?version={number}", back=RelatedPage(words, page, "pipeline.declare"))


def _build_audit_undo(name: str, change: IncidentChange) -> _Links:
    entry = AuditEntry.objects.filter(pk=int(name)).first()
    if entry is None:
        return _Links()
    first = entry.target.split(" ")[0]
    if entry.action == "settings.change" and entry.target in plant_settings.BY_NAME:
        page = reverse("plant-settings")
        before = entry.before
        if not isinstance(before, int | float) or plant_settings.get_setting_value(entry.target) == before:
            return _Links(url=page)
        undo, words = reverse("plant-setting", args=[entry.target]), f"Reset to {plant_settings.format_setting(before)}"
        return _Links(url=page, undo=QuickAction(words, undo, "value", format_for_input(before), "settings.change"))
    if entry.action == "settings.change" and "/" in first:
        return _build_loop_value_undo(first, entry)
    if entry.action == "ladder.cap" and Queue.objects.filter(name=entry.target).exists():
        page = reverse("queue", args=[entry.target])
        loop = Loop.objects.filter(name=f"{LADDER.name}/{entry.target}").first()
        if loop is None or entry.before is None or loop.parameters.get("cap") != entry.after["cap"]:
            return _Links(url=page)
        undo, before = reverse("queue-cap", args=[entry.target]), entry.before["cap"]
        return _Links(url=page, undo=QuickAction(f"Reset to {before}", undo, "cap", before, "ladder.cap"))
    if entry.action.startswith("queue.") and Queue.objects.filter(name=first).exists():
        return _Links(url=reverse("queue", args=[first]))
    if entry.action == "node.use" and Node.objects.filter(name=first).exists():
        page = reverse("node", args=[first])
        return _Links(url=page, back=RelatedPage("Return to service", page, "node.use"))
    if entry.action.startswith("pipeline."):
        return _Links(url=reverse("pipeline"))
    if entry.action == "alert_rule.change":
        return _Links(url=reverse("alert-rules"))
    return _Links()


def _build_loop_value_undo(name: str, entry: AuditEntry) -> _Links:
    """Build the undo of a loop's parameter or guard setting.

    It is a link to the settings page, while the value is the one set then.
    """
    loop = Loop.objects.filter(name=name).first()
    if loop is None:
        return _Links()
    url, parameter = reverse("loop", args=[loop.pk]), entry.target.removeprefix(f"{name} ")
    own = loop.guard if parameter.startswith("guard.") else loop.parameters
    if own.get(parameter.removeprefix("guard.")) != entry.after:
        return _Links(url=url)
    page = f"{reverse('plant-settings')}?loop={loop.pk}"
    return _Links(url=url, back=RelatedPage(f"Reset to {format_short_value(entry.before)}", page, "settings.change"))


def _build_hold(name: str, change: IncidentChange) -> _Links:
    """Build a button that holds a harmful loop: its effects stay, and it takes no further action."""
    entry = LedgerEntry.objects.select_related("loop").filter(pk=int(name)).first()
    if entry is None:
        return _Links()
    url = reverse("entry", args=[entry.pk])
    held = [
        override.value for override in overrides.list_for_loop(entry.loop, timezone.now()) if override.name == "mode"
    ]
    if (held[-1] if held else entry.loop.mode) == Loop.Mode.HOLD:
        return _Links(url=url)
    hold = reverse("loop-mode", args=[entry.loop.pk])
    words = f"Hold loop for {MINUTES} min"
    return _Links(url=url, undo=QuickAction(words, hold, "mode", Loop.Mode.HOLD, "loop.mode"))


def _build_part_link(part: str, change: IncidentChange) -> _Links:
    kind, _, name = part.partition("/")
    if kind in ("node", "queue", "host"):
        return _Links(url=find_subject_page(kind, name))
    if kind == "application":
        return _Links(url=reverse("pipeline-application", args=[name]))
    return _Links(url=reverse("pipeline") if kind in ("type", "operator") else "")


def _build_timeline_url(at: datetime) -> str:
    query = {"from": format_iso_time(at - AROUND), "to": format_iso_time(at + AROUND), "at": format_iso_time(at)}
    return f"{reverse('timeline')}?{urlencode(query)}"


SHOWN: dict[str, Callable[[str, IncidentChange], _Links]] = {
    "override": _build_override_undo,
    "overrides": _build_override_undo,
    "plan": _build_plan_undo,
    "declaration": _build_declaration_undo,
    "audit": _build_audit_undo,
    "mark": lambda name, change: _Links(
        outside_url="".join(Mark.objects.filter(pk=int(name)).values_list("url", flat=True))
    ),
    "entry": _build_hold,
    "part": _build_part_link,
}
