"""Addresses of tasks and of groups of failures."""

from collections.abc import Mapping
from urllib.parse import urlencode

from django.urls import reverse

from console.accounts.access import Actor
from console.actions.retries import list_retryable_plants
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


class RetryLinks:
    """Addresses of dry runs that send tasks again; "" where the actor may not, or the plant's tasks can't be sent."""

    def __init__(self, actor: Actor) -> None:
        self._plants = frozenset(list_retryable_plants() if actor.may("retry.propose") else ())

    def build_url(self, plant: str, query: str, fields: Mapping[str, str] | None = None) -> str:
        """Return the dry run of the tasks that match a query and further fields."""
        if plant not in self._plants:
            return ""
        given = {name: value for name, value in (fields or {}).items() if value}
        text = " ".join(filter(None, [query, *(f'{name}:"{value}"' for name, value in given.items())]))
        return f"{reverse('retries')}?{urlencode({'plant': plant, 'q': text})}" if text else ""
