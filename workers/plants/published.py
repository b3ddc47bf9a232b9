"""The local plant as its observer last published it: what ticks read.

One process watches (it must see two heartbeats to know a rate or an age), all others read what it saw. A
snapshot that is too old is the guard's business: `at` says when it was made.
"""

from queues import keys
from queues.errors import WeirError
from workers.documents.snapshot import Snapshot
from workers.plants.steered import SteeredPlant


class NotObserved(WeirError):  # noqa: N818
    """No snapshot has been published yet."""


class PublishedPlant(SteeredPlant):
    """Reads `weir:snapshot`, and starts workers like the local plant."""

    def observe(self) -> Snapshot:
        """The newest published snapshot. Raises NotObserved when there is none, and BadDocument."""
        stored = self._control.get(keys.SNAPSHOT)
        if stored is None:
            raise NotObserved("There is no snapshot yet; start the observer (manage.py observe).")
        return Snapshot.from_json(stored)
