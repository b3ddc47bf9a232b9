"""Values that were restored at an attached plant while Weir was away: they count as ended here, too."""

import logging
from collections.abc import Sequence
from contextlib import suppress

import redis

from common.errors import BadInput
from workers.plants import orders
from workers.plants.foreign import interventions
from workers.plants.foreign.kind import RestoredValue

logger = logging.getLogger(__name__)


def follow_restored(control: redis.Redis, plant: str, values: Sequence[RestoredValue], now_seconds: float) -> None:
    """End what was restored, so that no page shows it as in force.

    An intervention becomes due, and is undone once more: a worker may have been away. Orders of restored operators are
    forgotten, so that their loops decide again. now_seconds: since 1970.
    """
    for value in values:
        if value.operator:
            orders.forget(plant, [value.operator])
        elif value.subject:
            with suppress(BadInput):  # it has ended meanwhile
                interventions.end(control, plant, value.kind, value.subject, now_seconds)
    names = [value.operator or f"{value.kind} {value.subject}".strip() for value in values]
    logger.warning("Restored at plant %s by its guard, its broker, or its owner: %s", plant, ", ".join(names))
