"""The actuators of the plant on this machine or cluster, for readers of the live plant or of its snapshot."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis

from controllers.parallelism.measured_topology import MeasuredTopology
from queues import keys
from queues.topology import Topology as Places
from workers.consumer.dispatch import send_workers
from workers.coordination import connections
from workers.documents.snapshot import Snapshot
from workers.pipeline.declaration.steering import steer, steer_named
from workers.plants.topology import build_topology, place_of
from workers.pool import orders


class SteeredPlant(ABC):
    """Controls, through the control server, what its subclass observes."""

    def __init__(self, control: redis.Redis, clock: Callable[[], float]) -> None:
        self._control, self._clock = control, clock

    @abstractmethod
    def observe(self) -> Snapshot:
        """Return the plant. See `workers.plants.plant.Plant`."""

    def start_workers(self, queue: str, node: str, count: int, ids: Sequence[str], ahead: int = 0) -> list[str]:
        """Start workers. See `workers.consumer.dispatch.send_workers`."""
        places = Places.from_json(self._control.get(keys.TOPOLOGY))
        return send_workers(self._control, places, queue, node, count, ids, self._clock(), ahead)

    def resize_pool(self, host: str, threads: int) -> None:
        """Resize a pool. See `workers.pool.orders`."""
        orders.order(self._control, host, threads)

    def keep_pool(self, host: str) -> None:
        """Keep a pool's order. See `workers.pool.orders`."""
        orders.keep(self._control, host)

    def steer_pipeline(self, application: str, changes: Mapping[str, Any]) -> None:
        """Set controls of an application. See `workers.pipeline.declaration.steering`."""
        steer(self._control, application, changes)

    def throttle_queue(self, queue: str, seconds: float) -> None:
        """Throttle the producers of a queue. See `workers.coordination.connections`."""
        connections.throttle(self._control, queue, seconds)

    def get_topology(self) -> MeasuredTopology:
        """Return the topology. See `workers.plants.topology`."""
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
