"""Waiting for a real process: poll a condition until a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

import httpx
import redis

T = TypeVar("T")
# A busy host may take minutes for what a calm one does in milliseconds, and only a failure waits for so long.
MAX_SECONDS = 120.0


def until(condition: Callable[[], T], seconds: float = MAX_SECONDS, every_seconds: float = 0.02) -> T:
    """The condition's first true value; the test fails when there is none in time. Connection errors pass."""
    deadline = time.monotonic() + seconds
    last_error: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if value := condition():
                return value
        except (OSError, redis.RedisError, httpx.TransportError) as error:
            last_error = error
        time.sleep(every_seconds)
    raise AssertionError(f"not within {seconds} s: {condition} (last error: {last_error})")
