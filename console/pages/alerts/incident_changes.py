"""What changed before an incident, as pages show it: each change with its link, undo, and record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from console.accounts.access import Actor
from console.display.formats import format_for_input
from console.display.override_words import format_short_value
from console.display.subject_pages import find_subject_page
from console.incidents.changes import IncidentChange
from console.input.form_values import format_iso_time
from console.models import AuditEntry, Mark
from console.pages.alerts.quick_actions import MINUTES, QuickAction, RelatedPage
from controllers.framework.reason import format_count
from controllers.shedding.ladder import LAW as LADDER
from queues.models import Node, Queue
from workers.models import LedgerEntry, Loop, Override, PipelineVersion, Plan
from workers.placement.plans import can_roll_back
from workers.steering import overrides, plant_settings

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
    return [_build_change_row(change, actor) for change in changes]


def _build_change_row(change: IncidentChange, actor: Actor) -> ShownChange:
    kind, _, name = change.ref.partition(":")
    shown = SHOWN[kind](name, change) if kind in SHOWN else _Links()
    undo = shown.undo if shown.undo is not None and actor.may(shown.undo.may) else None
    back = shown.back if shown.back is not None and actor.may(shown.back.may) else None
    return ShownChange(
        change=change,
        url=shown.url or _build_timeline_url(change.at),
        outside_url=shown.outside_url,
        away=describe_distance(change),
        record=record_words(change),
        undo=undo,
        back=back,
    )


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


def _build_override_undo(name: str, change: IncidentChange) -> _Links:
    override = Override.objects.select_related("loop", "node").filter(pk=int(name)).first()
    if override is None:
        return _Links()
    url = reverse("loop", args=[override.loop.pk]) if override.loop else reverse("overrides")
    holds = overrides.list_active(timezone.now()).filter(pk=override.pk).exists()
    if not holds or change.kind == "override ended":
        return _Links(url=url)
    end = reverse("override-end", args=[override.pk])
    return _Links(url=url, undo=QuickAction("End override", end, "end", "now", "override.end"))


def _build_overrides_undo(numbers: str, change: IncidentChange) -> _Links:
    """Build the undo of overrides that were set together. Single overrides are ended on their own page."""
    url = reverse("overrides")
    holds = overrides.list_active(timezone.now()).filter(pk__in=map(int, numbers.split(","))).exists()
    if not holds or change.kind == "override ended":
        return _Links(url=url)
    return _Links(url=url, back=RelatedPage("End overrides", url, "override.end"))


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
        return _build_setting_undo(entry)
    if entry.action == "settings.change" and "/" in first:
        return _build_loop_value_undo(first, entry)
    if entry.action == "ladder.cap":
        return _build_cap_undo(entry)
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


def _build_setting_undo(entry: AuditEntry) -> _Links:
    """Build the undo of a setting, unless it already has its previous value."""
    url = reverse("plant-settings")
    if not isinstance(entry.before, int | float) or plant_settings.get_setting_value(entry.target) == entry.before:
        return _Links(url=url)
    undo = reverse("plant-setting", args=[entry.target])
    words = f"Reset to {plant_settings.format_setting(entry.before)}"
    return _Links(url=url, undo=QuickAction(words, undo, "value", format_for_input(entry.before), "settings.change"))


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


def _build_cap_undo(entry: AuditEntry) -> _Links:
    """Build the undo of a queue's remedy ladder limit, while it is the one set then."""
    if not Queue.objects.filter(name=entry.target).exists():
        return _Links()
    url = reverse("queue", args=[entry.target])
    loop = Loop.objects.filter(name=f"{LADDER.name}/{entry.target}").first()
    if loop is None or entry.before is None or loop.parameters.get("cap") != entry.after["cap"]:
        return _Links(url=url)
    undo, before = reverse("queue-cap", args=[entry.target]), entry.before["cap"]
    return _Links(url=url, undo=QuickAction(f"Reset to {before}", undo, "cap", before, "ladder.cap"))


def _build_mark_link(name: str, change: IncidentChange) -> _Links:
    mark = Mark.objects.filter(pk=int(name)).first()
    return _Links(url=_build_timeline_url(change.at), outside_url=mark.url if mark else "")


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
    "overrides": _build_overrides_undo,
    "plan": _build_plan_undo,
    "declaration": _build_declaration_undo,
    "audit": _build_audit_undo,
    "mark": _build_mark_link,
    "entry": _build_hold,
    "part": _build_part_link,
}
