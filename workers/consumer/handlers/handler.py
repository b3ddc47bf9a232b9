"""The interface of event handlers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workers.consumer.handlers.delivery import Delivery
from workers.consumer.handlers.effects import Outcome


class Handler(Protocol):
    """A handler of the events of one queue.

    A worker calls `handle` with several blocks at once, and with parts of one block during the separation of poison. It
    either returns an Outcome (blocks in `failures` are tried again, all others are acknowledged), or raises: then
    nothing of the call counts as handled, and each block is tried alone. It may be called with the same blocks again,
    and must then have no second effect (`workers.consumer.handlers.effects`).
    """

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome: ...


def can_split_calls(handler: Handler) -> bool:
    """Return whether it declares `works_block_by_block = True`: a call may then be divided at no cost."""
    return bool(getattr(handler, "works_block_by_block", False))


@dataclass(frozen=True, slots=True)
class Place:
    """The context of a handler: its queue and the data folder."""

    queue: str
    data: Path
