"""The task history: tasks of attached plants and of this plant, searched and exported, and their failures in groups."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypedDict

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from ninja import Query, Schema
from pydantic import Field

from common.stored_document import Instant, Seconds, describe
from console.accounts.access import Actor
from console.actions import task_history
from console.actions.exports import ROWS, export
from console.actions.task_history import FailureTrend, TaskSearch
from console.api.request.answers import EXPORTED_ROWS, Router, build_answer
from console.api.request.authentication import actor_for
from console.api.request.input import check_rows
from workers.task_history.gaps import find_gap_of
from workers.task_history.models import TaskGap
from workers.task_history.record import OPEN, STATES, TaskRecord

router = Router(tags=["task history"])
TIMES = "A time such as 2026-11-20T08:14:00Z, or how long ago: 30s, 15m, 2h, 7d."


class StoredTask(TypedDict):
    """A task. Texts are redacted and shortened."""

    plant: str
    id: str
    name: str
    state: Annotated[str, describe(values=STATES)]
    at: Annotated[Instant, describe("Time of the last event about the task.")]
    queue: Annotated[str, describe("Name of the queue; empty: unknown.")]
    worker: str
    args: Annotated[str, describe("Positional arguments as Python prints them.")]
    kwargs: Annotated[str, describe("Named arguments as Python prints them.")]
    are_exact: Annotated[bool, describe("Whether the arguments are complete and unaltered.")]
    result: str
    error: Annotated[str, describe("Error of the last failure or retry.")]
    failure: Annotated[str, describe("Fingerprint of its failure group; empty: not failed.")]
    sent: Annotated[Instant | None, describe("Time when the task was sent, by the producer's clock; null: unknown.")]
    received: Annotated[
        Instant | None, describe("Time of receipt by the worker, by the worker's clock like all later times.")
    ]
    started: Instant | None
    ended: Instant | None
    eta: str
    wait_seconds: Annotated[Seconds | None, describe("Time between receipt and start, s.")]
    run_seconds: Seconds | None
    retries: int
    parent: str
    root: str


class RelatedTasks(TypedDict):
    """The tasks around a task; siblings have the same parent."""

    root: StoredTask | None
    parent: StoredTask | None
    siblings: list[StoredTask]
    children: list[StoredTask]


class HistoryGap(TypedDict):
    """A time range in which events may be missing."""

    plant: str
    worker: Annotated[str, describe("Name of the worker; empty: all workers.")]
    since: Instant
    until: Instant
    reason: str


class UsualRuns(TypedDict):
    """Run times of the last succeeded runs of the same name."""

    p50_seconds: Seconds
    p95_seconds: Seconds
    runs: int


class StoredTaskDetail(StoredTask):
    """A task with its traceback and the tasks around it."""

    traceback: str
    retried: Annotated[int, describe("Number of attempts that ended with a retry.")]
    gap: Annotated[HistoryGap | None, describe("Gap in the event stream that may hide the end of the task.")]
    usual: Annotated[UsualRuns | None, describe("Usual run times of the task; null: too few runs.")]
    family: RelatedTasks


class FoundTaskPage(TypedDict):
    """Tasks, newest first, and the gaps of the searched time."""

    tasks: list[StoredTask]
    gaps: list[HistoryGap]
    next: Annotated[str | None, describe("The value of `before` that continues the search; null: all was searched.")]
    searched_back_to: Annotated[Instant | None, describe("Everything since then was searched; null: everything.")]


class DeployMark(TypedDict):
    """A deploy on the timeline."""

    id: int
    title: str
    at: Instant


class FailureGroupRow(TypedDict):
    """Failures of one kind of task with one cause."""

    plant: str
    fingerprint: str
    name: str
    error: Annotated[str, describe("Text of the error without numbers, IDs, and quoted texts.")]
    first_seen: Instant
    last_seen: Instant
    count: int
    queues: Annotated[dict[str, int], describe("Failures by queue.")]
    workers: Annotated[dict[str, int], describe("Failures by worker.")]
    last_task: Annotated[str, describe("ID of the task that failed last.")]
    per_hour: Annotated[list[int], describe("Failures of each of the last 24 hours, the current one last.")]
    new_since: Annotated[DeployMark | None, describe("The last deploy, if the group is new since then.")]


class FailureGroupList(TypedDict):
    """Groups of failures, the last seen first."""

    groups: list[FailureGroupRow]


class HistorySearch(Schema):
    """The search; omitted fields match all. See the query language in the documentation of the task history."""

    query: str = Field("", description='Such as `state:failed name:shop.pay order 4711 since:2h "4711 of"`.')
    plant: str = ""
    name: str = Field("", description="The whole name; with * at its end, the beginning of the name.")
    state: str = Field("", description=f"One of {', '.join((OPEN, *STATES))}.")
    worker: str = ""
    queue: str = ""
    failure: str = Field("", description="Fingerprint of a failure group.")
    since: str = Field("", alias="from", description=TIMES)
    until: str = Field("", alias="to", description=TIMES)

    def build(self, actor: Actor) -> TaskSearch:
        """Return the search. Raises `BadInput`."""
        fields: Mapping[str, str] = self.dict(exclude={"query", "plant"})
        return task_history.build_search(actor, self.query, self.plant, fields)


COLUMNS = (*StoredTask.__annotations__, "traceback")  # of an export


@router.get("/task-history", summary="Search the task history, newest first")
def list_task_history(
    request: HttpRequest, wanted: Query[HistorySearch], before: str | None = None, rows: int = 50
) -> FoundTaskPage:
    """Return matching tasks. A search that takes too long returns what it has; `next` continues it."""
    actor = actor_for(request, "plant.view")
    check_rows(rows)
    found = task_history.find_tasks(actor, wanted.build(actor), before, rows)
    return {
        "tasks": [build_answer(StoredTask, record) for record in found.records],
        "gaps": [_build_gap(gap) for gap in found.gaps],
        "next": found.next,
        "searched_back_to": found.searched_back_to,
    }


@router.get("/task-history/export", openapi_extra=EXPORTED_ROWS, summary="Export all tasks that match a search")
def export_task_history(
    request: HttpRequest, wanted: Query[HistorySearch], format: Literal["csv", "json"] = "csv"
) -> HttpResponseBase:
    """Return up to 100,000 tasks as CSV, or as JSON lines; newest first."""
    actor = actor_for(request, "plant.view")
    pages = _iterate_pages(task_history.iterate_tasks(actor, wanted.build(actor)))
    return export(request, pages, COLUMNS, "task_history", format)


@router.get("/task-history/failures", summary="List groups of failed tasks, the last seen first")
def list_failures(request: HttpRequest, plant: str = "", name: str = "") -> FailureGroupList:
    actor = actor_for(request, "plant.view")
    return {"groups": [_build_group(trend) for trend in task_history.list_failure_trends(actor, plant, name)]}


@router.get("/task-history/{plant}/{path:task_id}", summary="Get a task with its traceback and the tasks around it")
def get_stored_task(request: HttpRequest, plant: str, task_id: str) -> StoredTaskDetail:
    actor = actor_for(request, "plant.view")
    record = task_history.find_task(actor, plant, task_id)
    if record is None:
        raise Http404(f"No task {task_id[:80]} of {plant[:40]} is stored.")
    family = task_history.list_family(actor, record)
    gap = find_gap_of(record)
    usual = task_history.compute_usual_run_time(plant, record.name) if record.name else None
    return build_answer(
        StoredTaskDetail,
        record,
        **build_answer(StoredTask, record),
        gap=None if gap is None else _build_gap(gap),
        usual=None if usual is None else build_answer(UsualRuns, usual),
        family=RelatedTasks(
            root=None if family.root is None else build_answer(StoredTask, family.root),
            parent=None if family.parent is None else build_answer(StoredTask, family.parent),
            siblings=[build_answer(StoredTask, sibling) for sibling in family.siblings],
            children=[build_answer(StoredTask, child) for child in family.children],
        ),
    )


def _iterate_pages(records: Iterator[TaskRecord]) -> Iterator[list[dict[str, Any]]]:
    while page := list(itertools.islice(records, ROWS)):
        yield [{name: getattr(record, name) for name in COLUMNS} for record in page]


def _build_gap(gap: TaskGap) -> HistoryGap:
    return build_answer(HistoryGap, gap)


def _build_group(trend: FailureTrend) -> FailureGroupRow:
    deploy = trend.deploy
    mark = None if deploy is None else DeployMark(id=deploy.pk, title=deploy.title, at=deploy.at.timestamp())
    return build_answer(FailureGroupRow, trend.group, per_hour=list(trend.per_hour), new_since=mark)
