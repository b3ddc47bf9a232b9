"""Import of planned windows from a calendar: a preview of what would be created, and the import."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils import timezone
from django.views.decorators.http import require_POST

from common.errors import BadInput
from console.accounts.access import actor_of, requires
from console.actions import windows
from console.actions.windows import ImportPreview
from console.pages.alerts.silences import MatcherRow, build_matcher_rows, read_matchers
from console.pages.alerts.window_form import LOOP_MODES, list_kinds, list_subjects
from console.pages.alerts.windows import format_frequency
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    open_page,
    render_page,
    render_rejected,
)
from controllers.framework.reason import format_count
from workers.alerts.rules import rules
from workers.calendars.fetching import MAX_BYTES, fetch_calendar
from workers.windows.calendar_import import CalendarWindow
from workers.windows.models import PlannedWindow


@dataclass(frozen=True)
class ImportLine:
    """An event of the calendar in words. error: why no window is created; "": one is."""

    name: str
    first: str
    repeats: str
    rule: str
    minutes: int
    error: str


@dataclass(frozen=True, kw_only=True)
class WindowImportPage(FormPage):
    """The form of an import, and the preview of a calendar. lines: None before a calendar was read.

    shared, events: the values that the import posts.
    """

    TEMPLATE, NAME = "alerts/window_import.html", "windows"

    lines: list[ImportLine] | None
    broken: list[str]
    count: int
    events: str
    shared: str
    kind: str
    scope: Collection[str]
    loop_mode: str
    rows: list[MatcherRow]
    labels: Collection[str]
    operators: Collection[str]
    kinds: Collection[tuple[str, str]]
    loop_modes: Collection[tuple[str, str]]
    subjects: Collection[tuple[str, str]]


@declare_page("window.set")
def import_page(request: HttpRequest) -> HttpResponse:
    return _render_import(request, get_rejected_form(request).submitted, None)


@require_POST
@requires("window.set")
def preview(request: HttpRequest) -> HttpResponse:
    """Show what an import would create. Posted: file or url, kind, scope, matchers, loop_mode. Nothing is changed."""
    try:
        text = _read_calendar(request)
        found = windows.preview_import(actor_of(request), text, _read_shared(request.POST), now=timezone.now())
    except BadInput as error:
        return render_rejected(request, import_page, {error.field: [error.message]})
    return _render_import(request, request.POST, found)


@declare_action("window.set", import_page)
def add(request: HttpRequest) -> ActionResult:
    """Import the windows of a preview. Posted: events and shared (JSON of the preview), reason."""
    try:
        events = [CalendarWindow(**row) for row in json.loads(request.POST.get("events", ""))]
        shared = dict(json.loads(request.POST.get("shared", "")))
    except (ValueError, TypeError):
        raise BadInput("events", "can't be read. Preview the calendar again.") from None
    reason = request.POST.get("reason", "")
    made = windows.import_windows(actor_of(request), events, shared, reason=reason, now=timezone.now())
    return open_page(f"{format_count(len(made), 'window')} imported.", "windows")


def _read_calendar(request: HttpRequest) -> bytes:
    """Return the text of the posted file, or of the posted address. Raises `BadInput`."""
    file, url = request.FILES.get("file"), request.POST.get("url", "").strip()
    if (file is None) == (not url):
        raise BadInput("calendar", "is ambiguous or missing. Choose a file or enter an address.")
    if file is None:
        return fetch_calendar(url, "url")
    text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise BadInput("calendar", f"must have at most {MAX_BYTES:,} bytes.")
    return bytes(text)


def _read_shared(posted: QueryDict) -> dict[str, Any]:
    kind = posted.get("kind", "")
    is_freeze, is_silence = (kind == value for value in (PlannedWindow.Kind.FREEZE, PlannedWindow.Kind.SILENCE))
    return {
        "kind": kind,
        "scope": [] if is_silence else posted.getlist("scope"),
        "loop_mode": "unchanged" if is_silence else posted.get("loop_mode", "unchanged"),
        "expected": [] if is_freeze else read_matchers(posted),
    }


def _render_import(request: HttpRequest, posted: QueryDict, found: ImportPreview | None) -> HttpResponse:
    importable = found.importable if found else []
    page = WindowImportPage(
        lines=None
        if found is None
        else [
            ImportLine(
                row.event.name,
                f"{row.event.start.replace('T', ' ')[:16]} {row.event.time_zone}",
                format_frequency(row.event.rrule),
                row.event.rrule,
                row.event.minutes,
                row.error,
            )
            for row in found.windows
        ],
        broken=found.broken if found else [],
        count=len(importable),
        events=json.dumps([asdict(row.event) for row in importable]),
        shared=json.dumps(_read_shared(posted)) if found else "",
        kind=posted.get("kind", "maintenance"),
        scope=posted.getlist("scope"),
        loop_mode=posted.get("loop_mode", "unchanged"),
        rows=build_matcher_rows(read_matchers(posted)),
        labels=rules.LABELS,
        operators=rules.OPERATORS,
        kinds=list_kinds(actor_of(request).may_somewhere("freeze.manage")),
        loop_modes=LOOP_MODES,
        subjects=list_subjects(request),
    )
    return render_page(request, page, "frame")
