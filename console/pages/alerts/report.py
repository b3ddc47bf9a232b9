"""The weekly report as it is sent by mail, on a printable page."""

from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from common.errors import BadInput
from console.accounts.access import requires
from console.input.form_values import format_iso_time, parse_time
from console.pages.frame.page import ConsolePage, Errors, render_page
from workers.alerts.lifecycle.models import Receiver
from workers.reports import LENGTH, WeekReport, build_week_report, compute_due_time
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
            until = min(now, parse_time(text, "until"))
        except BadInput as error:
            errors = {error.field: [error.message]}
    asking = Receiver.objects.filter(gets_reports=True, enabled=True).order_by("name")
    page = ReportPage(
        report=build_week_report(until),
        earlier=format_iso_time(until - LENGTH),
        later=None if until >= now else format_iso_time(min(now, until + LENGTH)),
        sent_at=compute_due_time(
            now, plant_settings.get_setting_value("report.weekday"), plant_settings.get_setting_value("report.hour")
        ),
        receivers=list(asking.values_list("name", flat=True)),
        errors=errors,
    )
    return render_page(request, page, "frame")
