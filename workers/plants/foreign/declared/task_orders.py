"""What was last ordered of each operator of a declared plant, while its sensor may not show it yet.

Prometheus scrapes each 15 s or so; until then a sensor says the tasks there were. Whoever orders again in
that time, this process or another, must count from what was ordered, or `up` would be called once more at
every tick.
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
    """tasks: that were ordered. seen: what the sensor said then."""

    tasks: int
    seen: int

    def is_shown_by(self, tasks: int) -> bool:
        """Whether the sensor says what was ordered. One that said so all along, since it was two orders late,
        shows nothing.
        """
        return tasks == self.tasks != self.seen


class TaskOrders(Protocol):
    """Of one plant: the last order of each operator, for so many seconds."""

    def get_pending(self, operator: str) -> LastTaskOrder | None:
        """None: nothing is under way."""
        ...

    def note(self, operator: str, order: LastTaskOrder, seconds: float) -> None: ...

    def forget(self, operator: str) -> None: ...


class SharedTaskOrders:
    """On the control server: every process of ours sees them."""

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
    """Of this process alone: for a dry run, and tests."""

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
