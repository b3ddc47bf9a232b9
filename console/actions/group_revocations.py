"""Groups of unfinished tasks that a person revokes at an attached plant: previewed, authorized, and audited.

All raise PermissionDenied, BadInput that names the field, PlantUnavailable, and InvalidPlantResponse.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from common.errors import BadInput
from common.stored_document import Instant, StoredDocument, describe
from console.accounts.access import Actor, require_permission
from console.actions import task_history
from console.actions.plant_control import get_registered_plant
from console.actions.task_history import TaskSearch
from console.audit import audit_log
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant
from workers.steering.overrides import read_reason
from workers.task_history.record import FINISHED, OPEN, TaskRecord

MAX_TASKS, MAX_SHOWN, MAX_NAMES = 1_000, 50, 20
# An older preview no longer describes the tasks.
MAX_PREVIEW_SECONDS = 600.0


class RevocableTask(StoredDocument, frozen=True, kw_only=True):
    """An unfinished task of a group."""

    id: str
    name: str
    state: str
    queue: str
    worker: str


class GroupPreview(StoredDocument, frozen=True, kw_only=True):
    """The unfinished tasks of a search. Nothing is stored or revoked."""

    plant: str
    query: str
    at: Annotated[Instant, describe("Time of the preview. Only tasks that existed then are revoked.")]
    tasks: Annotated[int, describe("Number of unfinished tasks that the search finds.")]
    is_complete: Annotated[bool, describe(f"Whether the search finds at most {MAX_TASKS:,} unfinished tasks.")]
    names: Annotated[dict[str, int], describe("Number of tasks by name, for the most frequent names.")]
    states: Annotated[dict[str, int], describe("Number of tasks by state.")]
    first: Annotated[list[RevocableTask], describe(f"The first {MAX_SHOWN} tasks.")]


class GroupRevocation(StoredDocument, frozen=True, kw_only=True):
    """Tasks that were revoked together."""

    plant: str
    query: str
    tasks: Annotated[int, describe("Number of tasks that Weir asked the workers to revoke.")]
    terminated: Annotated[bool, describe("Whether Weir also ended running tasks.")]


def preview(actor: Actor, plant: str, query: str, now: float) -> GroupPreview:
    """Return the unfinished tasks of a search."""
    require_permission(actor, "plant.scale", subjects=[f"plant/{plant}"])
    _get_plant(plant)
    records, is_complete = _select(actor, plant, query, now)
    return GroupPreview(
        plant=plant,
        query=query,
        at=now,
        tasks=len(records),
        is_complete=is_complete,
        names=dict(Counter(record.name for record in records).most_common(MAX_NAMES)),
        states=dict(Counter(record.state for record in records)),
        first=[
            RevocableTask(id=record.id, name=record.name, state=record.state, queue=record.queue, worker=record.worker)
            for record in records[:MAX_SHOWN]
        ],
    )


def revoke(
    actor: Actor, plant: str, query: str, previewed_at: float, reason: str, *, terminate: bool, now: float
) -> GroupRevocation:
    """Revoke the unfinished tasks of a search that existed at its preview. terminate: also end those that run.

    The audit log has the search and the number of tasks. If a worker doesn't confirm, the error names it.
    """
    require_permission(actor, "plant.scale", subjects=[f"plant/{plant}"])
    why, row = read_reason(reason), _get_plant(plant)
    if not 0 <= now - previewed_at <= MAX_PREVIEW_SECONDS:
        minutes = MAX_PREVIEW_SECONDS / 60
        raise BadInput(
            "at", f"must be the time of a preview of the last {minutes:.0f} minutes. Preview the tasks again."
        )
    records, is_complete = _select(actor, plant, query, now)
    if not is_complete:
        raise BadInput("query", f"finds more than {MAX_TASKS:,} unfinished tasks. Narrow the search.")
    ids = [record.id for record in records if _first_seen(record) <= previewed_at]
    if not ids:
        raise BadInput(
            "query", "finds no unfinished task that existed at the preview. Change the search, and preview it again."
        )
    after = {"query": query, "tasks": len(ids), "terminate": terminate}
    with (
        adapters.open_bounded(row) as bounded,
        audit_log.record_attempt(actor, "plant.revoke_tasks", plant, reason=why, after=after),
    ):
        bounded.revoke_tasks(ids, terminate)
    return GroupRevocation(plant=plant, query=query, tasks=len(ids), terminated=terminate)


def can_revoke_at(kind: str) -> bool:
    """Return whether tasks of plants of a kind can be revoked."""
    return kind in adapters.list_kinds() and adapters.list_kinds()[kind].revokes_tasks


def _get_plant(plant: str) -> RegisteredPlant:
    row = get_registered_plant(plant)
    if not can_revoke_at(row.kind):
        raise BadInput("plant", f"{plant} has no tasks that Weir can revoke. Choose an attached Celery app.")
    return row


def _select(actor: Actor, plant: str, query: str, now: float) -> tuple[Sequence[TaskRecord], bool]:
    """Return the unfinished tasks, newest first, and whether these are all."""
    if not query.strip():
        raise BadInput("query", "is missing. Enter a search, such as name:shop.pay.")
    asked = task_history.build_search(actor, query, plant, now=now)
    if asked.query.state in FINISHED:
        state = asked.query.state
        raise BadInput(
            "query", f"selects {state} tasks, which can't be revoked. Replace state:{state} with state:{OPEN}."
        )
    unfinished = TaskSearch(asked.plants, replace(asked.query, state=asked.query.state or OPEN))
    tasks = {record.id: record for record in task_history.iterate_tasks(actor, unfinished, MAX_TASKS + 1)}
    records = list(tasks.values())
    return records[:MAX_TASKS], len(records) <= MAX_TASKS


def _first_seen(record: TaskRecord) -> float:
    """Return the earliest time at which the task is known to have existed."""
    times = [record.sent, record.received, record.started, record.at]
    return min(time for time in times if time is not None)
