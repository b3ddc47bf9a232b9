"""Dead letters on pages: search across queues, inspect, fix, requeue, and discard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput, NodeUnavailable
from console.accounts.access import actor_of, admit, require_permission
from console.actions import dead_letter_steering, dead_letters
from console.actions.dead_letter_steering import EDITABLE
from console.actions.dead_letters import DeadLetterFilter, ErrorGroup, FoundDeadLetters, Name, NamedDeadLetter
from console.actions.retries import propose_dead_letters
from console.display.formats import format_for_input
from console.input.form_values import parse_number, parse_row_id, parse_time
from console.pages.frame.filtered_list import read_filter, span_of
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    call_page,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
)
from queues.models import Queue
from workers.retries.plans import USUAL

PAGE_ROWS = 50
TEXTS = ("queue", "error", "type", "worker")
FILTER = (*TEXTS, "from", "to")
RETRY = "retry"  # an action besides those that take effect at once
EVENT = "event-"  # the fields of an event


def filter_of(query: Mapping[str, str]) -> DeadLetterFilter:
    """Return the filter that an address names. Raises `BadInput` that names the field."""
    given: dict[str, Any] = {name: query.get(name, "").strip() for name in TEXTS}
    return DeadLetterFilter(**given | span_of(query)).check()


@dataclass(frozen=True, kw_only=True)
class LinkedErrorGroup(ErrorGroup):
    """An error group with the query that lists its letters."""

    query: str


@dataclass(frozen=True, kw_only=True)
class DeadLettersPage(FormPage):
    """Dead letters of all queues that match a filter."""

    TEMPLATE, NAME = "queues/dead_letters.html", "dead-letters"

    listing: FoundDeadLetters
    page_obj: Page[NamedDeadLetter]
    groups: list[LinkedErrorGroup]  # the most common errors
    filters: QueryDict
    carried: Mapping[str, str]  # the filter, as a form of dead letters names its fields
    queues: QuerySet[Queue, str]
    types: Sequence[str]  # of events on this page
    query: str
    through: str  # when the newest counted letter arrived


@dataclass(frozen=True, kw_only=True)
class DeadLetterPage(FormPage):
    """One letter. letter: None if it is gone; event_id: of the event that may be changed."""

    TEMPLATE, NAME = "queues/dead_letter.html", "dead-letters"

    queue: str
    node: str
    dead_id: str
    letter: NamedDeadLetter | None
    unreachable: bool
    row: int
    event_id: str | None
    form: Mapping[str, str]  # the event's fields as text


@declare_page("plant.view")
def letters_page(request: HttpRequest) -> HttpResponse:
    """Show the dead letters that the address requests."""
    # A rejected form is shown over the filter from which it was made.
    submitted = get_rejected_form(request).submitted
    asked = _read_filter(submitted) if submitted else request.GET
    wanted, wrong = read_filter(filter_of, asked)
    none, actor = FoundDeadLetters([], [], False), actor_of(request)
    found_letters = dead_letters.search(wanted, actor) if wanted is not None else none
    page_obj = Paginator(found_letters.letters, PAGE_ROWS).get_page(asked.get("page"))
    query = asked.copy()
    query.pop("page", None)
    page = DeadLettersPage(
        listing=found_letters,
        page_obj=page_obj,
        groups=[
            LinkedErrorGroup(**vars(group), query=_query(asked, queue=group.queue, error=group.error))
            for group in found_letters.list_groups()
        ],
        filters=asked,
        carried={name: asked.get(name, "") for name in (*FILTER, "page") if asked.get(name)},
        queues=Queue.objects.order_by("name").values_list("name", flat=True),
        types=sorted({kind for letter in page_obj for kind in letter.types}),
        query=query.urlencode(),
        through=found_letters.newest.isoformat(),
        errors=wrong,
    )
    return render_page(request, page, "frame")


def _query(asked: Mapping[str, str], **more: str) -> str:
    query = QueryDict(mutable=True)
    query.update({name: asked[name] for name in FILTER if asked.get(name)} | more)
    return query.urlencode()


def _read_filter(submitted: QueryDict) -> QueryDict:
    """Return the filter that a form of dead letters includes."""
    query = QueryDict(mutable=True)
    query.update({name: str(submitted[name]) for name in (*FILTER, "page") if submitted.get(name)})
    return query


@declare_page("plant.view")
def letter_page(request: HttpRequest, queue: str, node: str, dead_id: str) -> HttpResponse:
    """Show one letter; 404 if it is gone."""
    get_object_or_404(Queue, name=queue)
    submitted = get_rejected_form(request).submitted
    shown_letter, unreachable = _find_letter(request, queue, node, dead_id)
    row = parse_row_id(request.GET.get("event", "") or submitted.get("row", "")) or 0
    events = shown_letter.events if shown_letter else []
    row = row if row < len(events) else 0
    event = events[row] if events else None
    page = DeadLetterPage(
        queue=queue,
        node=node,
        dead_id=dead_id,
        letter=shown_letter,
        unreachable=unreachable,
        row=row,
        event_id=event["id"] if event else None,
        form=({field: submitted.get(EVENT + field, "") for field in EDITABLE}) if submitted else _as_text(event),
    )
    return render_page(request, page, "frame", 200 if shown_letter else 503 if unreachable else 404)


@declare_page("queue.peek")
def download_bytes(request: HttpRequest, queue: str, node: str, dead_id: str) -> HttpResponse:
    """Return the letter's bytes as a file, even if unreadable; the letter's page if it is gone."""
    require_permission(actor_of(request), "queue.peek", [queue])
    shown_letter, _ = _find_letter(request, queue, node, dead_id)
    if shown_letter is None:
        return call_page(letter_page, request, queue=queue, node=node, dead_id=dead_id)
    return dead_letters.build_download_response(shown_letter)


def _find_letter(request: HttpRequest, queue: str, node: str, dead_id: str) -> tuple[NamedDeadLetter | None, bool]:
    try:
        return dead_letters.open_letter(actor_of(request), queue, node, dead_id), False
    except BadInput:
        return None, False
    except NodeUnavailable:
        return None, True


def _as_text(event: Mapping[str, Any] | None) -> dict[str, str]:
    """Return an event's fields as editable text."""
    if event is None:
        return {}
    cells = {field: "" if event[field] is None else event[field] for field in EDITABLE}
    time = event["time"].isoformat().replace("+00:00", "Z")
    return {**cells, "time": time, "value": format_for_input(event["value"])}


@declare_action("dead_letters.requeue", letters_page)
def act(request: HttpRequest) -> ActionResult:
    """Requeue or discard letters, or propose a plan that requeues them at a pace.

    Posted: action (requeue, discard, retry), letter (repeated names) or all=1 with the filter, through, digest and
    count of what was shown; reason; to discard, confirm (the queue's name).
    """
    posted, actor = request.POST, actor_of(request)
    wanted = posted.get("action", "")
    if wanted not in (*dead_letter_steering.ACTIONS, RETRY):
        raise BadInput("action", f"must be {' or '.join(dead_letter_steering.ACTIONS)}, not {wanted[:40]!r}.")
    admit(actor, f"dead_letters.{'requeue' if wanted == RETRY else wanted}")
    if posted.get("all"):
        names = dead_letter_steering.list_matching(
            actor,
            filter_of(posted),
            parse_time(posted.get("through", ""), "through"),
            posted.get("digest", ""),
            int(parse_number(posted.get("count", ""), "count")),
        )
    else:
        names = dead_letters.parse_names(posted.getlist("letter"))
    if wanted == RETRY:
        query = dead_letters.describe_filter(filter_of(posted) if posted.get("all") else None)
        plan = propose_dead_letters(actor, names, query, posted.get("reason", ""), USUAL, timezone.now())
        plan_url = reverse("retry-plan", args=[plan.pk])
        return ActionResult(f"Retry plan {plan.pk} waits for approval.", plan_url, {"plan": plan.pk, "go": plan_url})
    report = dead_letter_steering.act(actor, wanted, names, posted.get("reason", ""), posted.get("confirm", ""))
    url = reverse("dead-letters") + f"?{_query(posted)}".rstrip("?")
    go = {"go": url} if posted.get("return") else {}
    return ActionResult(report.format_sentence(), url, {**vars(report), **go})


@declare_action("dead_letters.fix", letter_page)
def fix(request: HttpRequest, queue: str, node: str, dead_id: str) -> ActionResult:
    """Fix an event, then open the letter as it is now. Posted: digest (as shown), row, event-FIELD for each, reason."""
    posted, actor = request.POST, actor_of(request)
    require_permission(actor, "dead_letters.fix", [queue])
    name = Name(queue, node, dead_id, posted.get("digest", ""))
    row = int(parse_number(posted.get("row", "0"), "row"))
    reason = posted.get("reason", "")
    fixed_letter = dead_letters.find(queue, node, dead_id)
    event = fixed_letter.events[row] if fixed_letter and 0 <= row < len(fixed_letter.events) else None
    try:
        given = _read(_list_changed_fields(posted, _as_text(event)))
        mended = dead_letter_steering.fix(actor, name, row, given, reason, timezone.now())
    except BadInput as error:
        raise BadInput(EVENT + error.field if error.field in EDITABLE else error.field, error.message) from None
    url = reverse("dead-letter", args=[queue, node, mended.name.id])
    return ActionResult("The event was changed. You can requeue it now.", url, {"go": url})


def _list_changed_fields(posted: Mapping[str, str], shown: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that the user changed: browsers don't return other values exactly as they were."""
    given = {field: posted[EVENT + field] for field in EDITABLE if EVENT + field in posted}
    return {
        field: text
        for field, text in given.items()
        if field not in shown or _as_sent(field, text) != _as_sent(field, shown[field])
    }


def _as_sent(field: str, text: str) -> str:
    """Return a text as a browser would send it: line ends only from a text area, without a leading one."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removeprefix("\n") if field == "attributes" else text.replace("\n", "")


def _read(given: Mapping[str, str]) -> dict[str, Any]:
    """Parse fields as typed, including blanks: an empty field is unknown, a value is a number."""
    event: dict[str, Any] = {field: text or None for field, text in given.items()}
    for field in {"value", "time"} & event.keys():
        event[field] = (event[field] or "").strip() or None
    if event.get("value") is not None:
        event["value"] = parse_number(event["value"], "value")
    if "time" in event and event["time"] is None:
        raise BadInput("time", "is missing. Enter the time of the event.")
    return event
