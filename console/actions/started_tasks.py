"""Tasks that a person starts at an attached plant: authorized, audited with redacted arguments, and sent once.

All raise `PermissionDenied`, `BadInput` that names the field, `PlantUnavailable`, and `InvalidPlantResponse`.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.actions.plant_control import get_registered_plant
from console.actions.task_history import find_task
from console.audit import audit_log
from workers.plants.foreign import adapters
from workers.plants.foreign.kind import TaskRequest
from workers.plants.foreign.redaction import SHOWN, format_arguments
from workers.plants.models import RegisteredPlant
from workers.retries.items import is_json_value
from workers.steering.overrides import read_reason

MAX_NAME = 255
MAX_ARGUMENTS = 64 * 1024  # bytes of JSON
# A Redis broker delivers a task again that waits for longer than its visibility timeout, by default an hour.
MAX_DELAY_SECONDS = 3_000.0


@dataclass(frozen=True, kw_only=True)
class TaskToStart:
    """A task to start. args: positional arguments; kwargs: named arguments; delay_seconds: before its start."""

    name: str
    queue: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    delay_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StoredRequest:
    """A task of the history as fields of the form that starts a task.

    args, kwargs: JSON, "" for none. are_known: whether they are the exact arguments.
    """

    task: str
    queue: str
    args: str = ""
    kwargs: str = ""
    are_known: bool = False


def load_stored_request(actor: Actor, plant: str, task_id: str) -> StoredRequest | None:
    """Return a stored task to start again; None if it is unknown.

    It has arguments only if they are known exactly, JSON can express them, and the actor may view them.
    """
    record = find_task(actor, plant, task_id)
    if record is None:
        return None
    arguments = record.parse_arguments()
    if arguments is None or not all(map(is_json_value, arguments)):
        return StoredRequest(task=record.name, queue=record.queue)
    args, kwargs = (json.dumps(value, ensure_ascii=False) if value else "" for value in arguments)
    return StoredRequest(task=record.name, queue=record.queue, args=args, kwargs=kwargs, are_known=True)


def parse_arguments(text: str, field: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """Return arguments from JSON: a list or an object, an empty one for an empty text. Raises `BadInput`."""
    what = 'a list, such as [1, "x"]' if kind is list else 'an object, such as {"limit": 10}'
    try:
        value = orjson.loads(text) if text.strip() else kind()
    except orjson.JSONDecodeError as error:
        raise BadInput(field, f"must be {what}, in JSON: {error}.") from None
    if not isinstance(value, kind):
        raise BadInput(field, f"must be {what}, in JSON.")
    return value


def start_task(actor: Actor, plant: str, wanted: TaskToStart, reason: str) -> TaskRequest:
    """Send a task to a plant once; return it with its ID.

    The task is checked against the plant's workers first, so a rejected task is not sent. If the plant doesn't confirm
    it, the audit log has the ID, and the task is not sent again.
    """
    require_permission(actor, "plant.start_task", subjects=[f"plant/{plant}"])
    why, row, request = read_reason(reason), get_registered_plant(plant), _build_request(wanted)
    if not adapters.get_kind(row.kind).starts_tasks:
        raise BadInput("plant", f"{plant} has no tasks that Weir can start.")
    with adapters.open_bounded(row) as bounded:
        bounded.check_task(request)
        with audit_log.record_attempt(
            actor, "plant.start_task", plant, reason=why, after=_describe_for_audit(row, request)
        ):
            bounded.start_task(request)
    return request


def _build_request(wanted: TaskToStart) -> TaskRequest:
    for field, name in (("task", wanted.name), ("queue", wanted.queue)):
        if not 1 <= len(name) <= MAX_NAME:
            raise BadInput(field, f"must have 1 to {MAX_NAME} characters.")
    kwargs = dict(wanted.kwargs or {})
    if len(orjson.dumps([wanted.args, kwargs])) > MAX_ARGUMENTS:
        raise BadInput("args", f"and kwargs must have at most {MAX_ARGUMENTS:,} bytes of JSON together.")
    if not 0 <= wanted.delay_seconds <= MAX_DELAY_SECONDS:
        raise BadInput("delay_seconds", f"must be 0 to {MAX_DELAY_SECONDS:,.0f}, not {wanted.delay_seconds:g}.")
    return TaskRequest(
        id=str(uuid.uuid4()),
        name=wanted.name,
        queue=wanted.queue,
        args=tuple(wanted.args),
        kwargs=kwargs,
        delay_seconds=wanted.delay_seconds,
    )


def _describe_for_audit(row: RegisteredPlant, request: TaskRequest) -> dict[str, Any]:
    shown = row.options.get("arguments") or SHOWN
    return {
        "id": request.id,
        "task": request.name,
        "queue": request.queue,
        "arguments": format_arguments(repr(tuple(request.args)), repr(dict(request.kwargs)), shown),
        "delay_seconds": request.delay_seconds,
    }
