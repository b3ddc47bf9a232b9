"""A server that takes no writes, since its disk is full or fails (MISCONF), is like one that is away.

redis-py raises for it what it raises for a command that is wrong (ResponseError): who waits for a server that
is away did not wait for this one, and Celery's workers ended. Its table of errors is the one place at which
every client of a process, kombu's too, learns of it; a test holds that it does.
"""

import redis
from redis._parsers.base import BaseParser


class WritesRefused(redis.ConnectionError):
    """The server answers, and writes nothing until there is room."""


def know_of_refused_writes() -> None:
    """From now on, in this process. Again does nothing more."""
    BaseParser.EXCEPTION_CLASSES["MISCONF"] = WritesRefused
