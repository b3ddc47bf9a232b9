"""Bugs that are planted to test the checker. They replace parts of the product in a bench's process, and only there."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import redis

from common.errors import WeirError
from queues.events.block import EncodedBlock
from queues.publishing.client import Client
from queues.segments import gauge
from workers.coordination import leases


def _skip_fence() -> None:
    """Let a worker that was overtaken change a block that another worker holds."""
    held = "redis.pcall('XPENDING', stream, group, id, id, 1, worker)"
    for name, text in gauge.SCRIPTS.items():
        gauge.SCRIPTS[name] = text.replace(held, "redis.pcall('XPENDING', stream, group, id, id, 1)")


def _acknowledge_before_write() -> None:
    """Acknowledge a flush before it is sent; its failure is not noticed."""

    def send(self: Client, queue: str, node: str, blocks: Sequence[EncodedBlock]) -> None:
        def store() -> None:
            with suppress(WeirError):
                self.get_segment(queue, node).publish(blocks)

        self._senders.submit(store)

    Client.send = send  # type: ignore[method-assign]


def _forget_lease() -> None:
    """Give a lease to a second holder while the first one has it."""
    call = leases._call

    def call_forgetful(
        control: redis.Redis, script: str, places: Sequence[str], arguments: Sequence[str | int]
    ) -> list[int]:
        forgetful = script.replace("if holder == nil then", "if holder ~= token then")
        return call(control, forgetful, places, arguments)

    leases._call = call_forgetful


BUGS: dict[str, Callable[[], None]] = {
    "skip a fence": _skip_fence,
    "acknowledge before the write": _acknowledge_before_write,
    "forget a lease": _forget_lease,
}
