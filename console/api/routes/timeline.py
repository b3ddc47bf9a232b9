"""The timeline: marks of users, and the plant as it was at an instant."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

from django.conf import settings
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import BeforeValidator, ConfigDict

from common.errors import BadInput
from common.stored_document import Instant, Time, describe
from console.accounts.access import require_data_access
from console.actions import marks, shared_links
from console.api.ingestion.cloud_event import EventIgnored, read_outside_change
from console.api.request.answers import Created, NextPage, Router, build_answer, convert, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import MAX_ROWS, GivenTime, Reason, RequestBody
from console.api.request.refusals import RETRY_AFTER_SECONDS, RefusedError
from console.incidents.change_sources import find_changes
from console.incidents.differences import ComparisonRuns, compare
from console.input.boundary import document_of
from console.input.form_values import Id
from console.models import Mark, SharedLink
from console.timeline import happenings
from console.timeline.happenings import LimitedTimeRange
from console.timeline.window import Window
from controllers.diagnosis.differences import Difference
from workers.documents.snapshot import Snapshot
from workers.history.metric_history import LAST_SECONDS
from workers.history.snapshot_archive import snapshot_at
from workers.models import LedgerEntry

router = Router(tags=["timeline"])


class ChangeRow(TypedDict):
    """A change."""

    kind: str
    at: Time
    words: str
    by: str
    ref: Annotated[str, describe("The record, such as override:12, or records (overrides:12,13); empty: none.")]
    parts: Annotated[list[str], describe("Affected subjects, such as queue/alert; empty: the whole plant.")]
    times: Annotated[
        float, describe("Size of a rate change, relative to the smallest change that is reported; 1 for other changes.")
    ]
    over_at: Annotated[Time | None, describe("When the change ends or ended; null: in force, or without an end.")]


class ChangeList(TypedDict):
    changes: Annotated[list[ChangeRow], describe("Newest first.")]


class ChartDecision(TypedDict):
    """A decision that acted, or several that are too close for a chart."""

    at: Instant
    law: str
    verdict: Annotated[
        Annotated[str, describe(values=LedgerEntry.Verdict.values)], describe("The most severe verdict.")
    ]
    count: int
    url: Annotated[str, describe("URL of a page that lists the decisions.")]
    title: str


class ChartDecisionList(TypedDict):
    decisions: list[ChartDecision]
    guard: Annotated[list[LimitedTimeRange], describe("Only for one `loop` and at most one day; otherwise empty.")]


_Stretch = TypedDict("_Stretch", {"from": float, "to": float})  # "from" is a Python keyword


class DifferenceList(_Stretch):
    """A time range compared with another. Unix times."""

    other_from: float
    other_to: float
    compared: Annotated[int, describe("Number of values tested.")]
    differences: Annotated[list[Difference], describe("Largest effect first.")]


class MarkRow(TypedDict):
    """A deploy or a note."""

    id: int
    kind: Annotated[str, describe(values=Mark.Kind.values)]
    title: str
    text: str
    at: Time
    until: Annotated[Time | None, describe("End of the mark; null: the mark has no duration.")]
    author: str
    source: Annotated[str, describe("System that reported an external change; otherwise empty.")]
    event: Annotated[str, describe("ID of an external change in that system; otherwise empty.")]
    parts: Annotated[list[str], describe("Affected subjects, such as queue/alert; empty: the whole plant.")]
    url: str


class IgnoredEvent(TypedDict):
    """An event that is valid and reports no change."""

    ignored: Annotated[str, describe("Why the event was ignored and not stored.")]


class MarkList(TypedDict):
    marks: list[MarkRow]
    next: NextPage


class SharedLinkRow(TypedDict):
    """A link to the plant as it was at `at`, for people without a login."""

    id: int
    at: Time
    reason: str
    author: str
    created_at: Time
    expires_at: Time
    url: Annotated[str, describe("The link. Anyone with the link can see the plant at that instant.")]


class SharedLinkList(TypedDict):
    links: list[SharedLinkRow]


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


def _event_fields(body: object) -> dict[str, Any]:
    """Return the fields of a body; none of the data of a binary event that is no object."""
    return body if isinstance(body, dict) else {}


@router.get("/snapshot", summary="Get the snapshot of a past instant")
def get_past_snapshot(request: HttpRequest, at: GivenTime) -> Snapshot:
    """Return the newest snapshot kept before `at` (ISO 8601); 404 if there is none near it."""
    actor_for(request, "plant.view")
    snapshot = snapshot_at(settings.WEIR_DATA, _require_zone(at, "at").timestamp())
    if snapshot is None:
        raise Http404(f"No snapshot of {at.isoformat()} is stored: the observer was not running, or it is too old.")
    return snapshot


MAX_GUARDED_SECONDS = 86_400.0  # a loop's ledger is read row by row for its guard


@router.get("/decisions", summary="List decisions for a chart")
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
    for name, value in (("from", since), ("to", until)):
        if not 0 <= value <= LAST_SECONDS:
            raise BadInput(name, "must be a Unix time in seconds.")
    if until <= since:
        raise BadInput("to", "must be after from.")
    window = Window(datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC))
    chosen = [loop] if loop is not None else happenings.list_controlling_loops(queue, node)
    lanes = happenings.build_law_lanes(window, chosen)
    begin = window.since.timestamp()
    decisions = [
        build_answer(ChartDecision, sign, at=round(begin + sign.share * window.seconds, 3), law=lane.law)
        for lane in lanes
        for sign in lane.triangles
    ]
    short = loop is not None and window.seconds <= MAX_GUARDED_SECONDS
    guard = happenings.list_guard_events(window, loop) if loop is not None and short else []
    return {"decisions": sorted(decisions, key=lambda decision: decision["at"]), "guard": list(guard)}


@router.get("/marks", summary="List deploys and notes in a time range")
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


@router.post("/marks", summary="Add a deploy or a note")
def add_mark(request: HttpRequest, body: NewMark) -> Created[MarkRow]:
    actor = actor_for(request, "mark.add")
    given = body.dict()
    given |= {name: given[name] and _require_zone(given[name], name) for name in ("at", "until")}
    return _mark(marks.add(actor, now=timezone.now(), **given))


@router.get("/shared-links", summary="List shared links")
def list_shared_links(request: HttpRequest) -> SharedLinkList:
    """Return the active links, the newest first; none for callers limited to some queues, who can't share."""
    links = shared_links.list_links(actor_for(request, "link.make"), timezone.now())
    return {"links": [_link(request, link) for link in links]}


@router.post("/shared-links", summary="Share a past instant by a link")
def make_shared_link(request: HttpRequest, body: NewSharedLink) -> Created[SharedLinkRow]:
    """Create a link that shows only the plant at `at`, without a login, for `hours` (at most 168)."""
    actor = actor_for(request, "link.make")
    at, now = _require_zone(body.at, "at"), timezone.now()
    link = shared_links.share(actor, at=at, hours=body.hours, reason=body.reason, now=now)
    return _link(request, link)


@router.post("/shared-links/{link_id}/end", summary="End a shared link")
def end_shared_link(request: HttpRequest, link_id: Id, body: Reason) -> SharedLinkRow:
    actor = actor_for(request, "link.end")
    link = get_or_404(SharedLink.objects.all(), f"Link {link_id} does not exist.", pk=link_id)
    shared_links.end(actor, link, reason=body.reason, now=timezone.now())
    return _link(request, link)


def _link(request: HttpRequest, link: SharedLink) -> SharedLinkRow:
    address = request.build_absolute_uri(shared_links.format_link_address(link))
    return convert(SharedLinkRow, {**shared_links.describe_link(link), "url": address})


def _mark(mark: Mark) -> MarkRow:
    return convert(MarkRow, marks.describe_mark(mark))


@router.post("/marks/{mark_id}/remove", summary="Remove a deploy or a note")
def remove_mark(request: HttpRequest, mark_id: Id, body: Reason) -> MarkRow:
    actor = actor_for(request, "mark.remove")
    mark = get_or_404(Mark.objects.all(), f"Mark {mark_id} does not exist.", pk=mark_id)
    marks.remove(actor, mark, reason=body.reason, now=timezone.now())
    return _mark(mark)


MAX_EVENT_BYTES = 64 * 2**10
MAX_CHANGES_RANGE = timedelta(days=1)


@router.post("/changes", summary="Report an external change as a CloudEvent")
def report_change(
    request: HttpRequest, body: Annotated[CloudEvent, BeforeValidator(_event_fields)] = NO_DATA
) -> Annotated[Status[MarkRow | IgnoredEvent], {200: MarkRow, 201: MarkRow, 202: IgnoredEvent}]:
    """Receive a change (deploy, rollout, migration): a CloudEvent 1.0 of at most 64 KiB, structured or binary, in JSON.

    Its `source` and `id` name it: sent again it is the same, with 200 in place of 201. A `subject` such as queue/alert
    says what it is about; `data` may hold title, text, url and parts (a list of such subjects). A valid event of
    something else, such as a ping, is ignored, with 202.
    """
    actor = actor_for(request, "mark.add")
    if len(request.body) > MAX_EVENT_BYTES:
        raise RefusedError(413, "body", f"must have at most {MAX_EVENT_BYTES} bytes. Omit unused attributes.")
    now = timezone.now()
    # What the body holds beside the attributes is its data, in the binary form.
    document = document_of(request.body) if request.body.strip() else None
    try:
        change = read_outside_change(request.headers, document, now)
    except EventIgnored as error:
        return Status(202, {"ignored": error.reason})
    mark, is_new = marks.add_outside(actor, change, now)
    return Status(201 if is_new else 200, _mark(mark))


@router.get("/changes", summary="List changes in a time range")
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
    changes = sorted(find_changes(since, until, settings.WEIR_DATA), key=lambda change: change.at, reverse=True)
    return {"changes": [build_answer(ChangeRow, change, parts=sorted(change.parts)) for change in changes]}


@router.get("/differences", summary="Compare a time range with an earlier time range")
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
        "differences": list(comparison_rows.rows),
    }


def _require_zone(moment: datetime, field: str) -> datetime:
    if moment.tzinfo is None:
        raise BadInput(field, "must be a time with a time zone, such as 2026-11-20T03:12:00Z.")
    return moment
