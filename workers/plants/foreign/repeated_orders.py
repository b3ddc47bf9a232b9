"""Repeats people's orders for fewer tasks at plants where only idle tasks end (`AdapterKind.ends_idle`).

A busy pool follows such an order only in part, or not yet. A loop orders again at its next tick; while a person
controls the plant it does not. So the order is repeated here, as long as the snapshot shows it as pending and the plant
as that person's: it takes effect as tasks end. A later order, by anyone, replaces it.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from common.errors import WeirError
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import Snapshot
from workers.plants.foreign.adapters import list_kinds
from workers.plants.foreign.bounded import BoundedPlant
from workers.plants.foreign.watch import SEEN
from workers.plants.models import PlantOrder, RegisteredPlant
from workers.plants.reached import PENDING

REPEAT_SECONDS = 10
logger = logging.getLogger(__name__)


def repeat(
    snapshot: Snapshot, opened: Callable[[RegisteredPlant], AbstractContextManager[BoundedPlant]]
) -> list[PlantOrder]:
    """Repeat the pending orders, and return them. A plant that does not answer is asked the next time."""
    orders = PlantOrder.objects.select_related("plant").filter(by_loop=False)
    due = [order for order in orders if _is_due(order, snapshot.plants.get(order.plant.name))]
    repeated: list[PlantOrder] = []
    for row in dict.fromkeys(order.plant for order in due):
        try:
            with opened(row) as plant:
                latest = list(_latest(order for order in due if order.plant == row))
                plant.set_parallelism({order.operator: order.tasks for order in latest})
                repeated += latest
        except WeirError as error:
            logger.info("Manual orders for %s can't be repeated yet: %s", row.name, error)
    return repeated


def _is_due(order: PlantOrder, row: PlantStatus | None) -> bool:
    kind = list_kinds().get(order.plant.kind)
    status = row.orders.get(order.operator) if row is not None and row.state == SEEN else None
    if kind is None or not kind.ends_idle or status is None or status.now is None:
        return False
    is_pending = status.state == PENDING and status.at == order.at.timestamp()
    return is_pending and status.now > order.tasks and _has_it(order.by, row)


def _has_it(by: str, row: PlantStatus | None) -> bool:
    """Return whether this person, or a token of one of the plant's controllers, has the plant."""
    holder = row.steered_by.holder if row is not None and row.steered_by is not None else None
    if holder is None:
        return False
    return holder == by or holder.startswith(f"{by}/")


def _latest(orders: Iterable[PlantOrder]) -> Iterable[PlantOrder]:
    """Return those that are still the last order, read as late as possible."""
    for order in orders:
        if PlantOrder.objects.filter(pk=order.pk, at=order.at, tasks=order.tasks, by_loop=False).exists():
            yield order
