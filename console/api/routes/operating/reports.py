"""The weekly report: the same content as its page and its mail, as figures and as text."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.request.instant import UtcTime
from console.api.schemas.records import WeeklyReport
from workers.alerts.review import Row
from workers.reports.text import text
from workers.reports.week import week

router = Router(tags=["reports"])


@router.get("/reports", response=WeeklyReport, summary="The report of seven days")
def get_report(request: HttpRequest, until: UtcTime | None = None) -> dict[str, Any]:
    """Up to `until`, else up to now."""
    actor_for(request, "plant.view")
    now = timezone.now()
    found = week(min(now, until) if until else now)
    return {
        "since": found.since,
        "until": found.until,
        "sentence": found.figures.sentence,
        "objectives": [{**vars(each), "missed": each.missed} for each in found.promises],
        "incidents": [_incident(row) for row in found.incidents],
        "loops": [vars(row) for row in found.loops],
        "overrides": [vars(row) for row in found.overrides],
        "proposals": [vars(row) for row in found.proposals],
        "text": text(found),
    }


def _incident(row: Row) -> dict[str, Any]:
    return {
        "alert": row.alert.pk,
        "title": row.alert.title,
        "severity": row.alert.shown_severity,
        "fired_at": row.alert.fired_at,
        "seconds": row.seconds,
        "acknowledged_by": row.acknowledged_by,
        "outcome": row.outcome.words,
    }
