"""Ticks of attached plants' loops, and of what else is done there each some seconds, each plant's in a thread
of its own: one that answers slowly, or not at all, keeps nobody else's loops waiting.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from django.db import close_old_connections

from workers.plants.published import NotObserved

logger = logging.getLogger(__name__)
MOST_THREADS = 16  # plants that are asked at once; where as many hang, others wait for the first of them


NOT_TICKED = "The loops of %s were not ticked; they are at the next second."


class AttachedTicks:
    """Threads of this process. Two processes do not meet: a loop is ticked under its lease, and what is done
    besides may be done twice. failed: what is logged, with the plant's name.
    """

    def __init__(self, failed: str = NOT_TICKED) -> None:
        self._failed = failed
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="attached")
        self._running: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def begin(self, plant: str, job: Callable[[], object]) -> None:
        """In its thread, at once; not while the plant's last one runs: what was due then is due still."""
        with self._lock:
            before = self._running.get(plant)
            if before is None or before.done():
                self._running[plant] = self._threads.submit(self._tick, plant, job)

    def _tick(self, plant: str, job: Callable[[], object]) -> None:
        close_old_connections()
        try:
            with suppress(NotObserved):
                job()
        except Exception:
            logger.exception(self._failed, plant)
        finally:
            close_old_connections()
