"""Ticks of attached plants' loops, and other periodic work at those plants, in one thread per plant.

A plant that answers slowly or not at all does not delay the loops of other plants.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from django.db import close_old_connections

from workers.plants.published import NotObserved

logger = logging.getLogger(__name__)
MAX_THREADS = 16  # plants called concurrently; when this many hang, others wait for the first to return


NOT_TICKED = "The loops of %s did not tick; the ticks are retried in the next second."


class AttachedTicks:
    """Threads of this process that do the work at attached plants.

    Processes do not coordinate: a loop is ticked under its lease, but other work may be done twice. failed: the log
    message of a failure, formatted with the plant's name.
    """

    def __init__(self, failed: str = NOT_TICKED) -> None:
        self._failed = failed
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="attached")
        self._running: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def begin(self, plant: str, job: Callable[[], object]) -> None:
        """Run the job in the plant's thread, unless the plant's previous job is still running.

        Work that is skipped remains due.
        """
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
