"""The pool of a worker host, made larger and smaller while it works.

Celery grows a pool of processes (prefork) at once. Its `shrink` takes only processes that do nothing, of
which a pool under load has none. So a pool gets smaller by a word to leave (`leave`), put behind the work
that was handed to the pool before: whichever process is free next takes it, and ends. No work is cut off.
"""

import logging
from dataclasses import dataclass
from typing import Any

import orjson

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """As many processes as `threads`, for the life of the process `pid`."""

    threads: int
    pid: int

    @classmethod
    def read(cls, stored: bytes | None) -> "Order | None":
        """What is stored, or None."""
        return None if stored is None else cls(**orjson.loads(stored))


def leave() -> None:
    """Run in a process of the pool: it ends well, and is not replaced."""
    raise SystemExit(0)


class Pool:
    """The pool of a Celery worker (`WorkController`), for `workers.pool.hosts`."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self.started_with = self.size
        self.last_error = ""  # why it could not be made as large as was asked

    @property
    def _processes(self) -> Any:
        """Billiard's pool; None for pools of threads."""
        processes = getattr(self._controller.pool, "_pool", None)
        return processes if hasattr(processes, "_pool") else None

    @property
    def resizable(self) -> bool:
        """Whether it has processes that can be more and fewer."""
        return self._processes is not None and not getattr(self._controller, "autoscaler", None)

    @property
    def slots(self) -> tuple[int, ...]:
        """The processes there are, by their pid, also those that have still to leave."""
        pool = self._processes
        return () if pool is None else tuple(process.pid for process in pool._pool)

    @property
    def size(self) -> int:
        """How many tasks can run at once now; what `inspect` calls max-concurrency stays as it was."""
        pool = self._controller.pool
        return len(self.slots) if self._processes is not None else int(getattr(pool, "num_processes", 1) or 1)

    def bring_to(self, threads: int) -> None:
        """Have it grow or shrink to so many processes, at least one. What hinders it is its `last_error`."""
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
                logger.warning("The pool can't be brought to %d processes: %r", threads, error)
            self.last_error = f"{type(error).__name__}: {error}"

    def _grow(self, count: int) -> None:
        self._controller.pool.grow(count)
        self._controller.consumer._update_prefetch_count(count)
        self._controller.pool.maintain_pool()

    def _shrink(self, count: int) -> None:
        pool = self._processes
        for _ in range(count):
            # As Pool.shrink does, but for the process: that one goes by itself.
            pool._processes -= 1
            if pool._putlock:
                pool._putlock.shrink()
            pool.apply_async(leave)
        self._controller.consumer._update_prefetch_count(-count)
