"""Definition of planned windows: checked values, and the changes of a window after it was made.

A change applies from then on. A former version of the window keeps its past occurrences as they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User

from common import checks
from common.errors import BadInput
from workers.windows import occurrences
from workers.windows.models import PlannedWindow
from workers.windows.occurrences import MAX_EXTENSION, WindowOccurrence
from workers.windows.recurrence import MAX_YEARS, Recurrence, add_elapsed, read_recurrence, read_time_zone
from workers.windows.scope import KINDS

MAX_NAME, MAX_SUBJECTS, MAX_WINDOWS = 80, 50, 500
MAX_MINUTES = 31 * 24 * 60
FIELDS = ("name", "kind", "scope", "expected", "loop_mode", "start", "time_zone", "minutes", "rrule")
Kind, LoopMode = PlannedWindow.Kind, PlannedWindow.LoopMode


@dataclass(frozen=True)
class WindowDefinition:
    """Checked values of a window."""

    name: str
    kind: str
    scope: Sequence[str]
    expected: Sequence[Mapping[str, str]]
    loop_mode: str
    recurrence: Recurrence
    minutes: int


def read_definition(
    fields: Mapping[str, Any], expected: Sequence[Mapping[str, str]], now: datetime
) -> WindowDefinition:
    """Return checked values. expected: the checked matchers. Raises `BadInput` that names the field."""
    checks.refuse_unknown(fields, FIELDS, "", message="is not a field of a window. The fields are {known}.")
    name = checks.accept_non_empty_text(MAX_NAME).validate(fields.get("name", ""), "name", end=".").strip()
    kind = checks.accept_choice(Kind.values).validate(fields.get("kind", Kind.MAINTENANCE), "kind", end=".")
    mode = fields.get("loop_mode", LoopMode.UNCHANGED)
    loop_mode = checks.accept_choice(LoopMode.values).validate(mode, "loop_mode", end=".")
    scope = read_scope(fields.get("scope", []))
    _check_kind(kind, scope, expected, loop_mode)
    time_zone = read_time_zone(fields.get("time_zone", "UTC"))
    start = read_local_time(fields.get("start"), time_zone, now)
    recurrence = read_recurrence(start, time_zone, fields.get("rrule", ""))
    minutes = checks.accept_whole_number(1, MAX_MINUTES).validate(fields.get("minutes"), "minutes", end=".")
    return WindowDefinition(name, kind, scope, expected, loop_mode, recurrence, int(minutes))


def _check_kind(kind: str, scope: Sequence[str], expected: Sequence[Mapping[str, str]], loop_mode: str) -> None:
    if kind == Kind.SILENCE:
        if scope or loop_mode != LoopMode.UNCHANGED:
            raise BadInput("scope", "must be empty for a recurring silence, which only has matchers.")
        if not expected:
            raise BadInput("expected", "is missing. A recurring silence needs a matcher.")
    elif not scope:
        raise BadInput("scope", "is missing. Name subjects, such as queue/alert, or plant/main for the whole plant.")
    if kind == Kind.FREEZE and expected:
        raise BadInput("expected", "must be empty for a change freeze, which silences no alerts.")


def read_scope(scope: object) -> list[str]:
    """Return the checked subjects, each once. Raises `BadInput` that names scope."""
    if not isinstance(scope, list) or len(scope) > MAX_SUBJECTS:
        raise BadInput("scope", f"must be a list of at most {MAX_SUBJECTS} subjects, such as queue/alert.")
    for subject in scope:
        kind, _, name = subject.partition("/") if isinstance(subject, str) else ("", "", "")
        if kind not in KINDS or not checks.NAME.fullmatch(name):
            shown = checks.shorten_for_message(subject)
            raise BadInput("scope", f"must be {', '.join(KINDS)} with a name, such as queue/alert, not {shown}.")
    return list(dict.fromkeys(scope))


def read_local_time(text: object, time_zone: str, now: datetime) -> datetime:
    """Return a local time without a zone. A time with an offset is converted. Raises `BadInput` that names start."""
    try:
        at = datetime.fromisoformat(text.strip()) if isinstance(text, str) else None
    except ValueError:
        at = None
    if at is None:
        raise BadInput("start", "must be a local time such as 2026-11-22T02:00.")
    if at.tzinfo is not None:
        at = at.astimezone(ZoneInfo(time_zone)).replace(tzinfo=None)
    if abs(at.year - now.year) > MAX_YEARS:
        raise BadInput("start", f"must be at most {MAX_YEARS} years before or after today, not {at:%Y-%m-%d}.")
    return at.replace(microsecond=0, fold=0)


def build_window(
    definition: WindowDefinition, now: datetime, exceptions: Sequence[str] = (), event_uid: str = ""
) -> PlannedWindow:
    """Return a window without an owner, not saved. exceptions: local starts that don't occur.

    Raises `BadInput` that names start if the window is over.
    """
    window = PlannedWindow(event_uid=event_uid, created_at=now)
    _set_values(window, definition, dict.fromkeys(exceptions))
    _require_occurrence(window, now)
    return window


def _set_values(window: PlannedWindow, definition: WindowDefinition, exceptions: Mapping[str, str | None]) -> None:
    recurrence = definition.recurrence
    window.name, window.kind, window.loop_mode = definition.name, definition.kind, definition.loop_mode
    window.scope, window.expected = list(definition.scope), list(definition.expected)
    window.local_start, window.rule = recurrence.start.isoformat(), recurrence.rule
    window.time_zone, window.duration_minutes = recurrence.time_zone, definition.minutes
    window.exceptions = dict(exceptions)
    window.last_end = None
    if (last_start := recurrence.find_last_start()) is not None:
        ends = [datetime.fromisoformat(end) for end in exceptions.values() if end]
        window.last_end = max([add_elapsed(recurrence.convert_to_instant(last_start), window.duration), *ends])


def _require_occurrence(window: PlannedWindow, now: datetime) -> None:
    if not occurrences.list_next(window, now, 1):
        raise BadInput("start", "has no later occurrence. Choose a later time.")


def add(window: PlannedWindow, owner: User, reason: str, now: datetime) -> PlannedWindow:
    """Save a window of `build_window`. reason: checked. Raises `BadInput` if there are too many windows."""
    if occurrences.list_current_windows(now).count() >= MAX_WINDOWS:
        raise BadInput("name", f"exceeds the limit: there are {MAX_WINDOWS} windows. End one first.")
    window.owner, window.reason = owner, reason
    window.save()
    return window


def change(window: PlannedWindow, definition: WindowDefinition, by: User | None, now: datetime) -> None:
    """Replace the values of a window from now on. It must be locked, and its version be that of the change.

    A former version, which ends now, keeps the past. Raises `BadInput` that names start if there is no later
    occurrence.
    """
    former = PlannedWindow.objects.get(pk=window.pk)
    former.pk, former.created_at, former.changed_at = None, former.valid_since, None
    former.successor, former.ended_at, former.ended_by = window, now, by
    former.version = window.version - 1
    former.save(force_insert=True)
    _set_values(window, definition, _keep_exceptions(window, definition.recurrence, now))
    window.changed_at = now
    _require_occurrence(window, now)
    window.save()


def _keep_exceptions(window: PlannedWindow, recurrence: Recurrence, now: datetime) -> dict[str, str | None]:
    """Return the exceptions of a window after a change of its recurrence.

    An occurrence with the same start keeps its end. An occurrence that was canceled or ended stays so if it now starts
    at another time of its day.
    """
    kept: dict[str, str | None] = {}
    for local_start, end in window.exceptions.items():
        start = datetime.fromisoformat(local_start)
        at = recurrence.convert_to_instant(start)
        starts = recurrence.list_starts(at, at)  # of this day
        if start in starts and recurrence.time_zone == window.time_zone:
            kept[local_start] = end
        elif end is None or datetime.fromisoformat(end) <= now:
            kept |= {moved.isoformat(): None for moved in starts}
    return kept


def end(window: PlannedWindow, by: User | None, now: datetime) -> bool:
    """End a window with all its later occurrences; return False if it had ended."""
    if not list_current(window, now):
        return False
    return bool(PlannedWindow.objects.filter(pk=window.pk, ended_at=None).update(ended_at=now, ended_by=by))


def list_current(window: PlannedWindow, now: datetime) -> list[WindowOccurrence]:
    """Return the occurrence that is active or the next one; empty if the window is over."""
    return occurrences.list_next(window, now, 1)


def find_occurrence(window: PlannedWindow, local_start: str, now: datetime) -> WindowOccurrence:
    """Return an occurrence that has not ended. Raises `BadInput` that names occurrence."""
    try:
        start = datetime.fromisoformat(local_start)
    except ValueError:
        raise BadInput("occurrence", "must be the local start of an occurrence, such as 2026-11-22T02:00:00.") from None
    if abs(start.year - now.year) > MAX_YEARS:
        raise BadInput("occurrence", f"must be at most {MAX_YEARS} years before or after today, not {start:%Y-%m-%d}.")
    at = occurrences.get_recurrence(window).convert_to_instant(start)
    for row in occurrences.list_between(window, at, at + timedelta(seconds=1)):
        if row.local_start == start.isoformat() and row.ends_at > now:
            return row
    raise BadInput(
        "occurrence",
        f"{local_start[:30]} is not the start of a current or later occurrence. Choose one of the listed occurrences.",
    )


def end_occurrence(window: PlannedWindow, occurrence: WindowOccurrence, now: datetime) -> None:
    """End an active occurrence now, or cancel a later one. The window must be locked."""
    ends = now.isoformat() if occurrence.is_active(now) else None
    _change_end(window, occurrence, ends)


def extend_occurrence(window: PlannedWindow, occurrence: WindowOccurrence, until: datetime) -> None:
    """Set a later end of an occurrence. The window must be locked. Raises `BadInput` that names expires_at."""
    planned_end = add_elapsed(occurrence.starts_at, window.duration)
    if until <= occurrence.ends_at:
        raise BadInput("expires_at", "must be later than the current end. To shorten a window, end it.")
    if until > planned_end + MAX_EXTENSION:
        raise BadInput("expires_at", f"must be at most {MAX_EXTENSION.days} days after the planned end.")
    _change_end(window, occurrence, until.isoformat())
    if window.last_end is not None and until > window.last_end:
        window.last_end = until
        window.save(update_fields=["last_end"])


def _change_end(window: PlannedWindow, occurrence: WindowOccurrence, ends: str | None) -> None:
    window.exceptions = {**window.exceptions, occurrence.local_start: ends}
    window.save(update_fields=["exceptions"])
