"""Planned windows: maintenance windows, change freezes, and recurring silences; planned, imported, changed, ended."""

from datetime import datetime
from typing import Annotated, TypedDict

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from common.errors import BadInput
from common.stored_document import Time, describe
from console.actions import windows
from console.actions.windows import ImportPreview
from console.api.request.answers import Created, Router, build_answer, build_file_schema, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, Reason, RequestBody
from console.input.form_values import Id
from workers.alerts.rules.expected_alerts import list_silenced
from workers.calendars.fetching import fetch_calendar
from workers.steering.overrides import Expiry
from workers.windows import calendar_feed, occurrences
from workers.windows.calendar_import import CalendarWindow
from workers.windows.models import FreezeOverride, PlannedWindow
from workers.windows.occurrences import WindowOccurrence

router = Router(tags=["windows"])
MAX_ROWS, MAX_NEXT = 500, 10
Subjects = Annotated[list[str], describe('Subjects such as "queue/alert", "node/n1", or "plant/main".')]
Kind = Annotated[str, describe(values=PlannedWindow.Kind.values)]
LoopMode = Annotated[str, describe("Mode of the loops in the scope.", values=PlannedWindow.LoopMode.values)]
LocalTime = Annotated[str, describe("Local time in `time_zone`, without an offset.")]


class OccurrenceRow(TypedDict):
    """An occurrence of a window."""

    occurrence: Annotated[str, describe("Local start, which identifies the occurrence.")]
    starts_at: Time
    ends_at: Time
    active: bool
    note: Annotated[str, describe("The effect of a clock change on this occurrence; empty: none.")]


class WindowRow(TypedDict):
    """A planned window, and its next occurrences."""

    id: int
    name: str
    kind: Kind
    scope: Subjects
    expected: Annotated[list[dict[str, str]], describe("Matchers that alerts in the scope must also match.")]
    loop_mode: LoopMode
    start: LocalTime
    time_zone: str
    minutes: int
    rrule: Annotated[str, describe("Recurrence rule of RFC 5545; empty: the window occurs once.")]
    version: Annotated[
        int, describe("Version of the window, which increases with each change. A change must name the newest version.")
    ]
    owner: str
    reason: str
    created_at: Time
    changed_at: Annotated[Time | None, describe("Time of the last change; null: never changed.")]
    ended_at: Time | None
    next: Annotated[list[OccurrenceRow], describe("At most 10 occurrences that have not ended.")]


class WindowList(TypedDict):
    windows: list[WindowRow]


class SilencedAlert(TypedDict):
    """An alert that an occurrence silenced."""

    alert: int
    title: str
    state: str
    occurrence: str
    at: Time


class WindowDetail(WindowRow):
    """A window with the alerts that it has silenced, newest first."""

    silenced: list[SilencedAlert]


class WindowEnd(TypedDict):
    ended: bool


class OccurrenceEnd(TypedDict):
    occurrence: str
    ends_at: Annotated[Time | None, describe("End of the occurrence; null: it was canceled.")]


class OverrideOfFreeze(TypedDict):
    window: int
    until: Time


class SharedFields(RequestBody):
    """kind: maintenance, freeze, or silence (which has matchers only); scope: subjects; expected: matchers.

    loop_mode: unchanged, advise, or hold.
    """

    kind: str = PlannedWindow.Kind.MAINTENANCE
    scope: list[str] = []
    expected: list[dict[str, str]] = []
    loop_mode: str = PlannedWindow.LoopMode.UNCHANGED


class NewWindow(SharedFields):
    """start: local time in time_zone, such as 2026-11-22T02:00; rrule: such as FREQ=WEEKLY;BYDAY=SU."""

    name: str
    start: str
    time_zone: str = "UTC"
    minutes: int
    rrule: str = ""
    reason: str


class WindowChange(RequestBody):
    """version: that of the window; if there is a newer one, the request is rejected. Omitted fields don't change."""

    version: int
    name: str | None = None
    kind: str | None = None
    scope: list[str] | None = None
    expected: list[dict[str, str]] | None = None
    loop_mode: str | None = None
    start: str | None = None
    time_zone: str | None = None
    minutes: int | None = None
    rrule: str | None = None
    reason: str


class OccurrenceChoice(RequestBody):
    """occurrence: local start of the occurrence, as `next` has it."""

    occurrence: str
    reason: str = ""


class OccurrenceExtension(RequestBody):
    """occurrence: local start; minutes (added to its end) or expires_at."""

    occurrence: str
    minutes: float | None = None
    expires_at: GivenTime | None = None


class FreezeOverrideRequest(RequestBody):
    minutes: float
    reason: str


class CalendarSource(SharedFields):
    """calendar: the text of an iCalendar file, or url: the address of one."""

    calendar: str = ""
    url: str = ""


class CalendarEvent(RequestBody):
    """An event of a calendar, as the preview returns it."""

    uid: str
    name: str
    start: str
    time_zone: str
    minutes: int
    rrule: str = ""
    exceptions: list[str] = []


class CalendarImport(SharedFields):
    events: list[CalendarEvent]
    reason: str


class ImportRow(TypedDict):
    """An event that an import creates a window for. error: why it can't; empty: it can."""

    event: CalendarWindow
    error: str


class ImportAnswer(TypedDict):
    """The windows that an import would create, and the events that can't be read."""

    windows: list[ImportRow]
    broken: list[str]


@router.get("/windows", summary="List planned windows")
def list_windows(request: HttpRequest, state: str = "current") -> WindowList:
    """Return the windows by `state`: current (active or coming), or all (newest first)."""
    actor_for(request, "plant.view")
    now = timezone.now()
    if state not in ("current", "all"):
        raise BadInput("state", f"must be current or all, not {state[:40]!r}.")
    rows = occurrences.list_current_windows(now) if state == "current" else query_windows().order_by("-pk")
    return {"windows": [build_window_row(window, now) for window in rows[:MAX_ROWS]]}


@router.get(
    "/windows/calendar",
    summary="Get the planned windows as an iCalendar feed",
    openapi_extra=build_file_schema("The windows as an iCalendar file.", calendar_feed.CONTENT_TYPE),
)
def get_windows_calendar(request: HttpRequest) -> HttpResponse:
    actor_for(request, "plant.view")
    return HttpResponse(calendar_feed.build_current_feed(timezone.now()), content_type=calendar_feed.CONTENT_TYPE)


@router.post("/windows", summary="Plan a maintenance window, a change freeze, or a recurring silence")
def plan_window(request: HttpRequest, body: NewWindow) -> Created[WindowRow]:
    actor, now = actor_for(request, "window.set"), timezone.now()
    fields = body.dict()
    return build_window_row(windows.plan(actor, fields, reason=fields.pop("reason"), now=now), now)


@router.post("/windows/import/preview", summary="Preview the import of planned windows from a calendar")
def preview_window_import(request: HttpRequest, body: CalendarSource) -> ImportAnswer:
    """Return what an import would create. Nothing is changed."""
    actor = actor_for(request, "window.set")
    if bool(body.calendar) == bool(body.url):
        raise BadInput("calendar", "is ambiguous or missing. Give one of: a calendar, or its address (`url`).")
    text = fetch_calendar(body.url, "url") if body.url else body.calendar.encode()
    shared = body.dict(include=set(windows.SHARED_FIELDS))
    return _build_import_answer(windows.preview_import(actor, text, shared, now=timezone.now()))


@router.post("/windows/import", summary="Import planned windows from the events of a preview")
def import_windows(request: HttpRequest, body: CalendarImport) -> Created[WindowList]:
    actor, now = actor_for(request, "window.set"), timezone.now()
    events = [CalendarWindow(**event.dict()) for event in body.events]
    shared = body.dict(include=set(windows.SHARED_FIELDS))
    made = windows.import_windows(actor, events, shared, reason=body.reason, now=now)
    return {"windows": [build_window_row(window, now) for window in made]}


@router.get("/windows/{window_id}", summary="Get a planned window and the alerts that it silenced")
def get_window(request: HttpRequest, window_id: Id) -> WindowDetail:
    actor_for(request, "plant.view")
    window = find_window(window_id)
    silenced: list[SilencedAlert] = [
        {
            "alert": row.alert_id,
            "title": row.alert.title,
            "state": row.alert.state,
            "occurrence": row.local_start,
            "at": row.at,
        }
        for row in list_silenced(window)[:MAX_ROWS]
    ]
    return {**build_window_row(window, timezone.now()), "silenced": silenced}


@router.post("/windows/{window_id}/change", summary="Change a planned window from now on")
def change_window(request: HttpRequest, window_id: Id, body: WindowChange) -> WindowRow:
    """Change the given fields. Past occurrences stay as they were; an active one continues with the new values."""
    actor, now = actor_for(request, "window.set"), timezone.now()
    fields = body.dict(exclude_none=True)
    version, reason = fields.pop("version"), fields.pop("reason")
    changed = windows.change(actor, find_window(window_id), fields, version=version, reason=reason, now=now)
    return build_window_row(changed, now)


@router.post("/windows/{window_id}/end", summary="End a planned window with all later occurrences")
def end_window(request: HttpRequest, window_id: Id, body: Reason) -> WindowEnd:
    actor = actor_for(request, "window.end")
    return {"ended": windows.end(actor, find_window(window_id), reason=body.reason, now=timezone.now())}


@router.post("/windows/{window_id}/occurrences/end", summary="End an active occurrence, or cancel a later one")
def end_window_occurrence(request: HttpRequest, window_id: Id, body: OccurrenceChoice) -> OccurrenceEnd:
    actor, now = actor_for(request, "window.end"), timezone.now()
    window = find_window(window_id)
    ended = windows.end_occurrence(actor, window, body.occurrence, reason=body.reason, now=now)
    return {"occurrence": ended.local_start, "ends_at": now if ended.is_active(now) else None}


@router.post("/windows/{window_id}/occurrences/extend", summary="Extend an occurrence of a planned window")
def extend_window_occurrence(request: HttpRequest, window_id: Id, body: OccurrenceExtension) -> OccurrenceEnd:
    actor = actor_for(request, "window.set")
    expiry = Expiry(minutes=body.minutes, expires_at=body.expires_at)
    until = windows.extend_occurrence(actor, find_window(window_id), body.occurrence, expiry, now=timezone.now())
    return {"occurrence": body.occurrence, "ends_at": until}


@router.post("/windows/{window_id}/override", summary="Override an active change freeze for some minutes")
def override_freeze(request: HttpRequest, window_id: Id, body: FreezeOverrideRequest) -> OverrideOfFreeze:
    actor = actor_for(request, "freeze.override")
    made: FreezeOverride = windows.override_freeze(
        actor, find_window(window_id), minutes=body.minutes, reason=body.reason, now=timezone.now()
    )
    return {"window": window_id, "until": made.until}


def query_windows() -> QuerySet[PlannedWindow]:
    return PlannedWindow.objects.filter(successor=None).select_related("owner")


def find_window(window_id: int) -> PlannedWindow:
    message = f"Planned window {window_id} is unknown. GET /api/v1/windows lists the windows."
    return get_or_404(query_windows(), message, pk=window_id)


def build_window_row(window: PlannedWindow, now: datetime) -> WindowRow:
    return build_answer(
        WindowRow,
        window,
        owner=window.owner.get_username(),
        start=window.local_start,
        minutes=window.duration_minutes,
        rrule=window.rule,
        next=[_build_occurrence_row(row, now) for row in occurrences.list_next(window, now, MAX_NEXT)],
    )


def _build_occurrence_row(row: WindowOccurrence, now: datetime) -> OccurrenceRow:
    return build_answer(OccurrenceRow, row, occurrence=row.local_start, active=row.is_active(now))


def _build_import_answer(preview: ImportPreview) -> ImportAnswer:
    rows: list[ImportRow] = [{"event": row.event, "error": row.error} for row in preview.windows]
    return {"windows": rows, "broken": preview.broken}
