"""Waits for a stream of the control server instead of polling it."""

import math

import redis


def await_entry(control: redis.Redis, stream: str, after: str, seconds: float) -> None:
    """Return once `stream` has an entry after `after`, or after `seconds`; at once for 0.

    The seconds must be fewer than the timeout of the connection. Raises `RedisError`.
    """
    if seconds > 0:
        control.xread({stream: after}, count=1, block=math.ceil(seconds * 1000))
