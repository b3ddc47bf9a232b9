"""The port through which loops see and steer a plant; every adapter obeys
`tests/workers/plants/test_plants.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from controllers.parallelism.measured_topology import MeasuredTopology
from queues.errors import WeirError
from workers.documents.snapshot import Snapshot

LONGEST_SAID = 2_000


class PlantFailure(WeirError):  # noqa: N818
    """What is raised of a plant that others built. The message may quote it, and is stored and shown, at each
    tick of a loop: it is Unicode, of at most LONGEST_SAID characters and an ellipsis, whatever stands there.
    """

    def __init__(self, message: str) -> None:
        cut = message if len(message) <= LONGEST_SAID else f"{message[:LONGEST_SAID]}…"
        super().__init__(cut.encode(errors="replace").decode())


class PlantSilent(PlantFailure):
    """The plant did not answer in time, or not to the end: what was asked may or may not have happened."""


class PlantConfused(PlantFailure):
    """The plant answered what can't be understood, or refused us: nothing can be decided on that."""


class Elastic(Protocol):
    """What the parallelism of a plant is seen and set by; of any plant, whatever it is made of."""

    def topology(self) -> MeasuredTopology:
        """Its operators, links and measures, all of one instant; the caller's own.

        Raises PlantSilent or PlantConfused (with the reason in a sentence) when there is none to be had: then
        nothing is decided.
        """
        ...

    def hold(self, seconds: float) -> None:
        """Keep the plant's own controllers, where it has any, off its tasks for so long. Raises PlantHeld
        while another does.
        """
        ...

    def release(self) -> None:
        """Let the plant's own controllers go on at once; nothing where it has none."""
        ...

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Let operators have so many tasks, all of them or none. Setting the same again changes nothing.

        Raises `queues.errors.BadInput` naming an operator that is not there (any more) or whose tasks can't
        be so many, `workers.plants.holding.PlantHeld` while another steers the plant, and what `topology`
        raises.
        """
        ...


class Plant(Elastic, Protocol):
    """What a loop needs of its own plant: one consistent view of it, and its actuators."""

    def observe(self) -> Snapshot:
        """Give the plant as it is now. What is not known is None, never 0."""
        ...

    def start_workers(
        self, queue: str, node: str, count: int, ids: Sequence[str], ahead: int = 0
    ) -> list[str]:
        """Submit `count` short-lived workers for one container, under the `count` ids given; give back those
        ids. The first `ahead` of them run before workers of any other queue, the rest by the queue's
        priority.

        Called once the intent is in the ledger, and again with the same ids when a tick died in between. So
        an id is a promise: **however often it is submitted, its worker runs at most once** (a worker claims
        its id in the store when it starts, and one that finds it taken ends at once). That makes a
        resubmission harmless, and lets a loop repeat an action it can't be sure of without applying it twice.

        Raises `queues.errors.BadInput` when count and ids don't agree or there is no such container, and
        whatever the transport raises when the workers can't be submitted; then the ledger entry holds the
        error.
        """
        ...

    def resize_pool(self, host: str, threads: int) -> None:
        """Have a worker host run so many tasks at once, from about a second on. Work under way goes on.

        Asking twice for the same is asking once. It lapses after `workers.pool.orders.ORDER_SECONDS` unless
        it is kept; the pool then goes back to the size it was started with. Raises `queues.errors.BadInput`
        for a host that does not report or can't be resized, and for a number it does not take.
        """
        ...

    def keep_pool(self, host: str) -> None:
        """What was last asked of a host's pool stands on; without anything asked, nothing happens."""
        ...

    def steer_pipeline(self, application: str, changes: Mapping[str, Any]) -> None:
        """Put values in place of an application's controls (`workers.pipeline.declaration.controls`):
        admission, shares, tasks. They are in force within two of its batches.

        Steering twice to the same is steering once. Raises `queues.errors.BadInput` naming a control that is
        not known or takes something else; nothing is changed then.
        """
        ...

    def throttle_queue(self, queue: str, seconds: float) -> None:
        """Have a queue's producers wait for so long, as far as they can be reached; 0 lets them go on."""
        ...
