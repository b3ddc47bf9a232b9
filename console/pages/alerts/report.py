"""The weekly report as it is sent by mail, on a printable page."""

from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.access import requires
from console.input.form_values import iso, time_of
from console.pages.frame.page import ConsolePage, Errors, render_page
from queues.errors import BadInput
from workers.alerts.lifecycle.models import Receiver
from workers.reports.sending import due_at
from workers.reports.week import LENGTH, WeekReport, week
from workers.steering import plant_settings


@dataclass(frozen=True, kw_only=True)
class ReportPage(ConsolePage):
    """A week, and links to the weeks around it. later: None for the current week."""

    TEMPLATE, NAME = "alerts/report.html", "alerts"

    report: WeekReport
    earlier: str
    later: str | None
    sent_at: datetime  # of the week that was sent last
    receivers: list[str]  # receivers that request it
    errors: Errors


@require_safe
@requires("plant.view")
def report(request: HttpRequest) -> HttpResponse:
    """Show the report of the seven days before `?until=2026-11-23T07:00:00Z`, or else before now."""
    now = timezone.now()
    errors: dict[str, list[str]] = {}
    until = now
    if text := request.GET.get("until", "").strip():
        try:
            until = min(now, time_of(text, "until"))
        except BadInput as error:
            errors = {error.field: [error.message]}
    asking = Receiver.objects.filter(gets_reports=True, enabled=True).order_by("name")
    page = ReportPage(
        report=week(until),
        earlier=iso(until - LENGTH),
        later=None if until >= now else iso(min(now, until + LENGTH)),
        sent_at=due_at(now, plant_settings.value("report.weekday"), plant_settings.value("report.hour")),
        receivers=list(asking.values_list("name", flat=True)),
        errors=errors,
    )
    return render_page(request, page, "frame")
