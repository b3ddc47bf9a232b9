"""The clock of the loops: rows of django-celery-beat, made so that calling twice changes nothing."""

import json

from django.db import transaction
from django_celery_beat.models import IntervalSchedule, PeriodicTask

# Two ticks fit into the 4 s that an event may wait for a worker (worker_rate's max_wait_seconds).
TICK_SECONDS = 2
UPKEEP_SECONDS = 5
PLANT_TICK_SECONDS = 15
SCALING_TICK_SECONDS = 60
FLOW_TICK_SECONDS = 2
BALANCE_TICK_SECONDS = 5
CONCURRENCY_TICK_SECONDS = 5
SHEDDING_TICK_SECONDS = 2
LADDER_TICK_SECONDS = 5
PARALLELISM_TICK_SECONDS = 5
ROWS = {
    "weir: tick worker_rate": ("workers.tasks.tick", {"law": "worker_rate"}, TICK_SECONDS),
    "weir: tick rebalancing": ("workers.tasks.tick", {"law": "rebalancing"}, PLANT_TICK_SECONDS),
    "weir: tick node_scaling": ("workers.tasks.tick", {"law": "node_scaling"}, SCALING_TICK_SECONDS),
    "weir: tick flow": ("workers.tasks.tick", {"law": "flow"}, FLOW_TICK_SECONDS),
    "weir: tick balance": ("workers.tasks.tick", {"law": "balance"}, BALANCE_TICK_SECONDS),
    "weir: tick concurrency": ("workers.tasks.tick", {"law": "concurrency"}, CONCURRENCY_TICK_SECONDS),
    "weir: tick shedding": ("workers.tasks.tick", {"law": "shedding"}, SHEDDING_TICK_SECONDS),
    "weir: tick ladder": ("workers.tasks.tick", {"law": "ladder"}, LADDER_TICK_SECONDS),
    "weir: tick parallelism_queueing": (
        "workers.tasks.tick",
        {"law": "parallelism_queueing"},
        PARALLELISM_TICK_SECONDS,
    ),
    "weir: tick parallelism_forecast": (
        "workers.tasks.tick",
        {"law": "parallelism_forecast"},
        PARALLELISM_TICK_SECONDS,
    ),
    "weir: tick parallelism_joint": (
        "workers.tasks.tick",
        {"law": "parallelism_joint"},
        PARALLELISM_TICK_SECONDS,
    ),
    "weir: advance plans, restore lost points": ("workers.tasks.advance", {}, 1),
    "weir: manage batch tasks": ("workers.tasks.manage_tasks", {}, 2),
    "weir: upkeep of loops and overrides": ("workers.tasks.upkeep", {}, UPKEEP_SECONDS),
}


@transaction.atomic
def ensure_schedule() -> int:
    """Every periodic task is there; answers how many were missing. A row that an operator has edited or
    disabled stays as it is.
    """
    made = 0
    for name, (task, arguments, seconds) in ROWS.items():
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
