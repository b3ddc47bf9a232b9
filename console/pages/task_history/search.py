"""The search in the task history: results newest first, and the gaps between them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, QueryDict

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import task_history
from console.actions.task_history import TaskSearch
from console.navigation import DeclaredPage
from console.pages.frame.filtered_list import query_without_place
from console.pages.frame.page import ConsolePage, Errors, declare_page, render_page
from console.pages.task_history.links import RetryLinks, build_revoke_url, build_task_url, join_query
from workers.plants.registry import LOCAL
from workers.task_history.models import TaskGap
from workers.task_history.record import FINISHED, OPEN, STATES, TaskRecord
from workers.task_history.search import FoundTasks

VALUES = ("name", "worker", "queue", "state")  # filters besides the query
TIMES = {"from": "since", "to": "until"}
NOTHING_FOUND = FoundTasks([], None, None, [])


@dataclass(frozen=True)
class HistoryRow:
    """A row of the results: a task, or a gap in which events may be missing."""

    task: TaskRecord | None
    gap: TaskGap | None
    url: str = ""


@dataclass(frozen=True)
class SuggestedValues:
    """Values that the fields of a filter offer: those of the results."""

    names: Sequence[str]
    workers: Sequence[str]
    queues: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class TaskHistoryPage(ConsolePage):
    """Tasks that match a query.

    next: the address of the older results; None: all was searched. leaves_out: the plant whose tasks were not searched,
    since the user may not view its events. live: the newest page, to which new tasks are added.
    """

    TEMPLATE, NAME = "task_history/search.html", "task-history"

    plants: Sequence[str]
    states: Sequence[str]
    rows: list[HistoryRow]
    found: FoundTasks
    count: int
    suggested: SuggestedValues
    filters: QueryDict
    query: str
    leaves_out: str
    live: bool
    retry_url: str  # of the dry run that sends these tasks again
    revoke_url: str  # of the preview that revokes those of these tasks that have not finished
    errors: Errors


@declare_page("plant.view")
def search_page(request: HttpRequest) -> HttpResponse:
    """Show the tasks that the address requests: `?plant=…&query=…&name=…&state=…&from=…&to=…&before=…`."""
    actor, asked = actor_of(request), request.GET
    found, leaves_out, errors = NOTHING_FOUND, "", dict[str, list[str]]()
    try:
        wanted = read_search(request, asked)
        found = task_history.find_tasks(actor, wanted, asked.get("before") or None)
        leaves_out = "" if LOCAL in wanted.plants or asked.get("plant") else LOCAL
    except BadInput as error:
        errors = {error.field: [error.message]}
    page = TaskHistoryPage(
        plants=task_history.list_plants(),
        states=(OPEN, *STATES),
        rows=list(_iterate_rows(found)),
        found=found,
        count=len(found.records),
        suggested=_collect_suggestions(found.records),
        filters=asked,
        query=query_without_place(request),
        leaves_out=leaves_out,
        retry_url="" if errors else _build_retry_url(request),
        revoke_url="" if errors else _build_revoke_url(request),
        live=not (errors or asked.get("before") or asked.get("to")),
        errors=errors,
    )
    return render_page(request, page, "frame")


def read_search(request: HttpRequest, asked: Mapping[str, str]) -> TaskSearch:
    """Return the search that an address names. Raises `BadInput` that names the field."""
    text, plant = asked.get("query", "").strip(), asked.get("plant", "").strip()
    return task_history.build_search(actor_of(request), text, plant, _read_fields(asked))


def _read_fields(asked: Mapping[str, str]) -> dict[str, str]:
    fields = {name: asked.get(name, "").strip() for name in VALUES}
    return fields | {field: asked.get(name, "").strip() for name, field in TIMES.items()}


def _build_retry_url(request: HttpRequest) -> str:
    asked = request.GET
    links = RetryLinks(actor_of(request))
    return links.build_url(asked.get("plant", "").strip(), asked.get("query", "").strip(), _read_fields(asked))


def _build_revoke_url(request: HttpRequest) -> str:
    asked = request.GET
    if asked.get("state", "") in FINISHED:
        return ""
    query = join_query(asked.get("query", "").strip(), _read_fields(asked))
    return build_revoke_url(actor_of(request), asked.get("plant", "").strip(), query)


def _iterate_rows(found: FoundTasks) -> Iterator[HistoryRow]:
    """Yield tasks and gaps, newest first; a gap is before the first task that is older than its end."""
    gaps = list(found.gaps)
    for record in found.records:
        while gaps and gaps[0].until > record.at:
            yield HistoryRow(None, gaps.pop(0))
        yield HistoryRow(record, None, build_task_url(record))
    yield from (HistoryRow(None, gap) for gap in gaps)


def _collect_suggestions(records: Sequence[TaskRecord]) -> SuggestedValues:
    names, workers, queues = (
        sorted({getattr(record, field) for record in records} - {""}) for field in ("name", "worker", "queue")
    )
    return SuggestedValues(names, workers, queues)


PAGE = DeclaredPage(
    name=TaskHistoryPage.NAME,
    address="task-history/",
    view=search_page,
    label="Task history",
    section="history",
    help="operate/pages/task-history/",
)
