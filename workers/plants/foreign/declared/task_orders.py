"""The last order of each operator of a declared plant, while its sensor may not show it yet.

Prometheus scrapes about every 15 s; until then a sensor reports the former tasks. A process that orders again in that
time must count from what was ordered, or `up` would be called again at every tick.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import redis

from queues import keys


@dataclass(frozen=True)
class LastTaskOrder:
    """The ordered tasks, and what the sensor reported at that time (`seen`)."""

    tasks: int
    seen: int

    def is_shown_by(self, tasks: int) -> bool:
        """Return whether the sensor shows the order.

        A sensor that reported this value all along, because it was two orders late, shows nothing.
        """
        return tasks == self.tasks != self.seen


class TaskOrders(Protocol):
    """The orders of one plant: the last one of each operator, for its number of seconds."""

    def get_pending(self, operator: str) -> LastTaskOrder | None:
        """Return the pending order, or None."""
        ...

    def note(self, operator: str, order: LastTaskOrder, seconds: float) -> None: ...

    def forget(self, operator: str) -> None: ...


class SharedTaskOrders:
    """Orders that are stored on the control server, where every process of Weir sees them."""

    def __init__(self, control: redis.Redis, plant: str) -> None:
        self._control, self._plant = control, plant

    def get_pending(self, operator: str) -> LastTaskOrder | None:
        stored = self._control.get(keys.TASK_ORDER.build(self._plant, operator))
        return LastTaskOrder(**json.loads(stored)) if stored else None

    def note(self, operator: str, order: LastTaskOrder, seconds: float) -> None:
        document = json.dumps({"tasks": order.tasks, "seen": order.seen})
        self._control.set(keys.TASK_ORDER.build(self._plant, operator), document, px=round(seconds * 1_000))

    def forget(self, operator: str) -> None:
        self._control.delete(keys.TASK_ORDER.build(self._plant, operator))


class OwnTaskOrders:
    """Orders that only this process knows, for a dry run and for tests."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._noted: dict[str, tuple[float, LastTaskOrder]] = {}

    def get_pending(self, operator: str) -> LastTaskOrder | None:
        until, order = self._noted.get(operator, (0.0, None))
        return order if self._monotonic() < until else None

    def note(self, operator: str, order: LastTaskOrder, seconds: float) -> None:
        self._noted[operator] = self._monotonic() + seconds, order

    def forget(self, operator: str) -> None:
        self._noted.pop(operator, None)
