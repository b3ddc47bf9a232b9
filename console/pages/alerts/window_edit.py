"""Change of a planned window, from now on."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions import windows
from console.input.form_values import parse_whole_number
from console.pages.alerts.window_form import WindowFormFields, collect_form_values, read_posted_fields
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    open_page,
    render_page,
)
from workers.windows import definitions
from workers.windows.models import PlannedWindow


@dataclass(frozen=True, kw_only=True)
class WindowEditPage(WindowFormFields, FormPage):
    """The form of a window that exists. version: the one that the form was filled in from."""

    TEMPLATE, NAME = "alerts/window_edit.html", "windows"

    window: PlannedWindow
    version: str
    is_over: bool
    may_change: bool


@declare_page("window.set")
def edit_page(request: HttpRequest, window_id: int) -> HttpResponse:
    window = _find_window(window_id)
    times = {"date": window.local_start[:10], "time": window.local_start[11:16]}
    page = WindowEditPage(
        window=window,
        version=get_rejected_form(request).submitted.get("version", str(window.version)),
        is_over=not definitions.list_current(window, timezone.now()),
        may_change=windows.may_change(actor_of(request), window),
        **collect_form_values(request, window, times),
    )
    return render_page(request, page, "frame")


@declare_action("window.set", edit_page)
def change(request: HttpRequest, window_id: int) -> ActionResult:
    """Change a window. Posted: version, reason, and what a new window has."""
    window, fields = _find_window(window_id), read_posted_fields(request)
    if fields["start"] == window.local_start[:16]:
        fields["start"] = window.local_start  # which may have seconds
    version = parse_whole_number(request.POST.get("version", ""), "version")
    changed = windows.change(
        actor_of(request), window, fields, version=version, reason=request.POST.get("reason", ""), now=timezone.now()
    )
    return open_page(f"{changed.name} is changed.", "window", changed.pk)


def _find_window(window_id: int) -> PlannedWindow:
    return get_object_or_404(PlannedWindow.objects.filter(successor=None).select_related("owner"), pk=window_id)
