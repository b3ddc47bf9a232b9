"""The weekly report: the contents of its page and its mail, as figures and as text."""

from django.http import HttpRequest
from django.utils import timezone

from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.instant import UtcTime
from console.api.schemas.records import (
    LoopWeekRow,
    OverriddenRow,
    PromiseRow,
    ProposedRow,
    ReportedIncident,
    WeeklyReport,
)
from workers.alerts.review import ReviewRow
from workers.reports import PromiseOutcome, build_week_report, render_report

router = Router(tags=["reports"])


@router.get("/reports", response=WeeklyReport, summary="Get the weekly report")
def get_report(request: HttpRequest, until: UtcTime | None = None) -> WeeklyReport:
    """Return the report up to `until`, or else up to now."""
    actor_for(request, "plant.view")
    now = timezone.now()
    report = build_week_report(min(now, until) if until else now)
    return {
        "since": report.since,
        "until": report.until,
        "sentence": report.figures.sentence,
        "objectives": [_build_promise_row(promise) for promise in report.promises],
        "incidents": [_build_incident_row(row) for row in report.incidents],
        "loops": [convert(LoopWeekRow, vars(row)) for row in report.loops],
        "overrides": [convert(OverriddenRow, vars(row)) for row in report.overrides],
        "proposals": [convert(ProposedRow, vars(row)) for row in report.proposals],
        "text": render_report(report),
    }


def _build_promise_row(row: PromiseOutcome) -> PromiseRow:
    return convert(PromiseRow, {**vars(row), "missed": row.missed})


def _build_incident_row(row: ReviewRow) -> ReportedIncident:
    incident = {
        "alert": row.alert.pk,
        "title": row.alert.title,
        "severity": row.alert.shown_severity,
        "fired_at": row.alert.fired_at,
        "seconds": row.seconds,
        "acknowledged_by": row.acknowledged_by,
        "outcome": row.outcome.words,
    }
    return convert(ReportedIncident, incident)  # conditions that have not fired are in no report
