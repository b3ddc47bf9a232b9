"""Throttling of a queue: its producers wait while a key on the control server exists.

The remedy ladder sets `weir:throttle:{queue}` for a share of each of its intervals, and the key expires. Producers
drop no event because of throttling: the HTTP API answers 429 with Retry-After, the Python client waits or raises
`QueueThrottled`, and the telemetry of hosts takes no samples. Only complex events of pipelines are admitted at any
time, because they result from events that were admitted.
"""

from collections.abc import Iterable, Sequence

import redis

from queues import keys

MIN_MS = 1
# PTTL of a key that does not exist, and of one without an expiry, which a person may set by hand.
MISSING, ENDLESS = -2, -1
ENDLESS_SECONDS = 5.0


def throttle(control: redis.Redis, queue: str, seconds: float) -> None:
    """Throttle the queue for this time, replacing any earlier throttling; 0 admits events at once."""
    if seconds > 0:
        control.set(keys.THROTTLE.build(queue), "1", px=max(MIN_MS, round(1000 * seconds)))
    else:
        control.delete(keys.THROTTLE.build(queue))


def load_left_seconds(control: redis.Redis, queue: str) -> float:
    """Return the time that the queue's producers still have to wait; 0 if it is not throttled."""
    return read_left_seconds([queue], [control.pttl(keys.THROTTLE.build(queue))]).get(queue, 0.0)


def build_throttle_keys(queues: Iterable[str]) -> list[str]:
    """Return the keys of these queues, for a reader that requests their PTTL in the same call as other values."""
    return [keys.THROTTLE.build(queue) for queue in queues]


def read_left_seconds(queues: Iterable[str], left_ms: Sequence[int]) -> dict[str, float]:
    """Return {queue: seconds left} of the throttled queues from the PTTL of their keys."""
    pairs = zip(queues, left_ms, strict=True)
    return {queue: ENDLESS_SECONDS if ms == ENDLESS else ms / 1000 for queue, ms in pairs if ms != MISSING}
