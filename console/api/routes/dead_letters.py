"""Dead letters: searched, viewed, fixed, requeued, and discarded."""

from dataclasses import replace
from typing import Annotated, Any, TypedDict

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from msgspec import Meta
from ninja import Query, Schema
from pydantic import Field

from common.errors import BadInput
from common.stored_document import Bytes, Events, Time, describe
from console.accounts.access import Actor
from console.actions import dead_letter_steering, dead_letters
from console.actions.dead_letter_steering import DeadLetterReport
from console.actions.dead_letters import DeadLetterFilter, ErrorGroup, Name
from console.actions.retries import RetryPlanDocument, describe_plan, propose_dead_letters
from console.api.request.answers import STORED_BYTES, Json, Router, build_answer
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, RequestBody, UtcTime, check_rows
from workers.retries.items import PaceLimits
from workers.retries.plans import USUAL

router = Router(tags=["dead letters"])


class DeadLetterEvent(TypedDict):
    """An event of a dead letter."""

    id: str | None
    time: Time | None
    type: str | None
    source: str | None
    key: str | None
    value: float | None
    attributes: Json


class UnreadableBytes(TypedDict):
    error: str
    bytes: Bytes
    hex: Annotated[str, describe("The first unreadable bytes, in hexadecimal.")]


class DeadLetterRow(TypedDict):
    """A dead letter, with its events for callers who may peek into its queue."""

    name: Annotated[str, describe("The name that actions on the dead letter use.")]
    queue: str
    node: str
    id: str
    at: Time
    events: Annotated[
        list[DeadLetterEvent],
        describe("Events of the dead letter; empty if it is unreadable, or if its contents are omitted."),
    ]
    event_count: Events
    sealed: Annotated[
        bool, describe("Whether the contents are omitted because you don't have the permission queue.peek.")
    ]
    unreadable: UnreadableBytes | None
    is_damaged: Annotated[
        bool, describe("Whether the stored bytes differ from those that were published; it can't be requeued.")
    ]
    error: str
    tries: int
    worker: str
    block_id: str
    fixes: Annotated[int, describe("Number of changes that users made to its events.")]


class DeadLetterList(TypedDict):
    """Dead letters that match a filter; an action on all of them takes count, through, and digest."""

    count: int
    events: Events
    through: Annotated[
        str, Meta(description="When the last dead letter arrived.", extra_json_schema={"format": "date-time"})
    ]
    digest: str
    more: Annotated[bool, describe("Whether there may be more dead letters than were read.")]
    unreachable: Annotated[list[str], describe("Nodes that did not respond.")]
    groups: list[ErrorGroup]
    letters: list[DeadLetterRow]


class DeadLetterSearch(Schema):
    """The filter; omitted fields match all. `from` ≤ time < `to`; error: a part of it."""

    queue: str = ""
    error: str = ""
    type: str = ""
    worker: str = ""
    since: UtcTime | None = Field(None, alias="from")
    until: UtcTime | None = Field(None, alias="to")

    def filter(self) -> DeadLetterFilter:
        return DeadLetterFilter(**self.dict()).check()


class ChosenDeadLetters(RequestBody):
    """Dead letters by their names, or all that a listing counted: its `filter`, `through`, `digest`, `count`.

    To discard, `confirm` is the name of their queue.
    """

    reason: str
    letters: list[str] = []
    filter: DeadLetterSearch | None = None
    through: GivenTime | None = None
    digest: str = ""
    count: int = 0
    confirm: str = ""

    def list_names(self, actor: Actor) -> list[Name]:
        if self.filter is None:
            return dead_letters.parse_names(self.letters)
        if self.through is None:
            raise BadInput("through", "is required. Use the value from the list of dead letters.")
        wanted = self.filter.filter()
        return dead_letter_steering.list_matching(actor, wanted, self.through, self.digest, self.count)

    def describe(self) -> str:
        """Return the filter in words."""
        return dead_letters.describe_filter(self.filter.filter() if self.filter else None)


class PacedDeadLetters(ChosenDeadLetters):
    """Dead letters to requeue by a plan; `min_rate` and `max_rate` limit its pace, in letters per second."""

    min_rate: float = USUAL.min_rate
    max_rate: float = USUAL.max_rate


class Fix(RequestBody):
    """`event` has the fields to change, of the event at `row` of the letter that `digest` identifies."""

    reason: str
    digest: str
    event: dict[str, Any]
    row: int = 0


@router.get("/dead-letters", summary="List dead letters of all queues, newest first")
def list_letters(request: HttpRequest, wanted: Query[DeadLetterSearch], rows: int = 50) -> DeadLetterList:
    """Return dead letters. An action on all of them takes their `count`, `through`, and `digest`.

    The audit log records who has seen events; callers who may not peek into a queue get its dead letters without them
    (`sealed`).
    """
    actor = actor_for(request, "plant.view")
    check_rows(rows)
    letters = dead_letters.search(wanted.filter(), actor)
    dead_letters.note_opened(actor, letters.letters[:rows])
    return {
        "count": len(letters.letters),
        "events": sum(letter.event_count for letter in letters.letters),
        "through": letters.newest.isoformat(),
        "digest": letters.digest,
        "more": letters.more,
        "unreachable": letters.unreachable,
        "groups": letters.list_groups(),
        "letters": [_build_letter_row(letter) for letter in letters.letters[:rows]],
    }


@router.get("/dead-letters/{queue}/{node}/{dead_id}", summary="Get a dead letter")
def get_letter(request: HttpRequest, queue: str, node: str, dead_id: str) -> DeadLetterRow:
    """Return a letter with its events for callers who may peek into the queue.

    The audit log records this. Other callers get sealed events.
    """
    letter = dead_letters.open_letter(actor_for(request, "plant.view"), queue, node, dead_id)
    if letter is None:
        raise Http404(f"{dead_id} is no longer a dead letter of {queue} on {node}.")
    return _build_letter_row(letter)


@router.get(
    "/dead-letters/{queue}/{node}/{dead_id}/bytes",
    openapi_extra=STORED_BYTES,
    summary="Get the stored bytes of a dead letter",
)
def get_letter_bytes(request: HttpRequest, queue: str, node: str, dead_id: str) -> HttpResponse:
    """Return the stored bytes, even if unreadable; an Arrow record batch if readable. Recorded in the audit log."""
    content = dead_letters.load_stored_bytes(actor_for(request, "queue.peek"), queue, node, dead_id)
    if content is None:
        raise Http404(f"{dead_id} is no longer a dead letter of {queue} on {node}.")
    return dead_letters.build_download_response(content)


@router.post("/dead-letters/requeue", summary="Requeue dead letters")
def requeue_letters(request: HttpRequest, body: ChosenDeadLetters) -> DeadLetterReport:
    actor = actor_for(request, "dead_letters.requeue")
    return dead_letter_steering.act(actor, "requeue", body.list_names(actor), body.reason)


@router.post("/dead-letters/retry", summary="Propose a retry plan that requeues dead letters at a pace")
def retry_letters(request: HttpRequest, body: PacedDeadLetters) -> RetryPlanDocument:
    actor = actor_for(request, "dead_letters.requeue")
    limits = PaceLimits(body.min_rate, body.max_rate)
    names = body.list_names(actor)
    return describe_plan(propose_dead_letters(actor, names, body.describe(), body.reason, limits, timezone.now()))


@router.post("/dead-letters/discard", summary="Discard dead letters permanently")
def discard_letters(request: HttpRequest, body: ChosenDeadLetters) -> DeadLetterReport:
    actor = actor_for(request, "dead_letters.discard")
    return dead_letter_steering.act(actor, "discard", body.list_names(actor), body.reason, body.confirm)


@router.post("/dead-letters/{queue}/{node}/{dead_id}/fix", summary="Change an event of a dead letter")
def fix_letter(request: HttpRequest, queue: str, node: str, dead_id: str, body: Fix) -> DeadLetterRow:
    actor = actor_for(request, "dead_letters.fix")
    name = Name(queue, node, dead_id, body.digest)
    mended = dead_letter_steering.fix(actor, name, body.row, body.event, body.reason, timezone.now())
    return _build_letter_row(replace(mended, sealed=not dead_letters.may_open(actor, queue)))


def _build_letter_row(letter: dead_letters.NamedDeadLetter) -> DeadLetterRow:
    data = letter.original
    unreadable: UnreadableBytes = {
        "error": letter.unreadable,
        "bytes": len(data),
        "hex": data[: dead_letters.EXCERPT_BYTES].hex(),
    }
    return build_answer(
        DeadLetterRow,
        letter.stored,
        name=str(letter.name),
        queue=letter.name.queue,
        node=letter.name.node,
        id=letter.name.id,
        at=letter.at,
        events=letter.events,
        event_count=letter.event_count,
        sealed=letter.sealed,
        unreadable=unreadable if letter.unreadable else None,
        is_damaged=letter.is_damaged,
    )
