"""Messages of Celery's protocol 2 that run a task again.

Celery's events tell neither the callbacks of a task nor its chain or chord: the message has none, so a retried task
continues no chain. Its id is a new one, as that of `apply_async`; the failed task is its parent.
"""

import base64
import json
import uuid
from typing import Any

from amqp import Message

from workers.plants.foreign.retry_outlet import RetriedTask

HEADER = "weir_retry"
CONTENT_TYPE, CONTENT_ENCODING = "application/json", "utf-8"
PERSISTENT = 2
ORIGIN = "weir"


def build_body(task: RetriedTask) -> bytes:
    """Return the arguments as JSON. Raises TypeError or ValueError if JSON can't express them."""
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return json.dumps([list(task.args), dict(task.kwargs), embedded], allow_nan=False).encode()


def build_headers(task: RetriedTask) -> dict[str, Any]:
    return {
        "lang": "py",
        "task": task.task,
        "id": task.id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": task.root or task.retry_of,
        "parent_id": task.retry_of,
        "argsrepr": task.args_text or "()",
        "kwargsrepr": task.kwargs_text or "{}",
        "origin": ORIGIN,
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
        HEADER: {"plan": task.plan, "task": task.retry_of, "queue": task.queue},
    }


def build_redis_message(task: RetriedTask) -> bytes:
    """Return the message as kombu stores it in a list."""
    document = {
        "body": base64.b64encode(build_body(task)).decode(),
        "content-encoding": CONTENT_ENCODING,
        "content-type": CONTENT_TYPE,
        "headers": build_headers(task),
        "properties": {
            "correlation_id": task.id,
            "reply_to": "",
            "delivery_mode": PERSISTENT,
            "delivery_info": {"exchange": "", "routing_key": task.queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid5(uuid.NAMESPACE_OID, task.id)),
        },
    }
    return json.dumps(document).encode()


def build_amqp_message(task: RetriedTask) -> Message:
    return Message(
        build_body(task),
        content_type=CONTENT_TYPE,
        content_encoding=CONTENT_ENCODING,
        delivery_mode=PERSISTENT,
        correlation_id=task.id,
        application_headers=build_headers(task),
    )


def read_destination(message: Message) -> str:
    """Return the queue that a staged message is for."""
    return str((message.headers or {})[HEADER]["queue"])
