"""The interface through which a retry plan sends tasks of a plant again. An adapter kind may implement it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from common.errors import WeirError


class DestinationMissing(WeirError):  # noqa: N818
    """A queue that messages were to be sent to does not exist. They are still staged."""


class StagingLost(WeirError):  # noqa: N818
    """Staged messages were deleted or moved by somebody else, or the broker has lost them."""


@dataclass(frozen=True, kw_only=True)
class RetriedTask:
    """A task to run again.

    id: its new id; retry_of: that of the failed task, which becomes its parent. plan: number of the retry plan. args,
    kwargs: JSON values; args_text, kwargs_text: as Python prints them.
    """

    id: str
    retry_of: str
    plan: int
    task: str
    queue: str
    root: str = ""
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    args_text: str = ""
    kwargs_text: str = ""


class RetryOutlet(Protocol):
    """The place where the tasks of one plan are staged, and from which they are sent.

    Tasks are sent in the order in which they were staged. Each is staged or sent, never both, whenever a process or a
    connection dies. All methods raise PlantUnavailable, InvalidPlantResponse, DestinationMissing, and StagingLost.

    settle_seconds: how long staged tasks may be hidden that a frozen connection holds; nothing is complete before.
    """

    settle_seconds: float

    def write_staging(self, tasks: Sequence[RetriedTask]) -> int:
        """Replace the staged tasks, and return how many there are. Nothing is sent."""
        ...

    def count_staged(self) -> int:
        """Return how many tasks are staged and not sent."""
        ...

    def send(self, most: int) -> int:
        """Send the oldest staged tasks, and return how many there were."""
        ...

    def discard(self) -> int:
        """Delete all staged tasks, and return how many there were."""
        ...

    def count_waiting(self, queues: Sequence[str]) -> int:
        """Return how many messages wait in these queues."""
        ...

    def close(self) -> None: ...
