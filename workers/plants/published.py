"""The local plant as its observer last published it: what ticks look at.

One process watches (it must see two heartbeats to know a rate or an age), all others read what it saw. A
snapshot that is too old is the guard's business: `at` says when it was made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import redis

from queues.errors import WeirError
from queues.topology import KEY, Topology
from workers.dispatch import send_workers
from workers.pipeline.steering import steer
from workers.plants.plant import Snapshot

SNAPSHOT_KEY = "weir:snapshot"


class NotObserved(WeirError):  # noqa: N818
    """No snapshot has been published yet."""


class PublishedPlant:
    """Reads `weir:snapshot`, and starts workers like the local plant."""

    def __init__(self, control: redis.Redis, clock: Callable[[], float]) -> None:
        self._control, self._clock = control, clock

    def observe(self) -> Snapshot:
        """The newest published snapshot. Raises NotObserved when there is none."""
        stored = self._control.get(SNAPSHOT_KEY)
        if stored is None:
            raise NotObserved("There is no snapshot yet; start the observer (manage.py observe).")
        snapshot: Snapshot = orjson.loads(stored)
        return snapshot

    def start_workers(
        self, queue: str, node: str, count: int, ids: Sequence[str], ahead: int = 0
    ) -> list[str]:
        """See `workers.dispatch.send_workers`."""
        topology = Topology.from_json(self._control.get(KEY))
        return send_workers(self._control, topology, queue, node, count, ids, self._clock(), ahead)

    def steer_pipeline(self, application: str, changes: Mapping[str, Any]) -> None:
        """See `workers.pipeline.steering`."""
        steer(self._control, application, changes)
