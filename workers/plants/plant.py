"""The interface through which loops observe and control a plant.

Every adapter passes `tests/workers/plants/test_plants.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from common.errors import WeirError
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry

MAX_SAID = 2_000


class PlantFailure(WeirError):  # noqa: N818
    """A failure of an attached plant.

    The message may quote the plant, and is stored and shown at each tick of a loop: it is Unicode, of at most MAX_SAID
    characters and an ellipsis, whatever the plant sends.
    """

    def __init__(self, message: str) -> None:
        cut = message if len(message) <= MAX_SAID else f"{message[:MAX_SAID]}…"
        super().__init__(cut.encode(errors="replace").decode())


class PlantUnavailable(PlantFailure):
    """The plant did not answer in time, or not completely: the request may or may not have been executed."""


class InvalidPlantResponse(PlantFailure):
    """The plant gave an invalid answer, or refused the request: nothing can be decided on that."""


class ElasticPlant(Protocol):
    """Observation and setting of the parallelism of any plant."""

    def get_topology(self) -> MeasuredTopology:
        """Return its operators, links, and measures, all of one instant; the caller owns the result.

        Raise `PlantUnavailable` or `InvalidPlantResponse` with the reason in a sentence if there is none; then nothing
        is decided.
        """
        ...

    def hold(self, seconds: float) -> None:
        """Hold the plant's own controllers, if any, for this time. Raise `PlantHeld` while another controller does."""
        ...

    def release(self) -> None:
        """Release the plant's own controllers, if it has any, at once."""
        ...

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set the tasks of operators, all of them or none. Setting the same again changes nothing.

        Raise `common.errors.BadInput`, naming an operator that does not exist (any more) or that can't have this many
        tasks, `workers.plants.holding.PlantHeld` while another controller has the plant, and what `get_topology`
        raises.
        """
        ...


class Plant(ElasticPlant, Protocol):
    """The interface that a loop needs of its own plant: one consistent view of it, and its actuators."""

    def observe(self) -> Snapshot:
        """Return the current plant. Unknown values are None, never 0."""
        ...

    def start_workers(self, queue: str, node: str, count: int, ids: Sequence[str], ahead: int = 0) -> list[str]:
        """Submit `count` short-lived workers for one container under the given ids, and return the ids.

        The first `ahead` of them run before workers of any other queue, the rest by the queue's priority.

        This is called after the intent is recorded in the ledger, and again with the same ids if a tick died in
        between. So an id is a promise: **however often it is submitted, its worker runs at most once** (a worker claims
        its id in the store when it starts, and ends at once if it is taken). That makes a resubmission harmless, and
        lets a loop repeat an uncertain action without applying it twice.

        Raise `common.errors.BadInput` if count and ids don't agree or the container does not exist, and what the
        transport raises if the workers can't be submitted; the ledger entry then contains the error.
        """
        ...

    def resize_pool(self, host: str, threads: int) -> None:
        """Set how many tasks a worker host runs at once, from about one second later. Running work continues.

        Repeating the same order changes nothing. It expires after `workers.pool.orders.ORDER_SECONDS` unless it is
        kept; the pool then returns to its start size. Raise `common.errors.BadInput` for a host that does not report or
        can't be resized, and for an invalid number.
        """
        ...

    def keep_pool(self, host: str) -> None:
        """Keep the last order for a host's pool in force; without an order, do nothing."""
        ...

    def steer_pipeline(self, application: str, changes: Mapping[str, object]) -> None:
        """Override an application's controls: admission, shares, tasks.

        See `workers.pipeline.declaration.controls`. The values are in force within two of its batches. Repeating the
        same values changes nothing. Raise `common.errors.BadInput`, naming a control that is unknown or whose value is
        invalid; nothing is changed then.
        """
        ...

    def request_decisions(self, loops: Collection[str]) -> None:
        """Make these loops decide at once, by name, and waive their cool-down once."""
        ...

    def throttle_queue(self, queue: str, seconds: float) -> None:
        """Make the reachable producers of a queue wait this long; 0 ends the throttling."""
        ...

    def set_ordinary_weight(self, queue: str, weight: float) -> None:
        """Set the weight of the ordinary keys of a fair queue, in shares of one key.

        Workers that start later use it. Setting the same again changes nothing, and a queue that is no longer fair
        stays so.
        """
        ...

    def move_points(self, entry: LedgerEntry) -> None:
        """Carry out a loop's decision about points as an approved plan, which starts within about a second.

        An entry has one plan, however often it is carried out. Raise `common.errors.BadInput` if the plant has changed
        so that the decision is not possible any more.
        """
        ...
