"""User actions on the messages of an attached plant's queues: previewed, authorized, and audited.

All raise PermissionDenied, BadInput that names the field, PlantUnavailable, and InvalidPlantResponse.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated

from common.errors import BadInput
from common.stored_document import Instant, StoredDocument, describe
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.connections.control_server import load_latest_snapshot
from controllers.framework.reason import format_count
from workers.documents.snapshot import NOTHING_SEEN
from workers.plants.foreign import adapters
from workers.plants.foreign.bounded import call_within
from workers.plants.foreign.queue_messages import (
    ACTIONS,
    MAX_MESSAGES,
    MOVE,
    PURGE,
    MessagePreview,
    QueueMessages,
    WaitingMessage,
)
from workers.plants.models import RegisteredPlant
from workers.steering.overrides import read_reason
from workers.task_history import search

MAX_PREVIEWED, MAX_SHOWN = 500, 50
# A broker moves some hundred messages per second at least.
SECONDS = 60.0
WORDS = {"move": "moved", "requeue": "requeued", "purge": "deleted permanently"}


class PreviewedMessage(StoredDocument, frozen=True, kw_only=True):
    """A message that waits in a queue."""

    id: Annotated[str, describe("ID of its task.")]
    task: Annotated[str, describe("Name of its task.")]
    args: Annotated[str, describe("Positional arguments, redacted as in the task history.")]
    kwargs: Annotated[str, describe("Named arguments, redacted as in the task history.")]
    size_bytes: Annotated[int, describe("Size of the body, B.")]
    sent_at: Annotated[
        Instant | None, describe("Time when the message was sent, from the message or the task history; null: unknown.")
    ]
    origin: Annotated[str, describe('Queue that it was dead-lettered from; "": none.')]
    priority: int | None


class PreviewedMessages(StoredDocument, frozen=True, kw_only=True):
    """The messages of a queue that workers take next."""

    queue: str
    waiting: Annotated[int, describe("Messages that wait in the queue.")]
    messages: Annotated[int, describe("The previewed messages, which the other fields describe.")]
    tasks: Annotated[dict[str, int], describe("Name of the task → messages.")]
    origins: Annotated[dict[str, int], describe('Queue that they were dead-lettered from → messages; "": none.')]
    oldest: Annotated[list[PreviewedMessage], describe(f"The first {MAX_SHOWN} of them.")]


class MessagesReport(StoredDocument, frozen=True, kw_only=True):
    """The result of an action on messages."""

    action: Annotated[str, describe(values=ACTIONS)]
    messages: int
    destinations: dict[str, int]
    left: Annotated[int, describe("Messages that were not dead-lettered, and stay in the queue.")]
    said: str


def list_queue_names(plant: str) -> list[str]:
    """Return the queues of a plant that the newest snapshot names."""
    seen = (load_latest_snapshot() or NOTHING_SEEN).plants.get(plant)
    return seen.queue_names if seen else []


def preview(actor: Actor, plant: str, queue: str, count: int) -> PreviewedMessages:
    """Return the messages that workers take next; the audit log records that the actor saw them."""
    require_permission(actor, "messages.move")
    most = min(_check_count(count), MAX_PREVIEWED)
    with _open(plant) as messages:
        seen: MessagePreview = call_within(SECONDS, plant, messages.preview, queue, most)
    after = {"messages": len(seen.messages), "waiting": seen.waiting}
    audit_log.record(actor, "messages.preview", f"{plant} {queue}", after=after)
    return PreviewedMessages(
        queue=queue,
        waiting=seen.waiting,
        messages=len(seen.messages),
        tasks=dict(seen.tasks),
        origins=dict(seen.origins),
        oldest=_describe_messages(plant, list(seen.messages[:MAX_SHOWN])),
    )


def act(
    actor: Actor, plant: str, queue: str, action: str, count: int, reason: str, destination: str = "", confirm: str = ""
) -> MessagesReport:
    """Move, requeue, or delete the oldest messages. To delete them, `confirm` is the name of the queue."""
    if action not in ACTIONS:
        raise BadInput("action", f"must be {', '.join(ACTIONS)}, not {action[:40]!r}.")
    if action == PURGE:
        require_permission(actor, "messages.purge")
    else:
        require_permission(actor, "messages.move")
    why, most = read_reason(reason), _check_count(count)
    if action == MOVE and (not destination or destination == queue):
        raise BadInput("destination", f"must be a queue other than {queue[:100]}, which has the messages.")
    if action == PURGE and confirm != queue:
        raise BadInput("confirm", f"must be the name {queue[:100]}: deleted messages can't be restored.")
    target = f"{plant} {queue}"
    audited = f"messages.{action}"
    # The audit entry is written first: a broker that fails halfway must not leave a change without an author.
    audit_log.record(actor, audited, target, reason=why, before={"messages": most, "destination": destination})
    with _open(plant) as messages:
        result = call_within(SECONDS, plant, messages.act, action, queue, most, destination)
    after = {"messages": result.total, "destinations": dict(result.moved), "left": result.left}
    audit_log.record(actor, audited, target, reason=why, after=after)
    said = f"{format_count(result.total, 'message')} {WORDS[action]}."
    if result.left:
        said += f" {format_count(result.left, 'message')} stayed: no queue is known that they came from."
    if result.missing:
        said += f" {result.missing} does not exist. Its messages are at the end of {queue} again."
    return MessagesReport(
        action=action, messages=result.total, destinations=dict(result.moved), left=result.left, said=said
    )


def has_messages(kind: str) -> bool:
    """Return whether people can view and move the messages of plants of a kind."""
    return kind in adapters.list_kinds() and adapters.list_kinds()[kind].open_messages is not None


def _describe_messages(plant: str, messages: list[WaitingMessage]) -> list[PreviewedMessage]:
    """Return messages; of those without a time, the task history may know when they were sent."""
    ids = [message.id for message in messages if message.sent_at is None and message.id]
    known = search.list_recent(plant, ids) if ids else {}
    timed = [
        replace(message, sent_at=known[message.id].sent) if message.id in known else message for message in messages
    ]
    return [PreviewedMessage(**asdict(message)) for message in timed]


def _check_count(count: int) -> int:
    if not 0 < count <= MAX_MESSAGES:
        raise BadInput("count", f"must be from 1 to {MAX_MESSAGES:,}, not {count}.")
    return count


@contextmanager
def _open(plant: str) -> Iterator[QueueMessages]:
    row = RegisteredPlant.objects.filter(name=plant).first()
    if row is None:
        raise BadInput("plant", f"{plant[:40]} is not registered. Choose an attached Celery app.")
    opened = adapters.get_kind(row.kind).open_messages
    if opened is None:
        raise BadInput("plant", f"{plant} has no queues of a Celery app. Choose an attached Celery app.")
    messages = opened(adapters.build_address(row), list_queue_names(plant))
    try:
        yield messages
    finally:
        messages.close()
