"""The review of a time range: alerts that fired, their duration, and effective actions."""

from datetime import timedelta
from typing import Annotated

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query

from common.errors import BadInput
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.instant import UtcTime
from console.api.schemas.alerts.alert_review import AlertReview, ReviewedAlert, ReviewSummary
from workers.alerts import review

router = Router(tags=["alerts"])


@router.get(
    "/alerts/review",
    response=AlertReview,
    summary="Review a time range: alerts that fired, their duration, and effective actions",
)
def get_alert_review(
    request: HttpRequest,
    since: Annotated[UtcTime | None, Query(alias="from")] = None,
    until: Annotated[UtcTime | None, Query(alias="to")] = None,
) -> AlertReview:
    """Return the review of the last 12 hours by default; at most 31 days."""
    actor_for(request, "plant.view")
    end = until or timezone.now()
    begin = since or end - timedelta(hours=12)
    if not timedelta(0) < end - begin <= review.MAX_RANGE:
        raise BadInput("from", f"must be before `to`, by at most {review.MAX_RANGE.days} days.")
    rows_of_review = list(review.iterate_review_rows(begin, end))
    return {
        "from": begin,
        "to": end,
        "summary": convert(ReviewSummary, review.summarize_review(rows_of_review, begin, end).document()),
        "alerts": [convert(ReviewedAlert, row.document()) for row in rows_of_review],
    }
