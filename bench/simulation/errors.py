"""Errors that faults of the environment explain, and the description of all others."""

import traceback
from pathlib import Path

import redis
from django.db import InterfaceError, OperationalError

from common.errors import WeirError

# A server was away, or is no longer the primary.
UNAVAILABLE = (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError)
# Or the database was away, or Weir refused something.
EXPECTED = (*UNAVAILABLE, OperationalError, InterfaceError, WeirError)


def describe_error(error: BaseException) -> str:
    """Return an error with the place in Weir's code that raised it."""
    own = [row for row in traceback.extract_tb(error.__traceback__) if "site-packages" not in row.filename]
    place = f" in {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}: {error}{place}"
