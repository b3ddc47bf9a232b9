"""The task history as an actor may see it: searches, single tasks, and groups of failures.

The arguments of Weir's own dead letters are the contents of events. An actor who may not view the events of a queue
gets these tasks without arguments, and does not search their texts.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from common.errors import BadInput
from console.accounts.access import Actor
from console.actions.dead_letters import may_open
from console.models import Mark
from workers.plants.models import RegisteredPlant
from workers.plants.registry import LOCAL
from workers.task_history import failures, search
from workers.task_history.models import FailureGroup, TaskFeed
from workers.task_history.query import TaskQuery, parse_query
from workers.task_history.record import SUCCEEDED, TaskRecord
from workers.task_history.search import Family, FoundTasks

ADDRESS_NAMES = {"since": "from", "until": "to"}  # of fields that addresses name otherwise
MAX_COMPARED, COMPARE_SECONDS = 500, 0.5
MIN_COMPARED = 5  # runs from which a usual run time is computed


@dataclass(frozen=True)
class TaskSearch:
    """A search in the history of some plants."""

    plants: Sequence[str]
    query: TaskQuery


@dataclass(frozen=True, kw_only=True)
class UsualRunTime:
    """Run times of the last succeeded runs of a kind of task, s."""

    p50_seconds: float
    p95_seconds: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class FailureTrend:
    """A group of failures, and whether it is new since the last deploy; per_hour: of the last day, the oldest first."""

    group: FailureGroup
    deploy: Mark | None
    per_hour: Sequence[int]


def list_plants() -> list[str]:
    """Return the plants that have a history, or may get one: this plant first, then by name."""
    names = {*RegisteredPlant.objects.values_list("name", flat=True), *TaskFeed.objects.values_list("plant", flat=True)}
    return [LOCAL, *sorted(names - {LOCAL})]


def has_history(plant: str) -> bool:
    return TaskFeed.objects.filter(plant=plant).exists()


def build_search(
    actor: Actor, text: str, plant: str = "", fields: Mapping[str, str] | None = None, now: float | None = None
) -> TaskSearch:
    """Return the search of a query and of further fields; plant: "" for all. Raises `BadInput` that names the field."""
    plants = _choose_plants(plant)
    try:
        query = parse_query(text, time.time() if now is None else now, fields)
    except BadInput as error:
        raise BadInput(ADDRESS_NAMES.get(error.field, error.field), error.message) from None
    if has_texts(query) and not _may_read(actor, LOCAL, query.queue):
        if plant == LOCAL:
            raise BadInput("query", "must not have words: they are compared with events that you may not view.")
        plants = [name for name in plants if name != LOCAL]
    return TaskSearch(plants, query)


def has_texts(query: TaskQuery) -> bool:
    """Return whether the query has words or texts, which are compared with arguments, too."""
    return bool(query.words or query.texts)


def find_tasks(actor: Actor, asked: TaskSearch, before: str | None = None, limit: int = search.LIMIT) -> FoundTasks:
    """Return a page of the tasks that match, newest first. Raises `BadInput`."""
    found = search.find(asked.plants, asked.query, before, limit)
    return replace(found, records=[_seal(actor, record) for record in found.records])


def iterate_tasks(actor: Actor, asked: TaskSearch, most: int = search.MAX_SELECTED) -> Iterator[TaskRecord]:
    """Yield the tasks that match, newest first, up to a number; by default that of one export."""
    return (_seal(actor, record) for record in search.iterate(asked.plants, asked.query, most))


def find_task(actor: Actor, plant: str, task_id: str) -> TaskRecord | None:
    """Return a task; None if it is unknown."""
    record = search.get(plant, task_id)
    return None if record is None else _seal(actor, record)


def is_sealed(actor: Actor, record: TaskRecord) -> bool:
    """Return whether the actor gets the task without its arguments."""
    return bool(record.queue) and not _may_read(actor, record.plant, record.queue)


def list_family(actor: Actor, record: TaskRecord) -> Family:
    """Return the tasks around a task."""
    family = search.list_family(record)
    return Family(
        None if family.root is None else _seal(actor, family.root),
        None if family.parent is None else _seal(actor, family.parent),
        [_seal(actor, sibling) for sibling in family.siblings],
        [_seal(actor, child) for child in family.children],
    )


def compute_usual_run_time(plant: str, name: str) -> UsualRunTime | None:
    """Return the run times of the last succeeded runs of a kind of task; None if there are too few to compare with."""
    query = TaskQuery(name=name, state=SUCCEEDED)
    found = search.find([plant], query, limit=MAX_COMPARED, budget_seconds=COMPARE_SECONDS)
    seconds = [record.run_seconds for record in found.records if record.run_seconds is not None]
    if len(seconds) < MIN_COMPARED:
        return None
    p50, p95 = np.percentile(seconds, (50, 95))
    return UsualRunTime(p50_seconds=float(p50), p95_seconds=float(p95), runs=len(seconds))


def list_failure_trends(actor: Actor, plant: str = "", name: str = "", now: float | None = None) -> list[FailureTrend]:
    """Return groups of failures, the last seen first. Raises `BadInput` that names the plant."""
    plants = _choose_plants(plant)
    groups = failures.list_groups(plants, name=name)
    began = dict(TaskFeed.objects.filter(plant__in=plants).values_list("plant", "began_at"))
    deploys = {name: find_last_deploy(name) for name in plants}
    instant = time.time() if now is None else now
    return [
        FailureTrend(
            group=group,
            deploy=_find_deploy_before(group, deploys[group.plant], began.get(group.plant)),
            per_hour=failures.count_per_hour(group, instant),
        )
        for group in groups
    ]


def find_last_deploy(plant: str) -> Mark | None:
    """Return the last deploy on the timeline that concerns the whole plant, or names this one."""
    deploys = Mark.objects.filter(kind=Mark.Kind.DEPLOY, removed_at=None).order_by("-at", "-pk")
    concerning = (mark for mark in deploys[:100] if not mark.parts or f"plant/{plant}" in mark.parts)
    return next(concerning, None)


def _find_deploy_before(group: FailureGroup, deploy: Mark | None, began_at: float | None) -> Mark | None:
    """Return the deploy if the group is new since then, and the plant was observed before: else all would be new."""
    if deploy is None or began_at is None or began_at > deploy.at.timestamp():
        return None
    return deploy if group.first_seen >= deploy.at.timestamp() else None


def _choose_plants(plant: str) -> list[str]:
    plants = list_plants()
    if plant and plant not in plants:
        raise BadInput("plant", f"{plant[:40]} is unknown. It must be one of {', '.join(plants)}.")
    return [plant] if plant else plants


def _may_read(actor: Actor, plant: str, queue: str) -> bool:
    """Return whether the actor may see the arguments of a task; queue: "" for those of any queue."""
    if plant != LOCAL:
        return True
    return may_open(actor, queue) if queue else actor.may("queue.peek") and actor.can_access_queues(None)


def _seal(actor: Actor, record: TaskRecord) -> TaskRecord:
    """Return the record without its arguments if they are events that the actor may not view."""
    if not is_sealed(actor, record):
        return record
    return msgspec.structs.replace(record, args="", kwargs="", are_exact=False)
