"""The tasks of a retry plan, with all that their messages need."""

import ast
import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from common.stored_document import get_decoder
from workers.plants.foreign.retry_outlet import RetriedTask

CODEC = "zstd"
_SIZE_BYTES = 8


class RetryItem(msgspec.Struct, array_like=True, frozen=True):
    """A task to send again.

    id: of the failed task, or the name of the dead letter. queue: where it is sent. args, kwargs: Python literals; of
    a dead letter "". root: id of the root task.
    """

    id: str
    name: str
    queue: str
    args: str = ""
    kwargs: str = ""
    root: str = ""


@dataclass(frozen=True)
class PaceLimits:
    """The limits that a user sets: the range of rates in tasks per second, and whose retry budget applies.

    calls: what the tasks call, such as a server; "" for the plant.
    """

    min_rate: float
    max_rate: float
    calls: str = ""


def build_new_id(plan: int, created_at: float, task_id: str) -> str:
    """Return the id under which a plan sends a task again. However often its message is written, the id is the same.

    created_at: of the plan, in seconds since 1970; the number of a deleted plan may be used again.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"weir retry {plan} {created_at:.6f} {task_id}"))


def is_json_value(value: object) -> bool:
    """Return whether JSON keeps the value as it is, apart from tuples, which become lists."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and is_json_value(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_json_value, value))
    return value is None or isinstance(value, str | bool | int | float)


def build_task(item: RetryItem, plan: int, created_at: float) -> RetriedTask:
    """Return the task to send. Raises ValueError if the arguments are no literals: they were checked when selected."""
    return RetriedTask(
        id=build_new_id(plan, created_at, item.id),
        retry_of=item.id,
        plan=plan,
        task=item.name,
        queue=item.queue,
        root=item.root,
        args=ast.literal_eval(item.args or "()"),
        kwargs=ast.literal_eval(item.kwargs or "{}"),
        args_text=item.args,
        kwargs_text=item.kwargs,
    )


def encode_items(items: Sequence[RetryItem]) -> bytes:
    text = msgspec.json.encode(items)
    packed: bytes = pa.compress(text, codec=CODEC, asbytes=True)
    return len(text).to_bytes(_SIZE_BYTES, "big") + packed


def decode_items(stored: "bytes | memoryview[int]") -> list[RetryItem]:
    data = bytes(stored)
    size = int.from_bytes(data[:_SIZE_BYTES], "big")
    items: list[RetryItem] = get_decoder(list[RetryItem]).decode(
        pa.decompress(data[_SIZE_BYTES:], size, CODEC, asbytes=True)
    )
    return items


def compute_hash(kind: str, plant: str, items: Sequence[RetryItem], limits: PaceLimits) -> str:
    """Return SHA-256 of what an approver approves: every message, the permitted pace, and the retry budget."""
    content = msgspec.json.encode([kind, plant, items, limits.min_rate, limits.max_rate, limits.calls])
    return hashlib.sha256(content).hexdigest()
