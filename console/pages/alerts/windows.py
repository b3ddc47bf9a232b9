"""Planned windows: active, coming, and past ones, with the alerts that they silenced."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from common.errors import BadInput
from console.accounts import access, authentication
from console.accounts.access import actor_of, requires
from console.actions import windows
from console.input.form_values import parse_minutes, parse_row_id
from console.pages.alerts.window_form import WindowFormFields, collect_form_values, read_posted_fields
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    open_page,
    read_reason,
    render_page,
    text_of,
)
from workers.alerts.rules import rules
from workers.alerts.rules.expected_alerts import list_silenced
from workers.steering.overrides import Expiry
from workers.windows import calendar_feed, definitions, occurrences
from workers.windows.models import ExpectedAlert, FreezeOverride, PlannedWindow
from workers.windows.occurrences import WindowOccurrence
from workers.windows.scope import format_scope
from workers.windows.status import count_silenced

MAX_ENDED, MAX_NEXT, MAX_SILENCED, MAX_VERSIONS = 25, 5, 100, 20
FREQUENCY_WORDS = {"DAILY": "Daily", "WEEKLY": "Weekly", "MONTHLY": "Monthly", "YEARLY": "Yearly"}


@dataclass(frozen=True)
class ListedWindow:
    """A window; next: its active or next occurrence; silenced: the number of alerts in all occurrences."""

    window: PlannedWindow
    scope: str
    repeats: str
    next: WindowOccurrence | None
    is_active: bool
    silenced: int

    @property
    def local_time(self) -> str:
        """Return the local start of the next occurrence: Sun 2026-03-22 02:00 Europe/Berlin."""
        return format_local_time(self.window, self.next) if self.next else ""


@dataclass(frozen=True)
class ShownOccurrence:
    """An occurrence with its local start in words."""

    row: WindowOccurrence
    local_time: str
    is_active: bool


@dataclass(frozen=True, kw_only=True)
class WindowsPage(WindowFormFields, FormPage):
    """Current and ended windows, and the form of a new one."""

    TEMPLATE, NAME = "alerts/windows.html", "windows"

    current: list[ListedWindow]
    ended: list[ListedWindow]


@dataclass(frozen=True, kw_only=True)
class WindowPage(FormPage):
    """One window: its occurrences, the alerts that it silenced, and who overrides it (freezes).

    former: its earlier versions, newest first. changing_role: the role that changes and ends it.
    """

    TEMPLATE, NAME = "alerts/window.html", "windows"

    listed: ListedWindow
    expected: str
    next: list[ShownOccurrence]
    silenced: list[ExpectedAlert]
    silenced_in_last: int
    overrides: list[FreezeOverride]
    former: list[ListedWindow]
    may_change: bool
    changing_role: str
    may_override: bool


@declare_page("plant.view")
def windows_page(request: HttpRequest) -> HttpResponse:
    """Show the list of windows, and the form; `?from=ID` fills in the values of another window."""
    now = timezone.now()
    current = list(occurrences.list_current_windows(now))
    over = PlannedWindow.objects.filter(successor=None).exclude(pk__in=[window.pk for window in current])
    over = over.select_related("owner")
    template = _find_template(request)
    shown = {"date": f"{now:%Y-%m-%d}", "time": "02:00"}
    page = WindowsPage(
        current=_sort_by_start(_list_windows(current, now)),
        ended=_list_windows(list(over.order_by("-pk")[:MAX_ENDED]), now),
        **collect_form_values(request, template, shown),
    )
    return render_page(request, page, "frame")


def _find_template(request: HttpRequest) -> PlannedWindow | None:
    asked = parse_row_id(request.GET.get("from", ""))
    return None if asked is None else PlannedWindow.objects.filter(pk=asked).first()


def _list_windows(rows: Sequence[PlannedWindow], now: datetime) -> list[ListedWindow]:
    counts: dict[int, int] = {}
    for (window, _), count in count_silenced(rows).items():
        counts[window] = counts.get(window, 0) + count
    return [_build_listed(window, now, counts.get(window.pk, 0)) for window in rows]


def _build_listed(window: PlannedWindow, now: datetime, silenced: int) -> ListedWindow:
    coming = next(iter(occurrences.list_next(window, now, 1)), None)
    return ListedWindow(
        window=window,
        scope=format_scope(window.scope),
        repeats=format_frequency(window.rule),
        next=coming,
        is_active=coming is not None and coming.is_active(now),
        silenced=silenced,
    )


def _sort_by_start(rows: list[ListedWindow]) -> list[ListedWindow]:
    """Return active windows first, then by their next start; windows without another occurrence last."""
    return sorted(rows, key=lambda row: (row.next is None, row.next.starts_at if row.next else row.window.created_at))


def format_frequency(rule: str) -> str:
    """Return how often a window recurs, in a word."""
    parts = dict(part.split("=", 1) for part in rule.split(";") if "=" in part)
    return FREQUENCY_WORDS.get(parts.get("FREQ", ""), "Once")


def format_local_time(window: PlannedWindow, occurrence: WindowOccurrence) -> str:
    """Return the start in the window's time zone: Sun 2026-03-22 02:00 Europe/Berlin."""
    start = occurrence.starts_at.astimezone(ZoneInfo(window.time_zone))
    return f"{start:%a %Y-%m-%d %H:%M} {window.time_zone}"


@declare_page("plant.view")
def window_page(request: HttpRequest, window_id: int) -> HttpResponse:
    now = timezone.now()
    rows = PlannedWindow.objects.filter(successor=None).select_related("owner", "ended_by")
    window = get_object_or_404(rows, pk=window_id)
    listed = _list_windows([window], now)[0]
    silenced = list(list_silenced(window)[:MAX_SILENCED])
    actor = actor_of(request)
    is_freeze = window.kind == PlannedWindow.Kind.FREEZE
    former = list(window.former_versions.select_related("ended_by").order_by("-version")[:MAX_VERSIONS])
    page = WindowPage(
        listed=listed,
        expected=rules.format_matchers(window.expected),
        next=[
            ShownOccurrence(row, format_local_time(window, row), row.is_active(now))
            for row in occurrences.list_next(window, now, MAX_NEXT)
        ],
        silenced=silenced,
        silenced_in_last=sum(row.local_start == silenced[0].local_start for row in silenced) if silenced else 0,
        overrides=list(window.overrides.filter(until__gt=now).select_related("user").order_by("-until")),
        former=_list_windows(former, now),
        may_change=windows.may_change(actor, window),
        changing_role=access.ACTIONS["freeze.manage" if is_freeze else "window.set"],
        may_override=is_freeze and listed.is_active and actor.may_somewhere("freeze.override"),
    )
    return render_page(request, page, "frame")


@require_POST
@requires("plant.view")
def preview(request: HttpRequest) -> HttpResponse:
    """Return the next occurrences of the posted window: {"sentence", "rows": [{"title", "note"}]}."""
    now = timezone.now()
    try:
        fields = {**read_posted_fields(request), "name": "Preview"}
        definition = definitions.read_definition(fields, rules.read_matchers(fields["expected"], "expected"), now)
        window = definitions.build_window(definition, now)
    except BadInput as error:
        return JsonResponse({"sentence": f"{error.field.replace('_', ' ').capitalize()} {error.message}", "rows": []})
    coming = occurrences.list_next(window, now, MAX_NEXT)
    rows = [{"title": format_local_time(window, row), "note": row.note or _format_utc(row)} for row in coming]
    said = "The window occurs once:" if not window.rule else "The next occurrences:"
    return JsonResponse({"sentence": said, "rows": rows})


def _format_utc(row: WindowOccurrence) -> str:
    return f"{row.starts_at:%H:%M} to {row.ends_at:%H:%M} UTC"


@declare_action("window.set", windows_page)
def add(request: HttpRequest) -> ActionResult:
    """Plan a window.

    Posted: name, kind, scope (several), matchers, loop_mode, date, time, time_zone, minutes, rrule, reason.
    """
    made = windows.plan(
        actor_of(request), read_posted_fields(request), reason=request.POST.get("reason", ""), now=timezone.now()
    )
    return open_page(f"{made.name} is planned.", "window", made.pk)


@declare_action("window.end", window_page)
def end(request: HttpRequest, window_id: int) -> ActionResult:
    """End a window with all later occurrences. Posted: reason."""
    window = get_object_or_404(PlannedWindow, pk=window_id)
    ended = windows.end(actor_of(request), window, reason=read_reason(request), now=timezone.now())
    message = f"{window.name} ended." if ended else f"{window.name} had already ended."
    return ActionResult(message, reverse("window", args=[window.pk]))


@declare_action("window.end", window_page)
def end_occurrence(request: HttpRequest, window_id: int) -> ActionResult:
    """End the active occurrence, or cancel a later one. Posted: occurrence (its local start), reason."""
    window, now = get_object_or_404(PlannedWindow, pk=window_id), timezone.now()
    local_start = text_of(request, "occurrence", "Choose an occurrence")
    reason = request.POST.get("reason", "")
    ended = windows.end_occurrence(actor_of(request), window, local_start, reason=reason, now=now)
    message = "Occurrence ended." if ended.is_active(now) else "Occurrence canceled."
    return ActionResult(message, reverse("window", args=[window.pk]))


@declare_action("window.set", window_page)
def extend_occurrence(request: HttpRequest, window_id: int) -> ActionResult:
    """Extend an occurrence. Posted: occurrence (its local start), minutes."""
    window = get_object_or_404(PlannedWindow, pk=window_id)
    local_start = text_of(request, "occurrence", "Choose an occurrence")
    expiry = Expiry(minutes=parse_minutes(request.POST))
    until = windows.extend_occurrence(actor_of(request), window, local_start, expiry, now=timezone.now())
    return ActionResult(f"Extended until {until:%a %H:%M} UTC.", reverse("window", args=[window.pk]))


@declare_action("freeze.override", window_page)
def override(request: HttpRequest, window_id: int) -> ActionResult:
    """Override an active freeze for the user. Posted: minutes, reason."""
    window = get_object_or_404(PlannedWindow, pk=window_id)
    made = windows.override_freeze(
        actor_of(request),
        window,
        minutes=parse_minutes(request.POST),
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
    )
    message = f"You can make changes during {window.name} until {made.until:%H:%M} UTC."
    return ActionResult(message, reverse("window", args=[window.pk]))


@login_not_required
@never_cache
@require_safe
def show_feed(request: HttpRequest) -> HttpResponse:
    """Return the windows as a calendar. Calendar programs send no header: `?token=` is an API token."""
    now, secret = timezone.now(), request.GET.get("token", "")
    try:
        actor = authentication.authenticate_token(secret, now, request.META.get("REMOTE_ADDR"))
    except authentication.TooManyFailures as error:
        refused = HttpResponse(str(error), status=429, content_type="text/plain; charset=utf-8")
        refused["Retry-After"] = str(error.seconds)
        return refused
    if actor is None or not actor.may("plant.view"):
        raise Http404("The address is unknown, or its token has expired.")
    response = HttpResponse(calendar_feed.build_current_feed(now), content_type=calendar_feed.CONTENT_TYPE)
    response["Referrer-Policy"] = "no-referrer"
    return response
