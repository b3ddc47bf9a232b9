"""A server that accepts no writes, since its disk is full or fails (MISCONF), counts as unavailable.

redis-py raises the same error for it as for an invalid command (ResponseError). Code that waits for an unavailable
server did not wait for this one, and Celery's workers ended. redis-py's table of errors is the one place that affects
every client of a process, including kombu's; a test checks that it does.
"""

import redis
from redis._parsers.base import BaseParser


class WritesRefused(redis.ConnectionError):
    """Raised when the server answers, but writes nothing until it has space."""


def know_of_refused_writes() -> None:
    """Register the error in this process. Idempotent."""
    BaseParser.EXCEPTION_CLASSES["MISCONF"] = WritesRefused
