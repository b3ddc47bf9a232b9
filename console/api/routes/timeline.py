"""The timeline: marks of users, and the plant as it was at an instant."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from django.conf import settings
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import BeforeValidator, ConfigDict

from common.errors import BadInput
from common.stored_document import convert_to_plain
from console.accounts.access import require_data_access
from console.actions import marks, shared_links
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.ingestion.cloud_event import EventIgnored, read_outside_change
from console.api.request.authentication import actor_for
from console.api.request.bodies import Reason, RequestBody
from console.api.request.instant import GivenTime
from console.api.request.refusals import RETRY_AFTER_SECONDS, RefusedError
from console.api.request.rows import MAX_ROWS
from console.api.schemas.alerts.incidents import ChangeList, ChangeRow
from console.api.schemas.snapshot import PlantSnapshot
from console.api.schemas.timeline import (
    ChartDecision,
    ChartDecisionList,
    DifferenceList,
    DifferenceRow,
    GuardEvent,
    IgnoredEvent,
    MarkList,
    MarkRow,
    SharedLinkList,
    SharedLinkRow,
)
from console.incidents.change_sources import FoundChange, find_changes
from console.incidents.differences import ComparisonRuns, compare
from console.input.boundary import document_of
from console.input.row_id import Id
from console.models import Mark, SharedLink
from console.timeline import happenings
from console.timeline.happenings import TimelineLane, Triangle
from console.timeline.window import Window
from workers.history.metric_history import LAST_SECONDS
from workers.history.snapshot_archive import snapshot_at

router = Router(tags=["timeline"])


class NewMark(RequestBody):
    """A deploy or a note, at an instant (now by default) or over a range."""

    title: str
    kind: str = "note"
    text: str = ""
    at: GivenTime | None = None
    until: GivenTime | None = None


class NewSharedLink(RequestBody):
    """The instant, the duration, and the purpose of a link."""

    at: GivenTime
    hours: float
    reason: str


class CloudEvent(Schema):
    """A CloudEvent in its structured form.

    In the binary form its attributes are in `ce-` headers, and the body is its data. Other attributes are ignored.
    """

    model_config = ConfigDict(extra="allow")

    specversion: str | None = None
    id: str | None = None
    source: str | None = None
    type: str | None = None
    time: str | None = None
    subject: Any = None
    data: Any = None


NO_DATA = CloudEvent()


def _event_fields(body: Any) -> Any:
    """Return the fields of a body; none of the data of a binary event that is no object."""
    return body if isinstance(body, dict) else {}


@router.get("/snapshot", response=PlantSnapshot, summary="Get the snapshot of a past instant")
def get_past_snapshot(request: HttpRequest, at: GivenTime) -> PlantSnapshot:
    """Return the newest snapshot kept before `at` (ISO 8601); 404 if there is none near it."""
    actor_for(request, "plant.view")
    snapshot = snapshot_at(settings.WEIR_DATA, _require_zone(at, "at").timestamp())
    if snapshot is None:
        raise Http404(f"No snapshot of {at.isoformat()} is stored: the observer was not running, or it is too old.")
    return convert(PlantSnapshot, convert_to_plain(snapshot))


MAX_GUARDED_SECONDS = 86_400.0  # a loop's ledger is read row by row for its guard


@router.get("/decisions", response=ChartDecisionList, summary="List decisions for a chart")
def list_decisions(
    request: HttpRequest,
    since: Annotated[float, Query(..., alias="from")],
    until: Annotated[float, Query(..., alias="to")],
    loop: Id | None = None,
    queue: str = "",
    node: str = "",
) -> ChartDecisionList:
    """Return decisions that acted, from `from` to `to` (Unix time), the oldest first.

    They are of one `loop`, of those that control a `queue` or a `node` (and the whole plant), or of all. Decisions too
    close for a chart are merged into one, with their `count`, the most severe verdict, and an address that lists them.
    `guard` has what the guard of that `loop` limited.
    """
    actor_for(request, "plant.view")
    window = _build_window(since, until)
    chosen = [loop] if loop is not None else happenings.list_controlling_loops(queue, node)
    lanes = happenings.build_law_lanes(window, chosen)
    decisions = [_build_chart_decision(window, lane, sign) for lane in lanes for sign in lane.triangles]
    short = loop is not None and window.seconds <= MAX_GUARDED_SECONDS
    guard = happenings.list_guard_events(window, loop) if loop is not None and short else []
    return {
        "decisions": sorted(decisions, key=lambda decision: decision["at"]),
        "guard": [convert(GuardEvent, vars(event)) for event in guard],
    }


def _build_chart_decision(window: Window, lane: TimelineLane, sign: Triangle) -> ChartDecision:
    at = window.since.timestamp() + sign.share * window.seconds
    return {
        "at": round(at, 3),
        "law": lane.law,
        "verdict": sign.verdict,
        "count": sign.count,
        "url": sign.url,
        "title": sign.title,
    }


def _build_window(since: float, until: float) -> Window:
    """Return the window. Raises `BadInput` that names from or to."""
    for name, value in (("from", since), ("to", until)):
        if not 0 <= value <= LAST_SECONDS:
            raise BadInput(name, "must be a Unix time in seconds.")
    if until <= since:
        raise BadInput("to", "must be after from.")
    return Window(datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC))


@router.get("/marks", response=MarkList, summary="List deploys and notes in a time range")
def list_marks(
    request: HttpRequest,
    since: Annotated[GivenTime, Query(..., alias="from")],
    until: Annotated[GivenTime, Query(..., alias="to")],
    before: Id | None = None,
) -> MarkList:
    """Return the newest 500, sorted oldest first; `next` is the value of `before` for older ones."""
    actor_for(request, "plant.view")
    since, until = _require_zone(since, "from"), _require_zone(until, "to")
    if until <= since:
        raise BadInput("to", "must be after from.")
    page, more = marks.list_newest_marks(since, until, MAX_ROWS, before)
    return {"marks": [_mark(mark) for mark in page], "next": page[0].pk if more else None}


@router.post("/marks", response={201: MarkRow}, summary="Add a deploy or a note")
def add_mark(request: HttpRequest, body: NewMark) -> Status[MarkRow]:
    actor = actor_for(request, "mark.add")
    given = body.dict()
    given |= {name: given[name] and _require_zone(given[name], name) for name in ("at", "until")}
    return Status(201, _mark(marks.add(actor, now=timezone.now(), **given)))


@router.get("/shared-links", response=SharedLinkList, summary="List shared links")
def list_shared_links(request: HttpRequest) -> SharedLinkList:
    """Return the active links, the newest first.

    Callers who are limited to some queues can't share, so they get none.
    """
    links = shared_links.list_links(actor_for(request, "link.make"), timezone.now())
    return {"links": [_link(request, link) for link in links]}


@router.post("/shared-links", response={201: SharedLinkRow}, summary="Share a past instant by a link")
def make_shared_link(request: HttpRequest, body: NewSharedLink) -> Status[SharedLinkRow]:
    """Create a link that shows the plant at `at` without a login, for `hours` (at most 168).

    The link shows nothing else.
    """
    actor = actor_for(request, "link.make")
    at, now = _require_zone(body.at, "at"), timezone.now()
    link = shared_links.share(actor, at=at, hours=body.hours, reason=body.reason, now=now)
    return Status(201, _link(request, link))


@router.post("/shared-links/{link_id}/end", response=SharedLinkRow, summary="End a shared link")
def end_shared_link(request: HttpRequest, link_id: Id, body: Reason) -> SharedLinkRow:
    actor = actor_for(request, "link.end")
    link = SharedLink.objects.filter(pk=link_id).first()
    if link is None:
        raise Http404(f"Link {link_id} does not exist.")
    shared_links.end(actor, link, reason=body.reason, now=timezone.now())
    return _link(request, link)


def _link(request: HttpRequest, link: SharedLink) -> SharedLinkRow:
    address = request.build_absolute_uri(shared_links.format_link_address(link))
    return convert(SharedLinkRow, {**shared_links.describe_link(link), "url": address})


def _mark(mark: Mark) -> MarkRow:
    return convert(MarkRow, marks.describe_mark(mark))


@router.post("/marks/{mark_id}/remove", response=MarkRow, summary="Remove a deploy or a note")
def remove_mark(request: HttpRequest, mark_id: Id, body: Reason) -> MarkRow:
    actor = actor_for(request, "mark.remove")
    mark = Mark.objects.filter(pk=mark_id).first()
    if mark is None:
        raise Http404(f"Mark {mark_id} does not exist.")
    marks.remove(actor, mark, reason=body.reason, now=timezone.now())
    return _mark(mark)


MAX_EVENT_BYTES = 64 * 2**10
MAX_CHANGES_RANGE = timedelta(days=1)


@router.post(
    "/changes",
    response={200: MarkRow, 201: MarkRow, 202: IgnoredEvent},
    summary="Report an external change as a CloudEvent",
)
def report_change(
    request: HttpRequest, body: Annotated[CloudEvent, BeforeValidator(_event_fields)] = NO_DATA
) -> Status[MarkRow | IgnoredEvent]:
    """Receive a change (deploy, rollout, migration): a CloudEvent 1.0 of at most 64 KiB, structured or binary, in JSON.

    Its `source` and `id` name it: sent again it is the same, with 200 in place of 201. A `subject` such as queue/alert
    says what it is about; `data` may hold title, text, url and parts (a list of such subjects). A valid event of
    something else, such as a ping, is ignored, with 202.
    """
    actor = actor_for(request, "mark.add")
    if len(request.body) > MAX_EVENT_BYTES:
        raise RefusedError(413, "body", f"must have at most {MAX_EVENT_BYTES} bytes; omit unused attributes.")
    now = timezone.now()
    # What the body holds beside the attributes is its data, in the binary form.
    document = document_of(request.body) if request.body.strip() else None
    try:
        change = read_outside_change(request.headers, document, now)
    except EventIgnored as error:
        return Status(202, {"ignored": error.reason})
    mark, is_new = marks.add_outside(actor, change, now)
    return Status(201 if is_new else 200, _mark(mark))


@router.get("/changes", response=ChangeList, summary="List changes in a time range")
def list_changes(
    request: HttpRequest,
    since: Annotated[GivenTime, Query(..., alias="from")],
    until: Annotated[GivenTime, Query(..., alias="to")],
) -> ChangeList:
    """Return changes of at most a day, the newest first.

    They are overrides, plans, declarations, settings, deploys, restarts, actions of loops, and producers, nodes, hosts,
    and types that appeared, disappeared, or jumped.
    """
    actor_for(request, "plant.view")
    since, until = _require_zone(since, "from"), _require_zone(until, "to")
    if not timedelta(0) < until - since <= MAX_CHANGES_RANGE:
        raise BadInput("from", "must be before to, by at most 1 day.")
    changes = find_changes(since, until, settings.WEIR_DATA)
    return {"changes": [_change(change) for change in sorted(changes, key=lambda change: change.at, reverse=True)]}


@router.get("/differences", response=DifferenceList, summary="Compare a time range with an earlier time range")
def list_differences(
    request: HttpRequest,
    since: Annotated[GivenTime, Query(..., alias="from")],
    until: Annotated[GivenTime, Query(..., alias="to")],
    against: str = "before",
    queue: str = "",
) -> DifferenceList:
    """Compare with the time range `before` it, or the same hours a `day` or a `week` before.

    The comparison covers one `queue` or all queues. Returns only significant differences (1 of 100 rows at most is
    expected by chance). 503 while another comparison runs; 422 if the archive contains more than a comparison may read.
    403 for a queue that the caller may not access; a caller who is limited to some queues has to name one of them.
    """
    require_data_access(actor_for(request, "plant.view"), "plant.view", [queue] if queue else None)
    try:
        comparison_rows = compare(
            _require_zone(since, "from"), _require_zone(until, "to"), against, queue, settings.WEIR_DATA
        )
    except ComparisonRuns as error:
        raise RefusedError(503, error.field, error.message, RETRY_AFTER_SECONDS) from None
    return {
        "from": comparison_rows.here.since,
        "to": comparison_rows.here.until,
        "other_from": comparison_rows.there.since,
        "other_to": comparison_rows.there.until,
        "compared": comparison_rows.compared,
        "differences": [convert(DifferenceRow, vars(row)) for row in comparison_rows.rows],
    }


def _change(found: FoundChange) -> ChangeRow:
    return convert(ChangeRow, {**vars(found), "parts": sorted(found.parts)})


def _require_zone(moment: datetime, field: str) -> datetime:
    if moment.tzinfo is None:
        raise BadInput(field, "must be a time with a time zone, such as 2026-11-20T03:12:00Z.")
    return moment
