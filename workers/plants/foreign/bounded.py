"""A plant that is asked with a deadline: whoever orders something there waits no longer, whatever it answers.

An adapter's protocol has time limits of its own, but most of them are of one read: a server that sends a byte
now and then keeps them all. So what is ordered is done in a thread, and left alone when it is late. It may
still take effect: then it counts as an order of which nobody knows.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from controllers.parallelism.measured_topology import MeasuredTopology
from workers.plants.foreign.answer_limit import order_seconds
from workers.plants.foreign.kind import Adapter
from workers.plants.plant import Elastic, PlantSilent

CLOSE_SECONDS = 1.0


class BoundedPlant(Elastic):
    """A plant of which everything is over within `seconds`; what is late raises PlantSilent."""

    def __init__(self, name: str, adapter: Adapter, seconds: float | None = None) -> None:
        self.adapter, self._name, self._late = adapter, name, threading.Event()
        self._seconds = order_seconds() if seconds is None else seconds

    def topology(self) -> MeasuredTopology:
        """The plant's."""
        found: MeasuredTopology = self._call_within(self.adapter.topology)
        return found

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """The plant's."""
        self._call_within(self.adapter.set_parallelism, tasks)

    def hold(self, seconds: float) -> None:
        """The plant is."""
        self._call_within(self.adapter.hold, seconds)

    def release(self) -> None:
        """The plant is."""
        self._call_within(self.adapter.release)

    def read_before(self, kind: str, subject: str, value: str, earlier: str = "") -> str:
        """The plant's."""
        found: str = self._call_within(self.adapter.read_before, kind, subject, value, earlier)
        return found

    def intervene(self, kind: str, subject: str, value: str) -> None:
        """At the plant."""
        self._call_within(self.adapter.intervene, kind, subject, value)

    def undo(self, kind: str, subject: str, before: str) -> None:
        """At the plant."""
        self._call_within(self.adapter.undo, kind, subject, before)

    def close(self) -> None:
        """At once, or by the order that is late, once that ends: it is not cut off in the midst of it."""
        if not self._late.is_set():
            with suppress(PlantSilent):
                call_within(CLOSE_SECONDS, self._name, self.adapter.close)

    def _call_within(self, call: Callable[..., Any], *arguments: Any) -> Any:
        def ask() -> Any:
            try:
                return call(*arguments)
            finally:
                if self._late.is_set():
                    self.adapter.close()

        try:
            return call_within(self._seconds, self._name, ask)
        except PlantLate:
            self._late.set()
            raise


class PlantLate(PlantSilent):
    """What was asked is still under way."""


def call_within(seconds: float, plant: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call answers or raises; PlantLate where that takes longer."""
    answers: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call(*arguments))
        except BaseException as error:  # it is raised where it was asked for
            errors.append(error)

    thread = threading.Thread(target=run, name=f"order to {plant}", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise PlantLate(f"{plant} did not end its answer within {seconds:g} s; it may still take effect.")
    return answers[0]
