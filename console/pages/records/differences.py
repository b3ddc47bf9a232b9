"""What is different: a stretch of time against another, the largest difference first."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.access import requires
from console.incidents.differences import AGAINST, Comparison, ComparisonRuns, compare
from console.input.form_values import iso, time_of
from console.pages.frame.page import ConsolePage, Errors, render_page
from controllers.diagnosis.differences import Difference
from queues.errors import BadInput
from queues.models import Queue

FIRST = timedelta(minutes=15)
SIZES = ((0.8, "large"), (0.5, "medium"), (0.2, "small"), (0.0, "slight"))


@dataclass(frozen=True)
class ShownDifference:
    """A difference in words: its size, and the two values as they are read."""

    row: Difference
    size: str
    here: float
    there: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class DifferencesPage(ConsolePage):
    """A stretch against another. found: None where the address can't be read."""

    TEMPLATE, NAME = "records/differences.html", "timeline"

    since: datetime
    until: datetime
    against: str
    choices: Mapping[str, str]
    queue: str
    queues: list[str]
    found: Comparison | None
    rows: list[ShownDifference]
    there_words: str
    timeline_query: str
    errors: Errors


@require_safe
@requires("plant.view")
def differences(request: HttpRequest) -> HttpResponse:
    """`?from=…&to=…&against=before|day|week&queue=…`; without a time, the last 15 minutes."""
    asked, now = request.GET, timezone.now()
    errors: dict[str, list[str]] = {}
    status = 200
    since, until, found = now - FIRST, now, None
    against, queue = asked.get("against", "before"), asked.get("queue", "").strip()
    try:
        until = min(time_of(asked["to"], "to"), now) if asked.get("to", "").strip() else now
        since = time_of(asked["from"], "from") if asked.get("from", "").strip() else until - FIRST
        found = compare(since, until, against, queue, settings.WEIR_DATA)
    except BadInput as error:
        errors = {error.field: [error.message]}
        status = 503 if isinstance(error, ComparisonRuns) else 422
    page = DifferencesPage(
        since=since,
        until=until,
        against=against,
        choices=AGAINST,
        queue=queue,
        queues=list(Queue.objects.order_by("name").values_list("name", flat=True)),
        found=found,
        rows=[shown(each) for each in found.rows] if found else [],
        there_words=AGAINST.get(against, ""),
        timeline_query=urlencode({"from": iso(since), "to": iso(until)}),
        errors=errors,
    )
    return render_page(request, page, "frame", status)


def shown(row: Difference) -> ShownDifference:
    """Shares as per cent; a measure in its own unit."""
    size = next(word for least, word in SIZES if abs(row.effect) >= least)
    if row.is_share:
        return ShownDifference(row, size, 100 * row.here, 100 * row.there, "% of events")
    return ShownDifference(row, size, row.here, row.there, row.measure)
