"""Addresses of tasks and of groups of failures."""

from collections.abc import Mapping
from urllib.parse import urlencode

from django.urls import reverse

from console.accounts.access import Actor
from console.actions.group_revocations import can_revoke_at
from console.actions.retries import list_retryable_plants
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant
from workers.task_history.record import TaskRecord


def build_task_url(record: TaskRecord) -> str:
    return build_id_url(record.plant, record.id)


def build_id_url(plant: str, task_id: str) -> str:
    """Return the address of a task. Its id is in the query: a producer may have chosen any text."""
    return f"{reverse('stored-task')}?{urlencode({'plant': plant, 'id': task_id})}"


def build_search_url(plant: str, query: str) -> str:
    asked = {"plant": plant, "query": query} if query else {"plant": plant}
    return f"{reverse('task-history')}?{urlencode(asked)}"


def build_failures_url(plant: str) -> str:
    return f"{reverse('failures')}?{urlencode({'plant': plant})}"


def build_start_url(actor: Actor, record: TaskRecord) -> str:
    """Return the form that starts a stored task again; "" where the actor may not, or the plant starts no tasks.

    Only the ID is in the address: addresses are logged, and arguments may be confidential.
    """
    if not record.name or not actor.may_somewhere("plant.start_task"):
        return ""
    row = RegisteredPlant.objects.filter(name=record.plant).first()
    kind = adapters.list_kinds().get(row.kind) if row else None
    if kind is None or not kind.starts_tasks:
        return ""
    return f"{reverse('plant', args=[record.plant])}?{urlencode({'again': record.id})}#start-task-title"


def build_revoke_url(actor: Actor, plant: str, query: str) -> str:
    """Return the preview that revokes the unfinished tasks of a search; "" where the actor may not."""
    if not plant or not query or not actor.may_somewhere("plant.scale"):
        return ""
    row = RegisteredPlant.objects.filter(name=plant).first()
    if row is None or not can_revoke_at(row.kind):
        return ""
    return f"{reverse('plant-revoke', args=[plant])}?{urlencode({'q': query})}"


def join_query(query: str, fields: Mapping[str, str]) -> str:
    """Return a query with further fields, without those that are empty."""
    return " ".join(filter(None, [query, *(f'{name}:"{value}"' for name, value in fields.items() if value)]))


class RetryLinks:
    """Addresses of dry runs that send tasks again; "" where the actor may not, or the plant's tasks can't be sent."""

    def __init__(self, actor: Actor) -> None:
        self._plants = frozenset(list_retryable_plants() if actor.may("retry.propose") else ())

    def build_url(self, plant: str, query: str, fields: Mapping[str, str] | None = None) -> str:
        """Return the dry run of the tasks that match a query and further fields."""
        if plant not in self._plants:
            return ""
        text = join_query(query, fields or {})
        return f"{reverse('retries')}?{urlencode({'plant': plant, 'q': text})}" if text else ""
