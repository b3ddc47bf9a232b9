"""Changes before an incident as rows: how far away and how likely each is, and how to undo it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from console.accounts.access import Actor
from console.display.formats import format_for_input
from console.display.override_words import format_short_value
from console.display.states import find_subject_page
from console.incidents.changes import IncidentChange
from console.incidents.quick_actions import MINUTES, QuickAction, RelatedPage
from console.input.form_values import format_iso_time
from console.models import AuditEntry, Mark
from controllers import catalog
from controllers.framework.reason import format_count
from controllers.shedding.ladder import LAW as LADDER
from queues.models import Node, Queue
from workers.models import LedgerEntry, Loop, Override, PipelineVersion, Plan
from workers.placement.plans import OPEN, can_roll_back
from workers.retries.models import RetryPlan
from workers.retries.plans import PAUSABLE
from workers.steering import overrides, plant_settings
from workers.steering.scope import NODE_USES

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
    url = reverse("loop", args=[override.loop.pk]) if alone and override.loop else reverse("manual-changes")
    if change.kind == "override ended" or not overrides.list_active(timezone.now()).filter(pk__in=keys).exists():
        return _Links(url=url)
    if not alone:
        return _Links(url=url, back=RelatedPage("End overrides", url, "override.end"))
    end = reverse("override-end", args=[override.pk])
    return _Links(url=url, undo=QuickAction(words="End override", url=end, may="override.end", fields={"end": "now"}))


def _build_plan_undo(name: str, change: IncidentChange) -> _Links:
    plan = Plan.objects.filter(pk=int(name)).first()
    if plan is None:
        return _Links()
    url = reverse("plan", args=[plan.pk])
    if not can_roll_back(plan) or Plan.objects.filter(undoes=plan, state__in=OPEN).exists():
        return _Links(url=url)
    back = reverse("plan-roll-back", args=[plan.pk])
    return _Links(
        url=url, undo=QuickAction(words="Propose rollback", url=back, may="plan.propose", fields={"plan": name})
    )


def _build_retry_link(name: str, change: IncidentChange) -> _Links:
    """Build the link to a retry plan, on whose page it can be paused while it sends."""
    state = RetryPlan.objects.filter(pk=int(name)).values_list("state", flat=True).first()
    if state is None:
        return _Links()
    url = reverse("retry-plan", args=[int(name)])
    return _Links(url=url, back=RelatedPage("Pause retry plan", url, "retry.stop") if state in PAUSABLE else None)


def _build_declaration_undo(name: str, change: IncidentChange) -> _Links:
    application, _, number = name.partition(":")
    url = reverse("pipeline-declaration", args=[application])
    rows = PipelineVersion.objects.filter(application=application)
    # A later version has changed it already, or has restored the one before.
    if not rows.filter(number=int(number), active=True).exists():
        return _Links(url=f"{url}?version={number}")
    before = rows.filter(number__lt=int(number)).order_by("-number").values_list("number", flat=True).first()
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
        is_changed = before == entry.after or plant_settings.get_setting_value(entry.target) != entry.after
        if not isinstance(before, int | float) or is_changed:
            return _Links(url=page)
        undo, words = reverse("plant-setting", args=[entry.target]), f"Reset to {plant_settings.format_setting(before)}"
        fields = {"value": format_for_input(before)}
        return _Links(url=page, undo=QuickAction(words=words, url=undo, may="settings.change", fields=fields))
    if entry.action == "settings.change" and "/" in first:
        return _build_loop_value_undo(first, entry)
    if entry.action == "ladder.cap" and Queue.objects.filter(name=entry.target).exists():
        page = reverse("queue", args=[entry.target])
        loop = Loop.objects.filter(name=f"{LADDER.name}/{entry.target}").first()
        if loop is None or entry.before is None or _get_cap(loop) != entry.after["cap"]:
            return _Links(url=page)
        undo, before = reverse("queue-cap", args=[entry.target]), entry.before["cap"]
        reset = QuickAction(words=f"Reset to {before}", url=undo, may="ladder.cap", fields={"cap": before})
        return _Links(url=page, undo=reset)
    if entry.action.startswith("queue.") and Queue.objects.filter(name=first).exists():
        return _Links(url=reverse("queue", args=[first]))
    if entry.action == "node.use" and Node.objects.filter(name=first).exists():
        page = reverse("node", args=[first])
        uses = [use for use in NODE_USES if (entry.after or {}).get(use)]
        is_so = any(Node.objects.filter(name=first, **{use: True}).exists() for use in uses)
        return _Links(url=page, back=RelatedPage("Return to service", page, "node.use") if is_so else None)
    if entry.action.startswith("pipeline."):
        return _Links(url=reverse("pipeline"))
    if entry.action == "alert_rule.change":
        return _Links(url=reverse("alert-rules"))
    return _Links()


def _get_cap(loop: Loop) -> object:
    """Return the level in force that the ladder of a queue may reach."""
    held = [override.value for override in overrides.list_for_loop(loop, timezone.now()) if override.name == "cap"]
    return held[-1] if held else catalog.read_parameters(LADDER, loop.parameters)["cap"]


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
    return _Links(url=url, undo=QuickAction(words=words, url=hold, may="loop.mode", fields={"mode": Loop.Mode.HOLD}))


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
    "retry": _build_retry_link,
    "declaration": _build_declaration_undo,
    "audit": _build_audit_undo,
    "mark": lambda name, change: _Links(
        outside_url="".join(Mark.objects.filter(pk=int(name)).values_list("url", flat=True))
    ),
    "entry": _build_hold,
    "part": _build_part_link,
}
