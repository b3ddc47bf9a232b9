"""Repeats people's orders for fewer tasks at plants where only idle tasks end (`AdapterKind.ends_idle`).

A busy pool follows such an order only in part, or not yet. A loop orders again at its next tick; while a person
controls the plant it does not. So the order is repeated here, as long as the snapshot shows it as pending and the plant
as that person's: it takes effect as tasks end. A later order, by anyone, replaces it.
"""

import logging
from collections.abc import Callable
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
                # Those that are still the last order, read as late as possible.
                latest = [
                    order
                    for order in due
                    if order.plant == row
                    and PlantOrder.objects.filter(pk=order.pk, at=order.at, tasks=order.tasks, by_loop=False).exists()
                ]
                plant.set_parallelism({order.operator: order.tasks for order in latest})
                repeated += latest
        except WeirError as error:
            logger.info("Manual orders for %s can't be repeated yet: %s", row.name, error)
    return repeated


def _is_due(order: PlantOrder, row: PlantStatus | None) -> bool:
    """Return whether the order is pending, and its person, or a token of one of the plant's controllers, has it."""
    kind = list_kinds().get(order.plant.kind)
    if kind is None or not kind.ends_idle or row is None or row.state != SEEN:
        return False
    status, holder = row.orders.get(order.operator), row.steered_by.holder if row.steered_by is not None else None
    if status is None or status.now is None or holder is None:
        return False
    is_pending = status.state == PENDING and status.at == order.at.timestamp() and status.now > order.tasks
    return is_pending and (holder == order.by or holder.startswith(f"{order.by}/"))
