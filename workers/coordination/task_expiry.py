"""Expiry of Celery tasks by the plant's clock at both ends.

Celery writes the time by the sender's clock and compares it with the worker's: a host whose clock is ahead would
discard all tasks that it receives instead of leaving them to other hosts.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from celery.worker.request import Request
from celery.worker.state import revoked

from workers.coordination.plant_clock import get_plant_clock

SYNCHRONISED_SECONDS = 0.5  # clocks that NTP synchronizes differ by less


def set_expiry(
    headers: dict[str, Any], ahead_seconds: Callable[[], float] = lambda: get_plant_clock().compute_ahead_seconds()
) -> None:
    """Correct the `expires` of a task that is sent, which uses this host's clock."""
    if not isinstance(expires := headers.get("expires"), str):
        return
    ahead = ahead_seconds()
    if abs(ahead) > SYNCHRONISED_SECONDS:
        headers["expires"] = (datetime.fromisoformat(expires) - timedelta(seconds=ahead)).isoformat()


class TimedRequest(Request):
    """A task as a worker receives it."""

    def maybe_expire(self) -> Literal[True] | None:
        """Return whether the task has expired. It is then revoked: its sender sends another."""
        if not self.expires or datetime.fromtimestamp(get_plant_clock().get_unix_time(), UTC) <= self.expires:
            return None
        revoked.add(self.id)
        return True
