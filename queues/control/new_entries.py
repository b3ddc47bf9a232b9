"""Waiting for a stream of the control server, instead of asking it again and again."""

import math

import redis


def await_entry(control: redis.Redis, stream: str, after: str, seconds: float) -> None:
    """Returns once `stream` has an entry behind `after`, or after so many seconds; at once for 0. The seconds
    have to be fewer than the connection's timeout. Raises RedisError.
    """
    if seconds > 0:
        control.xread({stream: after}, count=1, block=math.ceil(seconds * 1000))
