"""Messages of a plant's queues that a person views, moves, requeues, or deletes. An adapter kind may implement it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MOVE, REQUEUE, PURGE = "move", "requeue", "purge"
ACTIONS = (MOVE, REQUEUE, PURGE)
MAX_MESSAGES = 5_000


@dataclass(frozen=True, kw_only=True)
class WaitingMessage:
    """A message that waits in a queue. Texts are "" if it doesn't contain them.

    args, kwargs: redacted as in the task history. size_bytes: of its body. sent_at: by the clock of the broker or of
    the producer, in seconds since 1970; None: the message has no time. origin: the queue that it was dead-lettered
    from. priority: of the message, as the broker counts; None: it has none.
    """

    id: str = ""
    task: str = ""
    args: str = ""
    kwargs: str = ""
    size_bytes: int = 0
    sent_at: float | None = None
    origin: str = ""
    priority: int | None = None


@dataclass(frozen=True)
class MessagePreview:
    """The number of messages that wait in a queue, and the messages that workers take next."""

    waiting: int
    messages: Sequence[WaitingMessage]

    @property
    def tasks(self) -> Mapping[str, int]:
        """Return name of the task → messages; "" if they name none."""
        return Counter(message.task for message in self.messages)

    @property
    def origins(self) -> Mapping[str, int]:
        """Return queue that messages were dead-lettered from → messages; "" if they were not."""
        return Counter(message.origin for message in self.messages)


@dataclass(frozen=True)
class MovedMessages:
    """moved: destination → messages ("": deleted); left: messages without an origin, which stay where they are.

    missing: a destination that does not exist. Its messages are at the end of their queue again.
    """

    moved: Mapping[str, int]
    left: int = 0
    missing: str = ""

    @property
    def total(self) -> int:
        return sum(self.moved.values())


class QueueMessages(Protocol):
    """The messages of a plant's queues. Its methods raise BadInput, PlantUnavailable, and InvalidPlantResponse."""

    def preview(self, queue: str, most: int) -> MessagePreview:
        """Return the messages that workers take next, at most so many. RabbitMQ marks them as redelivered."""
        ...

    def act(self, action: str, queue: str, most: int, destination: str = "") -> MovedMessages:
        """Move the messages that workers take next, requeue them to where they came from, or delete them.

        A message is in one queue at any time, whenever the connection ends.
        """
        ...

    def close(self) -> None: ...
