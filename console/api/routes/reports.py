"""The weekly report: the contents of its page and its mail, as figures and as text."""

from typing import Annotated, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Seconds, Share, Time, describe
from console.api.request.answers import Router, build_answer
from console.api.request.authentication import actor_for
from console.api.request.input import UtcTime
from workers.reports import LoopWeek, WeekOverride, WeekProposal, build_week_report, render_report

router = Router(tags=["reports"])


class PromiseRow(TypedDict):
    """An objective in the week."""

    name: str
    target: Share
    good_share: Annotated[Share | None, describe("Share of good seconds; null: not counted.")]
    burnt: Annotated[float | None, describe("Used share of the whole window's error budget.")]
    known_from: Annotated[
        Time | None,
        describe("Start of the stored data if it is after the start of the week; null: the whole week is stored."),
    ]
    missed: bool


class ReportedIncident(TypedDict):
    """An incident of the week; the most severe and longest come first."""

    alert: int
    title: str
    severity: str
    fired_at: Time
    seconds: Seconds
    acknowledged_by: Annotated[str, describe("User who acknowledged the incident; empty: nobody.")]
    outcome: Annotated[str, describe("Summary of the loop actions on the incident.")]


class WeeklyReport(TypedDict):
    """Seven days of the plant. Lists have the first 20 items."""

    since: Time
    until: Time
    sentence: str
    objectives: list[PromiseRow]
    incidents: list[ReportedIncident]
    loops: list[LoopWeek]
    overrides: list[WeekOverride]
    proposals: list[WeekProposal]
    text: Annotated[str, describe("The text of the email.")]


@router.get("/reports", summary="Get the weekly report")
def get_report(request: HttpRequest, until: UtcTime | None = None) -> WeeklyReport:
    """Return the report up to `until`, or else up to now."""
    actor_for(request, "plant.view")
    now = timezone.now()
    report = build_week_report(min(now, until) if until else now)
    return {
        "since": report.since,
        "until": report.until,
        "sentence": report.figures.sentence,
        "objectives": [build_answer(PromiseRow, promise) for promise in report.promises],
        "incidents": [
            build_answer(
                ReportedIncident,
                row,
                alert=row.alert.pk,
                title=row.alert.title,
                severity=row.alert.shown_severity,
                fired_at=row.alert.fired_at,
                outcome=row.outcome.words,
            )
            for row in report.incidents
        ],
        "loops": list(report.loops),
        "overrides": list(report.overrides),
        "proposals": list(report.proposals),
        "text": render_report(report),
    }
