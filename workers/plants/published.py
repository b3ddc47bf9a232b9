"""The local plant as its observer last published it; ticks read it.

One process observes (it needs two heartbeats to know a rate or an age), all others read its snapshot. The guard handles
a snapshot that is too old: `at` says when it was made.
"""

import logging
import threading
from collections.abc import Callable

import redis

from common.errors import WeirError
from common.stored_document import BadDocument, replace_fields
from queues import keys
from workers.documents.snapshot import Snapshot
from workers.plants.steered import SteeredPlant

logger = logging.getLogger(__name__)
CANT_READ = (
    "The snapshot can't be read (%s): its observer runs a different version of Weir. Loops don't run and"
    " nodes are not recovered until the versions match. During an upgrade this is temporary; otherwise run"
    " all processes with the same version."
)


class NotObserved(WeirError):  # noqa: N818
    """No snapshot has been published yet, or none that can be read here."""


class Readability:
    """Logs once that snapshots can't be read, and once that they can be read again.

    It does so for all threads of a process, whose reads happen every second.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unreadable = False

    def note(self, error: BadDocument | None) -> None:
        """Note the result of reading the newest snapshot: None if it was read."""
        with self._lock:
            changed = self._unreadable != (error is not None)
            self._unreadable = error is not None
        if changed and error is not None:
            logger.warning(CANT_READ, error)
        elif changed:
            logger.warning("The snapshot can be read again.")


READABILITY = Readability()


class PublishedPlant(SteeredPlant):
    """Reads `weir:snapshot`, and starts workers like the local plant.

    ahead_seconds: how far the reader's clock is ahead of the plant's. If it is given, `at` of an observation is by the
    reader's clock. Otherwise the difference of two hosts' clocks would count as age, and hold every loop.
    """

    def __init__(
        self, control: redis.Redis, clock: Callable[[], float], ahead_seconds: Callable[[], float] | None = None
    ) -> None:
        super().__init__(control, clock)
        self._ahead_seconds = ahead_seconds

    def observe(self) -> Snapshot:
        """Return the newest published snapshot.

        Raise `NotObserved` if there is none, or none that can be read.
        """
        stored = self._control.get(keys.SNAPSHOT)
        if stored is None:
            raise NotObserved("There is no snapshot yet; start the observer (manage.py observe).")
        try:
            snapshot = Snapshot.from_json(stored)
        except BadDocument as error:
            READABILITY.note(error)
            raise NotObserved(f"The snapshot can't be read ({error}).") from None
        READABILITY.note(None)
        if self._ahead_seconds is None or snapshot.at is None or snapshot.ahead_seconds is None:
            return snapshot
        ahead = self._ahead_seconds()
        return replace_fields(snapshot, at=snapshot.at - snapshot.ahead_seconds + ahead, ahead_seconds=ahead)
