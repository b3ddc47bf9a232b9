"""Pauses of a queue: `intake` accepts no new events, `consumption` gives out none of the waiting ones.

Each is a key on the control server (`weir:pause:{queue}:{part}`) that expires automatically, even if no process is left
to end it. Nothing is dropped: acknowledged events wait, and a block that a worker has is finished. Publishers and
workers check for a pause here; people see it as its override (`workers.steering`).
"""

import math
from collections.abc import Iterable

import redis

from common.stored_document import StoredDocument, decode_document, encode_document
from queues import keys
from queues.control.replies import expect_bytes

INTAKE, CONSUMPTION = "intake", "consumption"
PARTS = (INTAKE, CONSUMPTION)


class Pause(StoredDocument, frozen=True):
    """A pause. until: seconds since 1970."""

    until: float
    reason: str
    by: str

    def compute_left_seconds(self, now: float) -> int:
        """Return the whole seconds to wait, at least one."""
        return max(1, math.ceil(self.until - now))


def pause(control: redis.Redis, queue: str, part: str, until: Pause, now: float) -> None:
    """Pause until then, in place of any earlier pause. A time in the past resumes."""
    left_ms = round(1000 * (until.until - now))
    if left_ms <= 0:
        resume(control, queue, part)
        return
    control.set(keys.PAUSE.build(queue, part), encode_document(until), px=left_ms)


def resume(control: redis.Redis, queue: str, part: str) -> None:
    """End a pause now. Does nothing if there is none."""
    control.delete(keys.PAUSE.build(queue, part))


def load_pauses(control: redis.Redis, queues: Iterable[str], part: str) -> dict[str, Pause]:
    """Return {queue: its pause} for the paused queues. Raises `redis.RedisError`."""
    names = list(queues)
    if not names:
        return {}
    stored = expect_bytes(control).mget(build_pause_keys(names, part))
    return read(names, stored)


def build_pause_keys(queues: Iterable[str], part: str) -> list[str]:
    """Return the keys of these queues, for a reader that requests more in the same call."""
    return [keys.PAUSE.build(queue, part) for queue in queues]


def read(queues: Iterable[str], stored: Iterable[bytes | str | None]) -> dict[str, Pause]:
    """Parse the values of `names_of`, in its order. Raises `BadDocument`."""
    pairs = zip(queues, stored, strict=True)
    return {queue: decode_document(Pause, text, "pause") for queue, text in pairs if text is not None}
