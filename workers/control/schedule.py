"""The clock of the loops: rows of django-celery-beat, made so that calling twice changes nothing."""

import json
from collections.abc import Iterator
from typing import Any

from django.db import transaction
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from workers.control.kinds import registry
from workers.plants.foreign.interventions import TRY_SECONDS
from workers.plants.foreign.repeated_orders import REPEAT_SECONDS

Row = tuple[str, str, dict[str, Any], int]  # name, task, arguments, seconds
UPKEEP: tuple[Row, ...] = (
    ("weir: advance plans, restore lost points", "workers.tasks.advance", {}, 1),
    ("weir: manage batch tasks", "workers.tasks.manage_tasks", {}, 2),
    ("weir: upkeep of loops and overrides", "workers.tasks.upkeep", {}, 5),
    ("weir: undo interventions at attached plants", "workers.tasks.undo_interventions", {}, TRY_SECONDS),
    ("weir: repeat people's orders to attached plants", "workers.tasks.repeat_orders", {}, REPEAT_SECONDS),
)


def rows() -> Iterator[Row]:
    """A tick for each kind of loop, and the upkeep."""
    for law, kind in registry.KINDS.items():
        yield f"weir: tick {law}", "workers.tasks.tick", {"law": law}, kind.interval_seconds
    yield from UPKEEP


@transaction.atomic
def ensure_schedule() -> int:
    """Every periodic task is there; answers how many were missing. A row that an operator has edited or
    disabled stays as it is.
    """
    made = 0
    for name, task, arguments, seconds in rows():
        interval, _ = IntervalSchedule.objects.get_or_create(every=seconds, period=IntervalSchedule.SECONDS)
        defaults = {
            "task": task,
            "interval": interval,
            "kwargs": json.dumps(arguments),
            "queue": "control",
            # A tick that waited longer than its interval is outdated: the next one is already there.
            "expire_seconds": seconds,
        }
        made += PeriodicTask.objects.get_or_create(name=name, defaults=defaults)[1]
    return made
