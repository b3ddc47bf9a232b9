"""A plant that is asked with a deadline: whoever orders something there waits no longer, whatever it answers.

An adapter's protocol has time limits of its own, but most of them are of one read: a server that sends a byte
now and then keeps them all. So what is ordered is done in a thread, and left alone when it is late. It may
still take effect: then it counts as an order of which nobody knows.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from controllers.parallelism.measured_topology import MeasuredTopology
from workers.plants.plant import Elastic, PlantSilent

# A tick's lease: a loop that waited longer would lose it.
ORDER_SECONDS, CLOSE_SECONDS = 4.0, 1.0


class BoundedPlant(Elastic):
    """A plant of which everything is over within `seconds`; what is late raises PlantSilent."""

    def __init__(self, name: str, plant: Elastic, seconds: float = ORDER_SECONDS) -> None:
        self._name, self._plant, self._seconds = name, plant, seconds

    def topology(self) -> MeasuredTopology:
        """The plant's."""
        found: MeasuredTopology = self._within(self._plant.topology)
        return found

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """The plant's."""
        self._within(self._plant.set_parallelism, tasks)

    def hold(self, seconds: float) -> None:
        """The plant is."""
        self._within(self._plant.hold, seconds)

    def release(self) -> None:
        """The plant is."""
        self._within(self._plant.release)

    def _within(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return within(self._seconds, self._name, call, *arguments)


def within(seconds: float, plant: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call answers or raises; PlantSilent where that takes longer."""
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
        raise PlantSilent(f"{plant} did not end its answer within {seconds:g} s.")
    return answers[0]
