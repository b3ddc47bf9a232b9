"""The plant on this machine or cluster: its actuators, and the plant as its observer last published it.

One process observes (it needs two heartbeats to know a rate or an age), all others read its snapshot. The guard handles
a snapshot that is too old: `at` says when it was made.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

import redis
from django.db import transaction

from common.errors import WeirError
from common.stored_document import BadDocument, replace_fields
from controllers.parallelism.measured_topology import MeasuredTopology
from queues import fairness, keys, throttling
from queues.topology import KnownTopology
from workers.consumer.worker import send_workers
from workers.coordination.plant_clock import get_plant_clock
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.pipeline.declaration.controls import steer, steer_named
from workers.placement import proposals
from workers.plants.topology import build_topology, place_of
from workers.pool import orders
from workers.pool.selection import HostSelection

logger = logging.getLogger(__name__)
CANT_READ = (
    "The snapshot can't be read (%s): its observer runs a different version of Weir. Loops don't run and"
    " nodes are not recovered until the versions match. During an upgrade this is temporary; otherwise run"
    " all processes with the same version."
)


class SteeredPlant(ABC):
    """Controls, through the control server, what its subclass observes."""

    def __init__(self, control: redis.Redis, clock: Callable[[], float]) -> None:
        self._control, self._clock, self._places = control, clock, KnownTopology()
        self._selection: HostSelection | None = None  # for all workers that this plant starts, such as those of a tick

    @abstractmethod
    def observe(self) -> Snapshot:
        """Return the plant. See `workers.plants.plant.Plant`."""

    def start_workers(self, queue: str, node: str, count: int, ids: Sequence[str], ahead: int = 0) -> list[str]:
        places = self._places.read(self._control.get(keys.TOPOLOGY))
        now = self._clock()
        if self._selection is None:
            self._selection = HostSelection(orders.read_host_reports(self._control), now)
        return send_workers(self._control, places, queue, node, count, ids, now, ahead, self._selection)

    def resize_pool(self, host: str, threads: int) -> None:
        orders.order(self._control, host, threads)

    def keep_pool(self, host: str) -> None:
        orders.keep(self._control, host)

    def steer_pipeline(self, application: str, changes: Mapping[str, object]) -> None:
        steer(self._control, application, changes)

    def request_decisions(self, loops: Collection[str]) -> None:
        with transaction.atomic():
            for loop in Loop.objects.select_for_update().filter(name__in=loops).order_by("pk"):
                loop.request_decision()
                loop.save(update_fields=["state", "ticked_at", "at_rest"])

    def throttle_queue(self, queue: str, seconds: float) -> None:
        """Throttle the producers of a queue. See `queues.throttling`."""
        throttling.throttle(self._control, queue, seconds)

    def set_ordinary_weight(self, queue: str, weight: float) -> None:
        fairness.set_ordinary_weight(self._control, queue, weight)

    def move_points(self, entry: LedgerEntry) -> None:
        proposals.from_decision(entry, self.observe(), entry.at, approved=True)

    def get_topology(self) -> MeasuredTopology:
        return build_topology(self.observe())

    def hold(self, seconds: float) -> None:  # noqa: B027
        """Do nothing: its own controllers are this console's loops, which check who holds it."""

    def release(self) -> None:  # noqa: B027
        """Do nothing: nothing is held."""

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set the tasks of pipeline operators, from the next batch or the one after it.

        Operators of an application change together; several applications change one after the other.
        """
        snapshot = self.observe()
        wanted: dict[str, dict[str, int]] = {}
        for name, count in build_topology(snapshot).check_tasks(tasks).items():
            application, operator = place_of(name)
            wanted.setdefault(application, {})[operator] = count
        for application, counts in wanted.items():
            in_force = snapshot.pipeline.applications[application].controls.tasks
            steer_named(self._control, application, "tasks", counts, in_force)


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
        """Return the newest published snapshot. Raise `NotObserved` if there is none, or none that can be read."""
        stored = self._control.get(keys.SNAPSHOT)
        if stored is None:
            raise NotObserved("There is no snapshot yet. Start the observer (manage.py observe).")
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


def open_published_plant(control: redis.Redis) -> PublishedPlant:
    """Return this plant, with times by this host's clock, whichever clock the observer uses."""
    return PublishedPlant(control, get_plant_clock().get_unix_time, get_plant_clock().compute_ahead_seconds)
