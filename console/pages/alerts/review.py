"""The morning review of a time range, as a page and as CSV, and the weekly report.

The review shows alerts, their duration, what helped, and what flapped. The report is the page that is sent by mail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone

from common.errors import BadInput
from console.actions.exports import export
from console.input.form_values import format_iso_time, parse_time
from console.pages.frame.page import ConsolePage, Errors, declare_page, render_page
from workers.alerts import review as reviews
from workers.alerts.lifecycle.models import Receiver
from workers.reports import LENGTH, WeekReport, build_week_report, compute_due_time
from workers.steering import plant_settings

HOURS = (12, 24, 72, 168)


@dataclass(frozen=True, kw_only=True)
class ReviewPage(ConsolePage):
    """Alerts of a time range. hours: length up to now; None for a custom range."""

    TEMPLATE, NAME = "alerts/review.html", "alert-review"

    since: datetime
    until: datetime
    seconds: float
    from_text: str
    to_text: str
    hours: int | None
    choices: Sequence[int]
    alerts: list[reviews.ReviewRow]  # the most severe and longest first
    summary: reviews.ReviewFigures
    errors: Errors


@declare_page("plant.view")
def review(request: HttpRequest) -> HttpResponseBase:
    """Show the review of the last `?hours=12`, or of `?from=…&to=…`; `&format=csv` (or json) downloads it."""
    since, until, errors = _span(request)
    rows = reviews.iterate_review_rows(since, until)
    if request.GET.get("format") in ("csv", "json") and not errors:
        documents = ([row.document()] for row in rows)
        return export(request, documents, reviews.HEADER, "alert-review", request.GET["format"])
    alerts = sorted(rows, key=_rank_worst_first)
    page = ReviewPage(
        since=since,
        until=until,
        seconds=(until - since).total_seconds(),
        from_text=format_iso_time(since),
        to_text=format_iso_time(until),
        hours=None if "from" in request.GET else _hours(request),
        choices=HOURS,
        alerts=alerts,
        summary=reviews.summarize_review(alerts, since, until),
        errors=errors,
    )
    return render_page(request, page, "frame")


def _rank_worst_first(row: reviews.ReviewRow) -> tuple[bool, int, float]:
    order = ("critical", "warning", "notice")
    return (row.alert.under_id is not None, order.index(row.alert.shown_severity), -row.seconds)


def _hours(request: HttpRequest) -> int:
    text = request.GET.get("hours", "")
    return int(text) if text in {str(hour) for hour in HOURS} else HOURS[0]


def _span(request: HttpRequest) -> tuple[datetime, datetime, dict[str, list[str]]]:
    """Return the time range of the address; an invalid range falls back to the last hours, with an error."""
    now = timezone.now()
    fallback = (now - timedelta(hours=_hours(request)), now)
    try:
        since, until = (_read_date(request, *bound) for bound in (("from", fallback[0]), ("to", now)))
        if not since < until:
            raise BadInput("to", "must be after from.")
        if until - since > reviews.MAX_RANGE:
            raise BadInput("from", f"must be at most {reviews.MAX_RANGE.days} days before to.")
    except BadInput as error:
        return *fallback, {error.field: [error.message]}
    return since, until, {}


def _read_date(request: HttpRequest, field: str, otherwise: datetime) -> datetime:
    text = request.GET.get(field, "").strip()
    return parse_time(text, field) if text else otherwise


@dataclass(frozen=True, kw_only=True)
class ReportPage(ConsolePage):
    """A week, and links to the weeks around it. later: None for the current week."""

    TEMPLATE, NAME = "alerts/report.html", "alert-review"

    report: WeekReport
    earlier: str
    later: str | None
    sent_at: datetime  # of the week that was sent last
    receivers: list[str]  # receivers that request it
    errors: Errors


@declare_page("plant.view")
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
