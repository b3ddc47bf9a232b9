"""Messages of a plant's queues that a person moves, requeues, or deletes. An adapter kind may implement it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

MOVE, REQUEUE, PURGE = "move", "requeue", "purge"
ACTIONS = (MOVE, REQUEUE, PURGE)
MAX_MESSAGES = 5_000


@dataclass(frozen=True)
class MessagePreview:
    """The oldest messages of a queue: how many wait in all, and of the oldest ones their tasks and origins.

    tasks: name of the task → messages, "" if they name none. origins: queue that a message was dead-lettered from →
    messages, "" for those that were not dead-lettered.
    """

    waiting: int
    messages: int
    tasks: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MovedMessages:
    """moved: destination → messages ("": deleted); left: messages without an origin, which stay where they are.

    missing: a destination that does not exist; its messages are at the end of their queue again.
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
        """Return what the oldest messages are. RabbitMQ marks them as redelivered."""
        ...

    def act(self, action: str, queue: str, most: int, destination: str = "") -> MovedMessages:
        """Move the oldest messages to a destination, requeue them to where they came from, or delete them.

        A message is in one queue at any time, whenever the connection ends.
        """
        ...

    def close(self) -> None: ...
