"""The schedule of the loops: rows of django-celery-beat, created idempotently."""

from typing import Any, TypeVar

from django.db import transaction
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from workers.coordination.tick import TICK
from workers.plants.foreign.interventions import TRY_SECONDS
from workers.plants.foreign.repeated_orders import REPEAT_SECONDS

ROWS: tuple[tuple[str, str, int], ...] = (  # name, task, seconds
    ("weir: tick loops", TICK, 1),
    ("weir: advance plans, restore lost points", "workers.tasks.advance", 1),
    ("weir: manage batch tasks", "workers.tasks.manage_tasks", 2),
    ("weir: upkeep of loops and overrides", "workers.tasks.upkeep", 5),
    ("weir: undo interventions at attached plants", "workers.tasks.undo_interventions", TRY_SECONDS),
    ("weir: repeat people's orders to attached plants", "workers.tasks.repeat_orders", REPEAT_SECONDS),
)


Schedule = TypeVar("Schedule", IntervalSchedule, CrontabSchedule)


def schedule_row(kind: type[Schedule], **fields: Any) -> Schedule:
    """Return the interval or the crontab with these fields.

    The database may have two, because nothing there forbids it and two processes may have created one at once.
    """
    return kind.objects.filter(**fields).order_by("pk").first() or kind.objects.create(**fields)


@transaction.atomic
def ensure_schedule() -> int:
    """Create missing periodic tasks and return how many were missing.

    A row that an operator has edited or disabled stays unchanged. Rows of old versions, one tick for each law, are
    deleted.
    """
    made = 0
    PeriodicTask.objects.filter(task=TICK).exclude(name__in=[name for name, _, _ in ROWS]).delete()
    for name, task, seconds in ROWS:
        interval = schedule_row(IntervalSchedule, every=seconds, period=IntervalSchedule.SECONDS)
        defaults = {
            "task": task,
            "interval": interval,
            "queue": "control",
            # A tick that waited longer than its interval is outdated: the next one is already queued.
            "expire_seconds": seconds,
        }
        made += PeriodicTask.objects.get_or_create(name=name, defaults=defaults)[1]
    return made
