"""The content of a message of a Celery app, read without running any code of the app.

Celery's protocol 2 has the task in the headers, and its arguments as texts, which the app may have replaced to hide
them. Protocol 1, and messages without these texts, have the arguments only in the body, which is read if it is JSON.
Other bodies, such as pickles, are never decoded.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from common.checks import is_number, is_whole, make_storable
from workers.plants.foreign.celery_app.task_updates import read_arguments
from workers.plants.foreign.celery_app.transport import parse_name
from workers.plants.foreign.queue_messages import WaitingMessage

JSON = "application/json"
DEATHS = "x-death"
MILLISECONDS_HEADER = "timestamp_in_ms"  # set by RabbitMQ if it is configured to
MAX_PRIORITY = 255


def describe_message(
    headers: Mapping[str, Any], properties: Mapping[str, Any], content_type: str, body: bytes, shown: str
) -> WaitingMessage:
    """Return what a message says. shown: the option `arguments` of the plant."""
    document = _parse_body(content_type, body)
    if "task" in headers:
        task, task_id = headers.get("task"), headers.get("id")
        args, kwargs = headers.get("argsrepr"), headers.get("kwargsrepr")
        if args is None and isinstance(document, list) and len(document) > 1:
            args, kwargs = repr(document[0]), repr(document[1])
    elif isinstance(document, dict):
        task, task_id = document.get("task"), document.get("id")
        args, kwargs = repr(document.get("args", [])), repr(document.get("kwargs", {}))
    else:
        task, task_id, args, kwargs = "", properties.get("correlation_id"), None, None
    shown_args, shown_kwargs, _ = read_arguments({"args": args or "", "kwargs": kwargs or ""}, shown)
    priority = properties.get("priority")
    return WaitingMessage(
        id=make_storable(parse_name(task_id)),
        task=make_storable(parse_name(task)),
        args=shown_args or "",
        kwargs=shown_kwargs or "",
        size_bytes=len(body),
        sent_at=_read_time(headers, properties),
        origin=find_origin(headers) or "",
        priority=priority if is_whole(priority, 0, MAX_PRIORITY) else None,
    )


def find_origin(headers: Mapping[str, Any]) -> str | None:
    """Return the queue that a message was last dead-lettered from; None if it was not dead-lettered."""
    deaths = headers.get(DEATHS)
    last = deaths[0] if isinstance(deaths, list) and deaths else None
    queue = last.get("queue") if isinstance(last, dict) else None
    return queue if isinstance(queue, str) and queue else None


def _parse_body(content_type: str, body: bytes) -> object:
    if content_type != JSON:
        return None
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document


def _read_time(headers: Mapping[str, Any], properties: Mapping[str, Any]) -> float | None:
    milliseconds = headers.get(MILLISECONDS_HEADER)
    if is_number(milliseconds, 0, 1e15):
        return float(milliseconds) / 1_000
    at = properties.get("timestamp")
    return at.timestamp() if isinstance(at, datetime) else None
