"""Temporary throttling of a queue.

The key `weir:throttle:{queue}` on the control server exists while publishers over HTTP are asked to wait (429); its
remaining time to live is when to try again.
"""

import redis

from queues import keys

MIN_MS = 1


def throttle(control: redis.Redis, queue: str, seconds: float) -> None:
    """Throttle the queue for this time, replacing any earlier throttling; 0 admits events at once."""
    if seconds > 0:
        control.set(keys.THROTTLE.build(queue), "1", px=max(MIN_MS, round(1000 * seconds)))
    else:
        control.delete(keys.THROTTLE.build(queue))
