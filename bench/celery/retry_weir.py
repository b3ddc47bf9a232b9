"""The steps of the bench of retry plans that run in Weir's processes (`manage.py shell`)."""

import time
from datetime import UTC, datetime

import orjson

from queues import projection
from workers.control import loops
from workers.coordination.connections import control_server
from workers.plants.models import RegisteredPlant
from workers.retries import plans
from workers.retries.items import PaceLimits
from workers.retries.models import RetryPlan
from workers.retries.plans import NewPlan
from workers.retries.selection import select
from workers.task_history.query import TaskQuery
from workers.task_history.record import FAILED, TaskRecord
from workers.task_history.recorder import record_finished

PLANT, QUEUE, TASK = "shop", "pay", "shop.pay"
AT_ONCE = 5_000


def attach(broker: str) -> None:
    """Attach the app, and create what the control worker needs: the topology, without nodes, and its schedule."""
    RegisteredPlant.objects.create(name=PLANT, kind="celery", url=broker)
    projection.project(control_server(), {})
    loops.ensure_schedule()


def prepare(first: int, count: int, min_rate: float, max_rate: float) -> None:
    """Approve a plan of all failed tasks; print how long the dry run took.

    first: how many tasks have failed. The other failed tasks are only stored.
    """
    now = time.time()
    for start in range(first, count, AT_ONCE):
        record_finished(
            PLANT, [_build_failed(number, now - 3_600) for number in range(start, min(count, start + AT_ONCE))]
        )
    began_at = time.monotonic()
    found = select(PLANT, TaskQuery(state=FAILED))
    seconds = time.monotonic() - began_at
    limits, moment = PaceLimits(min_rate, max_rate), datetime.now(UTC)
    new = NewPlan("tasks", PLANT, "state:failed", found.items, found.skipped, found.queues, limits)
    plan = plans.propose(new, None, "The bank is back.", moment)
    plans.approve(plan.pk, plan.hash, None, "Agreed.", now=moment)
    print(orjson.dumps({"dry_run_seconds": seconds, "tasks": plan.total}).decode())


def _build_failed(number: int, at: float) -> TaskRecord:
    return TaskRecord(
        id=f"failed-{number:08d}-0000-0000-0000-00000000",
        state=FAILED,
        at=at + number / 1_000,
        name=TASK,
        queue=QUEUE,
        args=f"({number},)",
        are_exact=True,
        error="ConnectionError('the bank is away')",
    )


def resume() -> None:
    """Continue the plan, which has stopped."""
    plans.resume(RetryPlan.objects.defer("items").get().pk, None, "The queue is short again.")
