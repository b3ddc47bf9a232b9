"""Detaching a plant: Weir ends its control, restores everything that it has set there, and proves it.

Each value is restored, then read at the plant again. The registration is removed only if nothing remains, so that the
rest can be repeated.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import redis
from django.db import transaction

from common.errors import BadInput, WeirError
from console.accounts.access import Actor, require_permission
from console.actions import plant_registration
from console.audit import audit_log
from workers.plants import holding, orders
from workers.plants.foreign import adapters, interventions
from workers.plants.foreign.bounded import BoundedPlant
from workers.plants.foreign.interventions import Intervention
from workers.plants.models import RegisteredPlant
from workers.steering.overrides import read_reason

# A Celery pool starts processes every five seconds, and a rescaled Flink job restarts.
VERIFY_SECONDS, VERIFY_INTERVAL_SECONDS = 15.0, 1.0
OpenPlant = Callable[[RegisteredPlant], AbstractContextManager[BoundedPlant]]


@dataclass(frozen=True)
class RestoredItem:
    """One value that Weir had set. result: what was read at the plant afterwards, or why that is unknown."""

    item: str
    value: str
    result: str
    is_verified: bool

    @property
    def sentence(self) -> str:
        said = "restored, verified" if self.is_verified else "not verified"
        return f"{self.item} ({self.value}): {said}: {self.result}"


@dataclass
class Detachment:
    """The result. is_removed: whether the registration was removed, too. advising: loops that advise now."""

    plant: str
    items: list[RestoredItem] = field(default_factory=list)
    is_removed: bool = False
    advising: list[str] = field(default_factory=list)

    @property
    def remaining(self) -> list[RestoredItem]:
        """Return the values that could not be verified."""
        return [item for item in self.items if not item.is_verified]

    def add(self, item: str, value: str, result: str, is_verified: bool) -> None:
        self.items.append(RestoredItem(item, value, result, is_verified))


def detach(
    actor: Actor,
    name: str,
    reason: str,
    control: redis.Redis,
    *,
    keep: bool = False,
    open_plant: OpenPlant = adapters.open_bounded,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Detachment:
    """End Weir's control of a plant, restore everything, and verify it; remove the plant if nothing remains.

    keep: keep the registration, so that the plant is still observed. now: seconds since 1970. Raise `PermissionDenied`,
    `BadInput`, and `PlantUnavailable` if the plant does not answer at all; its loops no longer act then.
    """
    require_permission(actor, "plant.register")
    why = read_reason(reason)
    row = RegisteredPlant.objects.filter(name=name).first()
    if row is None:
        raise BadInput("name", f"{name} is not registered.")
    detachment = Detachment(name, advising=_end_control(actor, name, why, control))
    with open_plant(row) as plant:
        before = [f"{value.item}: {value.value}" for value in plant.list_set_values()]
        with audit_log.record_attempt(actor, "plant.detach", name, reason=why, before={"set": before}):
            _restore_interventions(control, name, plant, detachment, now())
            _restore_tasks(plant, detachment, sleep)
            _release_controllers(plant, detachment)
            if not keep and not detachment.remaining:
                plant_registration.remove(actor, name, why)
                detachment.is_removed = True
                _end_observation(plant, detachment)
        after = {"items": [item.sentence for item in detachment.items], "removed": detachment.is_removed}
        audit_log.record(actor, "plant.detached", name, reason=why, before={"set": before}, after=after)
    return detachment


def _end_control(actor: Actor, name: str, why: str, control: redis.Redis) -> list[str]:
    """Set the plant's loops to advise, and end a manual hold here; return the names of these loops."""
    with transaction.atomic():
        loops = plant_registration.begin_loops_anew(actor, name)
        plant_registration.record_advising(actor, loops, why)
    if (held := holding.find_holder(control, name)) is not None:
        holding.release(control, name, held.holder or "")
    return [loop.name for loop in loops]


def _restore_interventions(
    control: redis.Redis, name: str, plant: BoundedPlant, detachment: Detachment, now: float
) -> None:
    for active in interventions.list_active(control, name):
        item, value = f"{active.kind.replace('_', ' ')} {active.subject}", active.value or "in force"
        try:
            due = interventions.end(control, name, active.kind, active.subject, now)
            interventions.undo(control, name, plant, due, now)
            detachment.add(item, value, _check(plant, active), True)
        except WeirError as error:
            detachment.add(item, value, str(error), False)


def _check(plant: BoundedPlant, active: Intervention) -> str:
    return plant.check_restored(active.kind, active.subject, active.before)


def _restore_tasks(plant: BoundedPlant, detachment: Detachment, sleep: Callable[[float], None]) -> None:
    """Restore the tasks of each operator, and wait until the plant reports them."""
    notes = plant.load_tasks_before()
    wanted = {name: int(note["before"]) for name, note in notes.items()}
    refused: dict[str, str] = {}
    for name, count in wanted.items():
        try:
            plant.set_parallelism({name: count})
        except WeirError as error:
            refused[name] = str(error)
    tasks = _wait_for_tasks(plant, {name: count for name, count in wanted.items() if name not in refused}, sleep)
    for name, count in wanted.items():
        said = refused.get(name) or (f"{tasks[name]} tasks" if name in tasks else "the plant does not report it")
        detachment.add(f"tasks of {name}", f"{int(notes[name]['tasks'])} tasks", said, tasks.get(name) == count)
    done = [item for item in wanted if tasks.get(item) == wanted[item]]
    plant.forget_tasks_before(done)
    orders.forget(detachment.plant)


def _wait_for_tasks(
    plant: BoundedPlant, wanted: Mapping[str, int], sleep: Callable[[float], None]
) -> Mapping[str, int]:
    """Return the tasks that the plant reports: the wanted ones, or the last ones after VERIFY_SECONDS."""
    tasks: Mapping[str, int] = {}
    for _ in range(round(VERIFY_SECONDS / VERIFY_INTERVAL_SECONDS) if wanted else 0):
        try:
            tasks = plant.read_tasks(list(wanted))
        except WeirError:  # it restarts, for example
            tasks = {}
        if all(tasks.get(name) == count for name, count in wanted.items()):
            break
        sleep(VERIFY_INTERVAL_SECONDS)
    return tasks


def _release_controllers(plant: BoundedPlant, detachment: Detachment) -> None:
    """Release the plant's own controllers; setting tasks may have held them again."""
    held = {value.item: value for value in plant.list_set_values() if value.is_hold}
    failure = ""
    try:
        plant.release()
    except WeirError as error:
        failure = str(error)
    try:
        left = {value.item for value in plant.list_set_values() if value.is_hold}
    except WeirError as error:
        left, failure = set(held), failure or str(error)
    for item, value in held.items():
        said = (failure or "it is still held") if item in left else "no longer held"
        detachment.add(item, value.value, said, item not in left)


def _end_observation(plant: BoundedPlant, detachment: Detachment) -> None:
    """Restore what only the observation has set. The plant is no longer registered."""
    try:
        for item, result in plant.end_observation():
            detachment.add(item, "on", result, True)
    except WeirError as error:
        detachment.add("observation", "on", str(error), False)
