"""Addresses of tasks and of groups of failures."""

from urllib.parse import urlencode

from django.urls import reverse

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
