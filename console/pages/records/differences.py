"""Differences between two time ranges, the largest difference first."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor, actor_of, require_data_access
from console.actions.task_documents import DescribedRun, describe_run
from console.connections.control_server import build_job_context
from console.incidents.differences import (
    AGAINST,
    Comparison,
    ComparisonRuns,
    begin_count,
    build_compared_ranges,
    compare,
    find_last_run,
)
from console.input.form_values import format_iso_time, parse_time
from console.pages.frame.page import (
    ActionResult,
    ConsolePage,
    Errors,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
)
from controllers.diagnosis.differences import Difference
from queues.models import Queue
from workers.batch import runs
from workers.history.stretches import ReadLimitExceeded

FIRST = timedelta(minutes=15)
SIZES = ((0.8, "large"), (0.5, "medium"), (0.2, "small"), (0.0, "slight"))


@dataclass(frozen=True)
class ShownDifference:
    """A difference in words: its size, and the two values as displayed."""

    row: Difference
    size: str
    here: float
    there: float
    unit: str


@dataclass(frozen=True)
class AskedComparison:
    """The request in the address, as the form shows it again."""

    since: datetime
    until: datetime
    against: str
    queue: str

    def query(self) -> str:
        """Return the query of the same comparison, with its times."""
        asked = {"from": format_iso_time(self.since), "to": format_iso_time(self.until), "against": self.against}
        return urlencode({**asked, "queue": self.queue})


@dataclass(frozen=True, kw_only=True)
class DifferencesPage(ConsolePage):
    """A time range compared with another.

    comparison: None if the address is invalid, or Spark must count first; run: of Spark on these ranges, if it is
    active or failed; too_much: why it exceeds what a page reads, "" if it does not.
    """

    TEMPLATE, NAME = "records/differences.html", "timeline"

    since: datetime
    until: datetime
    against: str
    choices: Mapping[str, str]
    queue: str
    queues: list[str]
    comparison: Comparison | None
    run: DescribedRun | None
    is_counting: bool
    too_much: str
    rows: list[ShownDifference]
    there_words: str
    timeline_query: str
    errors: Errors


@declare_page("plant.view")
def differences_page(request: HttpRequest) -> HttpResponse:
    """Compare `?from=…&to=…&against=before|day|week&queue=…`; without times, the last 15 minutes."""
    rejected, now, actor = get_rejected_form(request), timezone.now(), actor_of(request)
    given = rejected.submitted or request.GET
    asked = AskedComparison(now - FIRST, now, given.get("against", "before"), given.get("queue", "").strip())
    comparison, run, too_much, refused, status = None, None, "", rejected.errors, 200
    try:
        asked = _read_window(given, now, actor)
        require_data_access(actor, "plant.view", [asked.queue] if asked.queue else None)
        run = find_last_run(asked.queue, *build_compared_ranges(asked.since, asked.until, asked.against))
        if not (refused or (run and run.state in runs.OPEN)):
            comparison = compare(asked.since, asked.until, asked.against, asked.queue, settings.WEIR_DATA)
    except ReadLimitExceeded as error:
        too_much = error.message
    except BadInput as error:
        refused = {error.field: [error.message]}
        status = 503 if isinstance(error, ComparisonRuns) else 422
    page = DifferencesPage(
        since=asked.since,
        until=asked.until,
        against=asked.against,
        choices=AGAINST,
        queue=asked.queue,
        queues=[
            name
            for name in Queue.objects.order_by("name").values_list("name", flat=True)
            if actor.can_access_queues([name])
        ],
        comparison=comparison,
        run=describe_run(run) if run else None,
        is_counting=run is not None and run.state in runs.OPEN,
        too_much=too_much,
        rows=[format_row(row) for row in comparison.rows] if comparison else [],
        there_words=AGAINST.get(asked.against, ""),
        timeline_query=urlencode({"from": format_iso_time(asked.since), "to": format_iso_time(asked.until)}),
        errors=refused,
    )
    return render_page(request, page, "frame", status)


@declare_action("task.run", differences_page)
def count(request: HttpRequest) -> ActionResult:
    """Start a Spark run that counts the two ranges; the page shows its progress. Posted: from, to, against, queue."""
    asked = _read_window(request.POST, timezone.now(), actor_of(request))
    run = begin_count(actor_of(request), asked.since, asked.until, asked.against, asked.queue, build_job_context())
    url = f"{reverse('differences')}?{asked.query()}"
    return ActionResult(f"Run {run.pk} counts these time ranges in Spark.", url, {"run": run.pk, "go": url})


def _read_window(given: Mapping[str, str], now: datetime, actor: Actor) -> AskedComparison:
    """Return the window. Without a queue, it uses the first queue that the actor is limited to. Raises `BadInput`."""
    queue = given.get("queue", "").strip() or min(actor.queues or ("",))
    until = min(parse_time(given["to"], "to"), now) if given.get("to", "").strip() else now
    since = parse_time(given["from"], "from") if given.get("from", "").strip() else until - FIRST
    return AskedComparison(since, until, given.get("against", "before"), queue)


def format_row(row: Difference) -> ShownDifference:
    """Return a row with shares in percent, and measures in their own units."""
    size = next(word for least, word in SIZES if abs(row.effect) >= least)
    if row.is_share:
        return ShownDifference(row, size, 100 * row.here, 100 * row.there, "% of events")
    return ShownDifference(row, size, row.here, row.there, row.measure)
