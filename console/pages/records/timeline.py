"""The timeline: everything on one time axis; each instant can be shown, marked, and exported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from common.files import iterate_csv_text
from console.accounts.access import actor_of
from console.actions import marks, shared_links
from console.actions.exports import CSV, format_query, record_export, stream_download
from console.audit import audit_log
from console.connections.control_server import control
from console.input.form_values import parse_row_id, parse_time
from console.models import Mark, SharedLink
from console.pages.frame.frame import snapshot_of
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    read_or,
    render_page,
    render_rejected,
    text_of,
)
from console.timeline import export
from console.timeline.view import PlantMoment, Timeline, build_timeline, load_plant_at, read_time_zone, style_sheet
from console.timeline.window import PRESETS, Window, parse_window
from console.web.template_context import TemplateContext, render_context_text
from workers.windows.occurrences import WindowOccurrence, list_coming

# The picture moves by about a pixel in this share of its length, so it need not be drawn more often.
REFRESH_SHARE = 1 / 720
MIN_REFRESH_SECONDS = 5
MAX_MARKS, MAX_COMING = 200, 5


@dataclass(frozen=True, kw_only=True)
class TimelinePage(FormPage):
    """A time window. shown: None while the control server is unreachable."""

    TEMPLATE, NAME = "records/timeline.html", "timeline"

    window: Window
    presets: Mapping[int, str]
    shown: Timeline | None
    plant: PlantMoment
    refresh_seconds: int
    steps: Mapping[str, Window]  # targets of the buttons
    resume_minutes: int  # the live range nearest in length
    marks: Sequence[Mark]
    older_marks: int  # number that is not listed
    may_share: bool
    coming: Sequence[WindowOccurrence]  # the next planned windows
    links: Sequence[tuple[SharedLink, str]]  # active links with addresses, if may_share


@dataclass(frozen=True, kw_only=True)
class TimelineDocument(TemplateContext):
    """The timeline as one file. style: its style sheets, since it may be opened without a console."""

    TEMPLATE = "records/timeline_document.html"

    window: Window
    shown: Timeline | None
    plant: PlantMoment
    marks: Sequence[Mark]
    older_marks: int
    style: str
    zone: ZoneInfo
    made_at: datetime
    made_by: str
    origin: str  # the address of the timeline
    origin_root: str  # prefix of a path there


@declare_page("plant.view")
def timeline_page(request: HttpRequest) -> HttpResponse:
    """Show the window that the address requests."""
    now, wrong = timezone.now(), dict[str, Sequence[str]]()
    window = _read_window(request.GET, now, wrong)
    listed, older = marks.list_newest_marks(window.since, window.until, MAX_MARKS)
    may_share = shared_links.may_share(actor_of(request))
    links = shared_links.open_at(now) if may_share else ()
    page = TimelinePage(
        window=window,
        presets=PRESETS,
        shown=_load_timeline(request, window),
        plant=load_plant_at(window, settings.WEIR_DATA, snapshot_of(request)),
        refresh_seconds=max(MIN_REFRESH_SECONDS, round(window.seconds * REFRESH_SHARE)),
        steps={
            "earlier": window.shift(-0.5, now),
            "later": window.shift(0.5, now),
            "closer": window.zoom(0.5, now),
            "wider": window.zoom(2.0, now),
        },
        resume_minutes=min(PRESETS, key=lambda minutes: abs(minutes * 60 - window.seconds)),
        marks=listed,
        older_marks=older,
        may_share=may_share,
        coming=list_coming(now, MAX_COMING),
        links=[(link, request.build_absolute_uri(shared_links.format_link_address(link))) for link in links],
        errors=wrong,
    )
    return render_page(request, page, "frame")


def _load_timeline(request: HttpRequest, window: Window) -> Timeline | None:
    zone = read_time_zone(request.COOKIES)
    return read_or(None, lambda: build_timeline(window, control(), settings.WEIR_DATA, zone))


def _read_window(query: Mapping[str, str], now: datetime, errors: dict[str, Sequence[str]]) -> Window:
    """Return the requested window; the default window and an error if the address is invalid."""
    try:
        return parse_window(query, now)
    except BadInput as error:
        errors[error.field] = [error.message]
        return parse_window({}, now)


@declare_page("plant.view")
def table(request: HttpRequest) -> HttpResponseBase:
    """Return the window as CSV: `what` is figures or events."""
    what = request.GET.get("what", "figures")
    try:
        window = parse_window(request.GET, timezone.now())
        header, pages = export.build_table(what, window, control(), settings.WEIR_DATA)
        # Checked before the file starts: a row that can't be read later only truncates the file.
        control().ping()
    except BadInput as error:
        return render_rejected(request, timeline_page, {error.field: [error.message]})
    except redis.RedisError as error:
        errors = {"control": [f"is not responding ({error}). Try again in a moment."]}
        return render_rejected(request, timeline_page, errors, 503)
    listed = record_export(request, f"timeline-{what}", pages, window=_format_file_time(window))
    return stream_download(
        request, iterate_csv_text(header, listed), f"weir-{what}-{_format_file_time(window)}.csv", CSV
    )


@declare_page("plant.view")
def document(request: HttpRequest) -> HttpResponse:
    """Return the window as one self-contained HTML file."""
    errors: dict[str, Sequence[str]] = {}
    window = _read_window(request.GET, timezone.now(), errors)
    if errors:
        return render_rejected(request, timeline_page, errors)
    zone = read_time_zone(request.COOKIES)
    plant = load_plant_at(window, settings.WEIR_DATA, snapshot_of(request))
    listed, older = marks.list_newest_marks(window.since, window.until, MAX_MARKS)
    with timezone.override(zone):
        context = TimelineDocument(
            window=window,
            shown=_load_timeline(request, window),
            plant=plant,
            marks=listed,
            older_marks=older,
            style=style_sheet(),
            zone=zone,
            made_at=timezone.now(),
            made_by=actor_of(request).name,
            origin=request.build_absolute_uri(reverse("timeline")),
            origin_root=request.build_absolute_uri("/").rstrip("/"),
        )
        text = render_context_text(context)
    said = {"filter": format_query(request), "window": _format_file_time(window), "bytes": len(text.encode())}
    audit_log.record(actor_of(request), "export.timeline-document", request.path, after=said)
    response = HttpResponse(text)
    response["Content-Disposition"] = f'attachment; filename="weir-timeline-{_format_file_time(window)}.html"'
    return response


def _format_file_time(window: Window) -> str:
    return f"{window.since:%Y%m%dT%H%M%S}-{window.until:%Y%m%dT%H%M%S}"


@declare_action("mark.add", timeline_page)
def mark_add(request: HttpRequest) -> ActionResult:
    """Add a mark. Posted: kind, title, text, at, until (empty: an instant)."""
    posted = request.POST
    given: dict[str, Any] = {name: posted.get(name, "") for name in ("title", "text")}
    given |= {name: parse_time(posted[name], name) for name in ("at", "until") if posted.get(name, "").strip()}
    kind = posted.get("kind") or Mark.Kind.NOTE
    mark = marks.add(actor_of(request), now=timezone.now(), kind=kind, **given)
    return ActionResult(f"Mark {mark.title} added.", reverse("timeline"), {"mark": mark.pk})


@declare_action("mark.remove", timeline_page)
def mark_remove(request: HttpRequest) -> ActionResult:
    """Remove a mark. Posted: mark (its number), reason."""
    number = text_of(request, "mark", "Choose the mark to remove")
    mark = get_object_or_404(Mark, pk=parse_row_id(number) or 0)
    marks.remove(actor_of(request), mark, reason=request.POST.get("reason", ""), now=timezone.now())
    return ActionResult(f"Mark {mark.title} removed.", reverse("timeline"))
