"""When a failed application is tried again, and after how many tries its process gives way to a new one.

Each pause is twice the one before, at most `LONGEST_SECONDS`. What fails again and again in one session of
Spark may fail because of it: a query that could not be stopped keeps its name, a context that was stopped
takes no more. So after `SESSION_TRIES` the process ends, and its supervisor starts another. What fails for
want of room or of the control server is no such try: that is waited for.
"""

import time
from collections.abc import Callable

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 15.0
SESSION_TRIES = 4
LONG_ENOUGH_SECONDS = 60.0  # after which a failure is a new one


class RestartBackoff:
    """Of one application in one process. `started` and `failed` in turn."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.tries, self._started_at, self._due_at = 0, 0.0, 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is to be started now."""
        return self._monotonic() >= self._due_at

    @property
    def gives_up(self) -> bool:
        """Whether another try in this process is of no use."""
        return self.tries >= SESSION_TRIES

    def record_start(self) -> None:
        """It is being started."""
        self._started_at = self._monotonic()

    def record_failure(self) -> float:
        """It has failed; the seconds until the next try."""
        if self._monotonic() - self._started_at > LONG_ENOUGH_SECONDS:
            self.tries = 0
        pause: float = min(FIRST_SECONDS * 2**self.tries, LONGEST_SECONDS)
        self.tries += 1
        self._due_at = self._monotonic() + pause
        return pause

    def waits(self) -> float:
        """What a start needs is not there; the seconds until that is asked again."""
        self._due_at = self._monotonic() + FIRST_SECONDS
        return FIRST_SECONDS

    def forget(self) -> None:
        """A person starts it: at once, and as if it had never failed."""
        self.tries, self._due_at = 0, 0.0
