"""The loops apart from their ticks: which loops exist, their schedule, and their desired values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from common.errors import WeirError
from controllers.framework import guard
from controllers.parallelism.inputs import UNMEASURED
from workers.control.kinds import registry
from workers.control.kinds.registry import find_display
from workers.control.ledger import ledger
from workers.control.parts.kind import LoopKind, PlantInventory, Targets
from workers.coordination.tick import TICK
from workers.models import Loop
from workers.plants.foreign.interventions import TRY_SECONDS
from workers.plants.foreign.repeated_orders import REPEAT_SECONDS
from workers.steering.scope import list_active_loops

ROWS: tuple[tuple[str, str, int], ...] = (  # name, task, seconds
    ("weir: tick loops", TICK, 1),
    ("weir: advance plans, restore lost points", "workers.tasks.advance", 1),
    ("weir: manage batch tasks", "workers.tasks.manage_tasks", 2),
    ("weir: send tasks of retry plans", "workers.tasks.advance_retries", 2),
    ("weir: upkeep of loops and overrides", "workers.tasks.upkeep", 5),
    ("weir: undo interventions at attached plants", "workers.tasks.undo_interventions", TRY_SECONDS),
    ("weir: repeat people's orders to attached plants", "workers.tasks.repeat_orders", REPEAT_SECONDS),
)
Schedule = TypeVar("Schedule", IntervalSchedule, CrontabSchedule)
# In these cases the observation yields no reliable number: no valid measurement, nothing to decide, or an
# operator without a measurement. An operator without tasks cannot be measured: its desired value would be 0,
# and it would never start again.
UNSOUND = (*guard.UNASKED, UNMEASURED)
LATE_INTERVALS, LATE_SECONDS = 3.0, 15.0


def ensure_loops(present: PlantInventory, laws: Iterable[str] | None = None) -> list[Loop]:
    """Activate exactly the loops that the kinds of these laws (None: all) require, and return them.

    A loop whose target has vanished is retired (`Targets.gone` says why) instead of deleted: it returns with its
    target, with its state and the values that people have set. (Loops of a worker host are deleted a month later, after
    their last decision: `workers.batch.jobs.retention`.) Raises `BadInput` for a law without loops.
    """
    kinds = registry.KINDS.values() if laws is None else [registry.get_kind(law) for law in laws]
    return [loop for kind in kinds for loop in _ensure(kind, kind.targets(present))]


def _ensure(kind: LoopKind, targets: Targets) -> list[Loop]:
    known = {loop.name: loop for loop in Loop.objects.filter(law=kind.name)}
    for name, start in targets.loops.items():
        if name in known:
            loop, parameters = known[name], {**known[name].parameters, **start.follows}
            if (loop.target, loop.parameters) != (start.target, parameters):
                # A loop whose target returns starts now; it has not been silent meanwhile.
                started = {"ticked_at": timezone.now()} if "retired_at" in loop.target else {}
                _update(loop, target=dict(start.target), parameters=parameters, **started)
        else:
            Loop.objects.get_or_create(name=name, defaults=kind.begin(start))
    for name, loop in known.items():
        if name not in targets.loops and "retired_at" not in loop.target:
            _update(loop, target={**loop.target, "retired_at": targets.gone})
    return list(Loop.objects.filter(name__in=targets.loops))


def _update(loop: Loop, **values: object) -> None:
    Loop.objects.filter(pk=loop.pk).update(**values)


def schedule_row(kind: type[Schedule], **fields: object) -> Schedule:
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


class NothingDesired(WeirError):  # noqa: N818
    """Raised when a loop has no valid decision now; says why."""


@dataclass(frozen=True)
class DesiredValues:
    """Desired values of a loop.

    entry: the decision, taken `at` (s since 1970). values: by operator, or by the name of what the loop sets.
    """

    entry: int
    at: float
    values: Mapping[str, float]
    reason: str

    @property
    def total(self) -> float:
        return sum(self.values.values())


def compute_desired(loop: Loop, now: datetime) -> DesiredValues:
    """Compute the desired values of a loop, as numbers that an external autoscaler can poll (KEDA's `metrics-api`).

    For a loop that sets lasting values (tasks, processes), the result combines the values in force and the last
    decision, also in *advise*, where the poller acts. For other loops it is the size of the last action. In *hold* it
    is the value in force. Without a valid decision there is no number: a poller has a fallback for that, and 0 would
    mean that nothing is needed.

    Raises NothingDesired where the loop is retired, has not decided recently, or has an invalid measurement.
    """
    entry = ledger.find_last_entry(loop)
    if not list_active_loops().filter(pk=loop.pk).exists():
        raise NothingDesired(f"{loop.name} is retired: its target no longer exists.")
    if entry is None or entry.observation is None:
        raise NothingDesired(f"{loop.name} has not decided yet.")
    age_seconds = abs((now - (loop.ticked_at or entry.at)).total_seconds())
    if age_seconds > max(LATE_SECONDS, LATE_INTERVALS * loop.interval_seconds):
        raise NothingDesired(
            f"{loop.name} last decided {age_seconds:.0f} s ago. It is due every {loop.interval_seconds} s."
        )
    if entry.limited_by in UNSOUND:
        raise NothingDesired(f"{loop.name}: {entry.limited_by}. {entry.reason}")
    action = None if entry.mode == Loop.Mode.HOLD else entry.action
    values = find_display(loop.law, loop.target).desired(entry.observation, action or {})
    return DesiredValues(entry.pk, entry.at.timestamp(), values, entry.reason)


def select_due_loops(before: datetime) -> QuerySet[Loop]:
    """Return retired loops of worker hosts and attached pools that last ticked before that.

    They have no other data: decisions, or settings of a person. Targets of other loops return by their names.
    """
    retired = Loop.objects.filter(target__has_key="retired_at", ticked_at__lt=before)
    nothing = {"entries": None, "overrides": None, "first_report": None}
    return retired.filter(Q(target__has_key="host") | Q(target__has_keys=["plant", "operator"]), **nothing)
