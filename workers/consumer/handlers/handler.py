"""The port behind which a queue's work is done."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workers.consumer.handlers.delivery import Delivery
from workers.consumer.handlers.effects import Outcome


class Handler(Protocol):
    """Handles the events of one queue.

    `handle` is called by a worker with several blocks at once, and with parts of one block while poison is
    being separated. It either answers with an Outcome (blocks in `failures` are tried again, all others are
    acknowledged), or raises: then nothing of the call counts as handled, and each block is tried alone. It
    may be called with the same blocks again, and must then have no second effect
    (`workers.consumer.handlers.effects`).
    """

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome: ...


def works_block_by_block(handler: Handler) -> bool:
    """Whether it says so (`works_block_by_block = True`): a call may then be divided at no cost."""
    return bool(getattr(handler, "works_block_by_block", False))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a handler works: for which queue, and in which data folder."""

    queue: str
    data: Path
