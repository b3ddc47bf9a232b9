"""The pool of a worker host, which grows and shrinks while it works.

Celery grows a pool of processes (prefork) at once. Its `shrink` takes only idle processes, of which a busy pool has
none. A pool therefore shrinks by a message to leave (`leave`), queued behind the work that the pool received before:
the next free process takes it, and ends. No work is interrupted.
"""

import logging
from dataclasses import dataclass
from typing import Any

import orjson

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """An order of `threads` processes, for the life of the process `pid`."""

    threads: int
    pid: int

    @classmethod
    def read(cls, stored: bytes | None) -> "Order | None":
        """Return the stored order, or None."""
        return None if stored is None else cls(**orjson.loads(stored))


def leave() -> None:
    """Run in a process of the pool: end cleanly, without being replaced."""
    raise SystemExit(0)


class Pool:
    """The pool of a Celery worker (`WorkController`), for `workers.pool.hosts`."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self.started_with = self.size
        self.last_error = ""  # why it could not reach the requested size

    @property
    def _processes(self) -> Any:
        """Return Billiard's pool; None for pools of threads."""
        processes = getattr(self._controller.pool, "_pool", None)
        return processes if hasattr(processes, "_pool") else None

    @property
    def resizable(self) -> bool:
        """Return whether it has processes whose number can change."""
        return self._processes is not None and not getattr(self._controller, "autoscaler", None)

    @property
    def slots(self) -> tuple[int, ...]:
        """Return the existing processes by their pid, including those that still have to leave."""
        pool = self._processes
        return () if pool is None else tuple(process.pid for process in pool._pool)

    @property
    def size(self) -> int:
        """Return how many tasks can run at once now.

        The value that `inspect` calls max-concurrency stays the initial one.
        """
        pool = self._controller.pool
        return len(self.slots) if self._processes is not None else int(getattr(pool, "num_processes", 1) or 1)

    def bring_to(self, threads: int) -> None:
        """Grow or shrink to this many processes, at least one. Its `last_error` says what prevents it."""
        if not self.resizable:
            return
        missing = max(1, threads) - self._processes._processes
        try:
            if missing > 0:
                self._grow(missing)
            elif missing < 0:
                self._shrink(-missing)
            self.last_error = ""
        except Exception as error:  # too little memory, too many processes, a pool that is being closed
            if not self.last_error:
                logger.warning("The pool can't be resized to %d processes: %r", threads, error)
            self.last_error = f"{type(error).__name__}: {error}"

    def _grow(self, count: int) -> None:
        self._controller.pool.grow(count)
        self._controller.consumer._update_prefetch_count(count)
        self._controller.pool.maintain_pool()

    def _shrink(self, count: int) -> None:
        pool = self._processes
        for _ in range(count):
            # As Pool.shrink does, except that the process leaves when it is free.
            pool._processes -= 1
            if pool._putlock:
                pool._putlock.shrink()
            pool.apply_async(leave)
        self._controller.consumer._update_prefetch_count(-count)
