"""User actions on the messages of an attached plant's queues: previewed, authorized, and audited.

All raise PermissionDenied, BadInput that names the field, PlantUnavailable, and InvalidPlantResponse.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from common.errors import BadInput
from common.stored_document import StoredDocument, describe
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from controllers.framework.reason import format_count
from workers.plants.foreign import adapters
from workers.plants.foreign.bounded import call_within
from workers.plants.foreign.queue_messages import ACTIONS, MAX_MESSAGES, MOVE, PURGE, QueueMessages
from workers.plants.models import RegisteredPlant
from workers.steering.overrides import read_reason

MAX_PREVIEWED = 500
# A broker moves some hundred messages per second at least.
SECONDS = 60.0
WORDS = {"move": "moved", "requeue": "requeued", "purge": "deleted permanently"}


class PreviewedMessages(StoredDocument, frozen=True, kw_only=True):
    """The oldest messages of a queue."""

    queue: str
    waiting: Annotated[int, describe("Messages that wait in the queue.")]
    messages: Annotated[int, describe("The oldest messages, which the other fields describe.")]
    tasks: Annotated[dict[str, int], describe("Name of the task → messages.")]
    origins: Annotated[dict[str, int], describe('Queue that they were dead-lettered from → messages; "": none.')]


class MessagesReport(StoredDocument, frozen=True, kw_only=True):
    """The result of an action on messages."""

    action: Annotated[str, describe(values=ACTIONS)]
    messages: int
    destinations: dict[str, int]
    left: Annotated[int, describe("Messages that were not dead-lettered, and stay in the queue.")]
    said: str


def preview(actor: Actor, plant: str, queue: str, count: int) -> PreviewedMessages:
    """Return what the oldest messages of a queue are."""
    require_permission(actor, "messages.move")
    most = min(_check_count(count), MAX_PREVIEWED)
    with _open(plant) as messages:
        seen = call_within(SECONDS, plant, messages.preview, queue, most)
    return PreviewedMessages(
        queue=queue, waiting=seen.waiting, messages=seen.messages, tasks=dict(seen.tasks), origins=dict(seen.origins)
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
        raise BadInput("destination", "must be another queue.")
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
        said += f" {result.missing} does not exist; its messages are at the end of {queue} again."
    return MessagesReport(
        action=action, messages=result.total, destinations=dict(result.moved), left=result.left, said=said
    )


def _check_count(count: int) -> int:
    if not 0 < count <= MAX_MESSAGES:
        raise BadInput("count", f"must be from 1 to {MAX_MESSAGES:,}.")
    return count


@contextmanager
def _open(plant: str) -> Iterator[QueueMessages]:
    row = RegisteredPlant.objects.filter(name=plant).first()
    if row is None:
        raise BadInput("plant", f"{plant[:40]} is not registered.")
    opened = adapters.get_kind(row.kind).open_messages
    if opened is None:
        raise BadInput("plant", f"{plant} has no queues of RabbitMQ.")
    messages = opened(adapters.build_address(row))
    try:
        yield messages
    finally:
        messages.close()
