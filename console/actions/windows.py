"""User actions on planned windows: plan, import, change, end, extend, and override; authorized and audited.

All raise `PermissionDenied`, and `BadInput` that names the field; then nothing was changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from queues.models import Node, Queue
from workers.alerts.rules import rules
from workers.plants.models import RegisteredPlant
from workers.steering.overrides import Expiry, parse_minutes, read_reason
from workers.windows import definitions, occurrences
from workers.windows.calendar_import import CalendarWindow, read_bounded_content
from workers.windows.definitions import WindowDefinition
from workers.windows.models import FreezeOverride, PlannedWindow
from workers.windows.occurrences import WindowOccurrence
from workers.windows.scope import OWN_PLANT

MAX_OVERRIDE = timedelta(hours=4)
MAX_IMPORTED = 100
ALREADY_IMPORTED = "is already planned. End the window first to import the event again."
# Fields that all imported windows share; the calendar has the others.
SHARED_FIELDS = ("kind", "scope", "expected", "loop_mode")


@dataclass(frozen=True)
class ImportedWindow:
    """An event of a calendar, and its window, not saved. error: why it can't be imported; "": it can."""

    event: CalendarWindow
    window: PlannedWindow | None
    error: str = ""


@dataclass(frozen=True)
class ImportPreview:
    """The windows that an import creates, and a sentence for each event that can't be read."""

    windows: list[ImportedWindow]
    broken: list[str]

    @property
    def importable(self) -> list[ImportedWindow]:
        return [window for window in self.windows if not window.error]


@transaction.atomic
def plan(actor: Actor, fields: Mapping[str, Any], *, reason: object, now: datetime) -> PlannedWindow:
    """Plan a window; fields as of `workers.windows.definitions`."""
    definition = _read_definition(fields, now)
    _require_rights(actor, "window.set", definition.kind, definition.scope)
    return _add(actor, definitions.build_window(definition, now), read_reason(reason), now)


@transaction.atomic
def change(
    actor: Actor, window: PlannedWindow, fields: Mapping[str, Any], *, version: int, reason: object, now: datetime
) -> PlannedWindow:
    """Change a window from now on; return it. What has occurred stays as it was.

    fields: those that change, as of `plan`. version: the one that the actor has seen; if there is a newer one, the
    change is rejected, because it would undo that change.
    """
    _require_rights(actor, "window.set", window.kind, window.scope)
    why = read_reason(reason)
    # This locks the row, too.
    if not PlannedWindow.objects.filter(pk=window.pk, version=version).update(version=version + 1):
        raise BadInput("version", _describe_newest_version(window))
    row = PlannedWindow.objects.select_related("owner").get(pk=window.pk)
    if not definitions.list_current(row, now):
        raise BadInput("window", f"{row.name} has ended. Plan another window with these values.")
    before = describe_window(row)
    definition = _read_definition({**before, **fields}, now)
    _require_rights(actor, "window.set", definition.kind, definition.scope)
    definitions.change(row, definition, actor.account, now)
    audit_log.record(actor, "window.change", str(row), reason=why, before=before, after=describe_window(row))
    return row


def _describe_newest_version(window: PlannedWindow) -> str:
    newest = PlannedWindow.objects.get(pk=window.pk)
    former = newest.former_versions.select_related("ended_by").order_by("-version").first()
    by = f" by {former.ended_by}" if former else ""
    return f"is not the newest: version {newest.version} was saved{by}. Reload the window, and make your change again."


@transaction.atomic
def end(actor: Actor, window: PlannedWindow, *, reason: str, now: datetime) -> bool:
    """End a window with all its later occurrences; return False, without an audit entry, if it had ended."""
    _require_rights(actor, "window.end", window.kind, window.scope)
    ended = definitions.end(window, actor.user, now)
    if ended:
        audit_log.record(actor, "window.end", str(window), reason=reason.strip(), before=describe_window(window))
    return ended


@transaction.atomic
def end_occurrence(
    actor: Actor, window: PlannedWindow, local_start: str, *, reason: str, now: datetime
) -> WindowOccurrence:
    """End the active occurrence now, or cancel a later one; return it as it was."""
    _require_rights(actor, "window.end", window.kind, window.scope)
    row = PlannedWindow.objects.select_for_update(of=("self",)).get(pk=window.pk)
    occurrence = definitions.find_occurrence(row, local_start, now)
    definitions.end_occurrence(row, occurrence, now)
    before = _describe_times(occurrence)
    audit_log.record(actor, "window.end", f"{window}, {local_start}", reason=reason.strip(), before=before)
    return occurrence


@transaction.atomic
def extend_occurrence(
    actor: Actor, window: PlannedWindow, local_start: str, expiry: Expiry, *, now: datetime
) -> datetime:
    """Extend an occurrence; return its new end."""
    _require_rights(actor, "window.set", window.kind, window.scope)
    row = PlannedWindow.objects.select_for_update(of=("self",)).get(pk=window.pk)
    occurrence = definitions.find_occurrence(row, local_start, now)
    if expiry.minutes is not None:
        until = occurrence.ends_at + parse_minutes(expiry.minutes, occurrences.MAX_EXTENSION)
    else:
        until = expiry.compute_later(occurrence.ends_at, now)
    definitions.extend_occurrence(row, occurrence, until)
    after = {"ends_at": until.isoformat()}
    audit_log.record(
        actor, "window.extend", f"{window}, {local_start}", before=_describe_times(occurrence), after=after
    )
    return until


@transaction.atomic
def override_freeze(
    actor: Actor, window: PlannedWindow, *, minutes: object, reason: object, now: datetime
) -> FreezeOverride:
    """Let the actor change the scope of an active freeze for some minutes."""
    require_permission(actor, "freeze.override")
    why = read_reason(reason)
    active = [row for row in occurrences.list_between(window, now, now) if row.is_active(now)]
    if window.kind != PlannedWindow.Kind.FREEZE or not active:
        raise BadInput("window", f"{window.name} is not an active change freeze. Choose a freeze that is in force.")
    until = min(now + parse_minutes(minutes, MAX_OVERRIDE), active[0].ends_at)
    made = FreezeOverride.objects.create(window=window, user=actor.account, reason=why, at=now, until=until)
    audit_log.record(actor, "freeze.override", str(window), reason=why, after={"until": until.isoformat()})
    return made


def preview_import(actor: Actor, text: bytes, shared: Mapping[str, Any], *, now: datetime) -> ImportPreview:
    """Return what an import of a calendar would create with these shared fields. Nothing is changed."""
    require_permission(actor, "window.set", _list_scope_queues(shared.get("scope")))
    content = read_bounded_content(text)
    if len(content.windows) > MAX_IMPORTED:
        raise BadInput("calendar", f"has more than {MAX_IMPORTED} events. Split it.")
    return ImportPreview([_check_event(event, shared, now) for event in content.windows], content.broken)


@transaction.atomic
def import_windows(
    actor: Actor, events: Sequence[CalendarWindow], shared: Mapping[str, Any], *, reason: object, now: datetime
) -> list[PlannedWindow]:
    """Plan the windows of a calendar. Raises `BadInput` for the first event that can't be imported."""
    why = read_reason(reason)
    if not events or len(events) > MAX_IMPORTED:
        raise BadInput("events", f"must be a list of 1 to {MAX_IMPORTED} events of the preview.")
    made = []
    for event in events:
        checked = _check_event(event, shared, now)
        if checked.window is None:
            raise BadInput("events", f"{event.name}: {checked.error}")
        _require_rights(actor, "window.set", checked.window.kind, checked.window.scope)
        made.append(_add(actor, checked.window, why, now))
    return made


def _check_event(event: CalendarWindow, shared: Mapping[str, Any], now: datetime) -> ImportedWindow:
    fields = {name: shared[name] for name in SHARED_FIELDS if name in shared}
    fields |= {"name": event.name[: definitions.MAX_NAME], "start": event.start, "time_zone": event.time_zone}
    fields |= {"minutes": event.minutes, "rrule": event.rrule}
    try:
        window = definitions.build_window(_read_definition(fields, now), now, event.exceptions, event.uid)
    except BadInput as error:
        if error.field in ("kind", "scope", "expected", "loop_mode") or error.field.startswith("expected"):
            raise  # a shared field, which is wrong for all events
        return ImportedWindow(event, None, f"{error.field} {error.message}")
    planned = occurrences.list_current_windows(now).filter(event_uid=event.uid).exclude(event_uid="")
    if planned.filter(local_start=window.local_start).exists():
        return ImportedWindow(event, None, ALREADY_IMPORTED)
    return ImportedWindow(event, window)


def _read_definition(fields: Mapping[str, Any], now: datetime) -> WindowDefinition:
    expected = rules.read_matchers(fields.get("expected") or [], "expected")
    definition = definitions.read_definition(fields, expected, now)
    known = {
        "queue": Queue.objects.values_list("name", flat=True),
        "node": Node.objects.values_list("name", flat=True),
        "plant": [OWN_PLANT.partition("/")[2], *RegisteredPlant.objects.values_list("name", flat=True)],
    }
    for subject in definition.scope:
        kind, _, name = subject.partition("/")
        if kind in known and name not in known[kind]:
            raise BadInput(
                "scope",
                f"names the {kind} {name}, which does not exist. Remove it from the scope, or correct its name.",
            )
    return definition


def _add(actor: Actor, window: PlannedWindow, reason: str, now: datetime) -> PlannedWindow:
    definitions.add(window, actor.account, reason, now)
    audit_log.record(actor, "window.set", str(window), reason=reason, after=describe_window(window))
    return window


def may_change(actor: Actor, window: PlannedWindow) -> bool:
    """Return whether to offer the actor changes, extensions, and ends of a window."""
    actions = ["window.set", "window.end", *(["freeze.manage"] if window.kind == PlannedWindow.Kind.FREEZE else [])]
    return actor.can_access_queues(_list_scope_queues(window.scope)) and all(map(actor.may_somewhere, actions))


def _require_rights(actor: Actor, action: str, kind: str, scope: Sequence[str]) -> None:
    """Raise `PermissionDenied` unless the actor may do it in this scope. Freezes are for administrators."""
    require_permission(actor, action, _list_scope_queues(scope))
    if kind == PlannedWindow.Kind.FREEZE:
        require_permission(actor, "freeze.manage")


def _list_scope_queues(scope: object) -> list[str] | None:
    """Return the queues of a scope; None if it has other subjects, or none."""
    subjects = [str(subject) for subject in scope] if isinstance(scope, list) else []
    if not subjects or not all(subject.startswith("queue/") for subject in subjects):
        return None
    return [subject.partition("/")[2] for subject in subjects]


def describe_window(window: PlannedWindow) -> dict[str, Any]:
    """Return a window's values as JSON, as `plan` reads them."""
    return {
        "name": window.name,
        "kind": window.kind,
        "scope": window.scope,
        "expected": window.expected,
        "loop_mode": window.loop_mode,
        "start": window.local_start,
        "time_zone": window.time_zone,
        "minutes": window.duration_minutes,
        "rrule": window.rule,
    }


def _describe_times(occurrence: WindowOccurrence) -> dict[str, str]:
    return {"starts_at": occurrence.starts_at.isoformat(), "ends_at": occurrence.ends_at.isoformat()}
