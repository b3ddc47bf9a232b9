"""When a failed application is tried again, and after how many tries its process is replaced.

Each pause is twice the previous one, at most `MAX_SECONDS`. An application that fails repeatedly in one Spark session
may fail because of it: a query that could not be stopped keeps its name, and a stopped context accepts no more work.
After `SESSION_TRIES` the process therefore ends, and its supervisor starts another. A failure for lack of disk space or
of the control server is not such a try: the process waits for these.
"""

import time
from collections.abc import Callable

FIRST_SECONDS, MAX_SECONDS = 1.0, 15.0
SESSION_TRIES = 4
LONG_ENOUGH_SECONDS = 60.0  # after which a failure counts as a new one


class RestartBackoff:
    """The backoff of one application in one process. Call `record_start` and `record_failure` in turn."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.tries, self._started_at, self._due_at = 0, 0.0, 0.0

    @property
    def is_due(self) -> bool:
        """Return whether it is to be started now."""
        return self._monotonic() >= self._due_at

    @property
    def gives_up(self) -> bool:
        """Return whether another try in this process is of no use."""
        return self.tries >= SESSION_TRIES

    def record_start(self) -> None:
        """Record that it is being started."""
        self._started_at = self._monotonic()

    def record_failure(self) -> float:
        """Record a failure, and return the seconds until the next try."""
        if self._monotonic() - self._started_at > LONG_ENOUGH_SECONDS:
            self.tries = 0
        pause: float = min(FIRST_SECONDS * 2**self.tries, MAX_SECONDS)
        self.tries += 1
        self._due_at = self._monotonic() + pause
        return pause

    def compute_wait_seconds(self) -> float:
        """Return the seconds until the next check of what a start needs and is missing."""
        self._due_at = self._monotonic() + FIRST_SECONDS
        return FIRST_SECONDS

    def forget(self) -> None:
        """Forget all failures: a person starts it, immediately."""
        self.tries, self._due_at = 0, 0.0
