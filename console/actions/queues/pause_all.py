"""A pause of all queues of a plant at once, with an end, and the resumption of exactly these queues.

In Weir's own plant, each queue gets a pause of its consumption. At an attached plant, each queue gets the intervention
`pause`. The control server keeps which pauses were started together, until their end. A queue that somebody paused for
longer stays as it is, and so does a pause that somebody changed or ended meanwhile.

All raise `PermissionDenied`, `BadInput` that names the field, `PlantUnavailable`, and `InvalidPlantResponse`.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import redis
from django.db import transaction

from common.errors import BadInput, WeirError
from common.stored_document import StoredDocument, decode_document, encode_document
from console.accounts.access import Actor, require_permission
from console.actions.plant_control import format_holder_name, get_intervention, get_registered_plant
from console.actions.queues import stops
from console.audit import audit_log
from queues import keys, pausing
from queues.control.replies import expect_bytes
from queues.models import Queue
from workers.plants.foreign import adapters, interventions
from workers.plants.foreign.kind import AdapterKind, InterventionKind
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable
from workers.plants.registry import LOCAL
from workers.steering import overrides
from workers.steering.overrides import Expiry, read_reason
from workers.steering.scope import Scope

PAUSE = "pause"  # the intervention, at each kind of plant that has it
MAX_AT_ONCE = 8  # queues of an attached plant: each request waits for its workers


class PauseOfAll(StoredDocument, frozen=True, kw_only=True):
    """Pauses that were started together. until: seconds since 1970; queues: those that it paused."""

    by: str
    reason: str
    until: float
    queues: list[str]


def can_pause(kind: AdapterKind) -> bool:
    """Return whether the queues of such a plant can be paused."""
    return any(intervention.name == PAUSE for intervention in kind.interventions)


def find_pause(control: redis.Redis, plant: str) -> PauseOfAll | None:
    """Return the pause of all queues that is in force; None if there is none."""
    stored = expect_bytes(control).get(keys.PAUSED_TOGETHER.build(plant))
    return None if stored is None else decode_document(PauseOfAll, stored, "pause of all queues")


def pause_queues(
    actor: Actor, plant: str, known: Sequence[str], *, minutes: float, reason: str, now: datetime, control: redis.Redis
) -> PauseOfAll:
    """Pause the consumption of every queue of a plant for some minutes.

    known: queues of an attached plant, as last observed. If some of them can't be paused, the others are.
    """
    why, expiry = read_reason(reason), Expiry(minutes=minutes)
    until = expiry.compute(now)
    assert until is not None  # minutes are given
    pause = PauseOfAll(by=format_holder_name(actor), reason=why, until=until.timestamp(), queues=[])
    if plant == LOCAL:
        return _pause_own(actor, pause, expiry, now, control)
    require_permission(actor, "plant.scale", subjects=[f"plant/{plant}"])
    row = get_registered_plant(plant)
    kind = get_intervention(row, PAUSE)
    longer = {active.subject for active in _list_pauses(control, plant) if active.until > pause.until}
    queues = [queue for queue in known if queue not in longer]
    if not queues:
        raise BadInput("plant", f"{plant} has no queue that can be paused until then.")
    return _pause_attached(actor, row, kind, _replace_queues(pause, queues), control, now)


def resume_queues(actor: Actor, plant: str, *, reason: str, now: datetime, control: redis.Redis) -> list[str]:
    """Resume the queues of the pause of all queues; return them. Pauses that were changed since stay."""
    why, pause = read_reason(reason), find_pause(control, plant)
    if pause is None:
        raise BadInput("plant", f"{plant[:60]} has no pause of all queues.")
    if plant == LOCAL:
        return _resume_own(actor, pause, why, now, control)
    require_permission(actor, "plant.scale", subjects=())
    row = get_registered_plant(plant)
    paused = [each for each in _list_pauses(control, plant) if each.until == pause.until and each.by == pause.by]
    queues = sorted(each.subject for each in paused)

    def undo(queue: str) -> None:
        due = interventions.end(control, plant, PAUSE, queue, now.timestamp())
        with adapters.open_bounded(row) as bounded:
            interventions.undo(control, plant, bounded, due, now.timestamp())

    with audit_log.record_attempt(actor, "queue.resume_all", plant, reason=why, before={"queues": queues}):
        control.delete(keys.PAUSED_TOGETHER.build(plant))
        _for_each(queues, undo)
    return queues


@transaction.atomic
def _pause_own(actor: Actor, pause: PauseOfAll, expiry: Expiry, now: datetime, control: redis.Redis) -> PauseOfAll:
    require_permission(actor, "queue.pause")
    paused = []
    for queue in Queue.objects.order_by("name").values_list("name", flat=True):
        if _is_paused_longer(queue, pause.until, now):
            continue
        stops.pause_queue(
            actor, queue, pausing.CONSUMPTION, reason=pause.reason, now=now, expiry=expiry, control=control
        )
        paused.append(queue)
    if not paused:
        raise BadInput("plant", "has no queue that can be paused until then.")
    done = _replace_queues(pause, paused)
    audit_log.record(actor, "queue.pause_all", LOCAL, reason=pause.reason, after=_describe(done))
    _store(control, LOCAL, done, now)
    return done


@transaction.atomic
def _resume_own(actor: Actor, pause: PauseOfAll, why: str, now: datetime, control: redis.Redis) -> list[str]:
    require_permission(actor, "queue.pause", subjects=())
    active = overrides.list_active(now).filter(name=pausing.CONSUMPTION, value=overrides.PAUSED)
    resumed = []
    for override in active.filter(queue__in=pause.queues).order_by("queue").select_related("owner"):
        if override.expires_at is not None and override.expires_at.timestamp() == pause.until:
            overrides.end(override, by=actor.user, now=now, control=control)
            resumed.append(override.queue)
    audit_log.record(actor, "queue.resume_all", LOCAL, reason=why, before={"queues": resumed})
    control.delete(keys.PAUSED_TOGETHER.build(LOCAL))
    return resumed


def _is_paused_longer(queue: str, until: float, now: datetime) -> bool:
    rows = overrides.list_active(now).filter(
        name=pausing.CONSUMPTION, value=overrides.PAUSED, **Scope(queue=queue).get_field_values()
    )
    return any(row.expires_at is None or row.expires_at.timestamp() > until for row in rows)


def _pause_attached(
    actor: Actor, row: RegisteredPlant, kind: InterventionKind, pause: PauseOfAll, control: redis.Redis, now: datetime
) -> PauseOfAll:
    unused: list[str] = []

    def begin(queue: str) -> None:
        with adapters.open_bounded(row) as bounded:
            try:
                intervention = interventions.prepare_intervention(
                    control, row.name, bounded, kind, queue, "", by=pause.by, until=pause.until
                )
                interventions.begin(control, row.name, bounded, kind, intervention)
            except BadInput:  # no worker consumes it
                unused.append(queue)

    with audit_log.record_attempt(actor, "queue.pause_all", row.name, reason=pause.reason, after=_describe(pause)):
        # Stored first: whatever fails, the queues that were paused are resumed together.
        _store(control, row.name, pause, now)
        _for_each(pause.queues, begin)
    done = _replace_queues(pause, [queue for queue in pause.queues if queue not in unused])
    _store(control, row.name, done, now)
    return done


def _for_each(queues: Iterable[str], act: Callable[[str], None]) -> None:
    """Act on each queue, several at once. Raise `PlantUnavailable` that names the queues that failed, and why."""

    def attempt(queue: str) -> str:
        try:
            act(queue)
        except WeirError as error:
            return f"{queue}: {error}"
        return ""

    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        failures = [failure for failure in pool.map(attempt, queues) if failure]
    if failures:
        raise PlantUnavailable(" ".join(failures))


def _list_pauses(control: redis.Redis, plant: str) -> list[interventions.Intervention]:
    return [active for active in interventions.list_active(control, plant) if active.kind == PAUSE]


def _replace_queues(pause: PauseOfAll, queues: list[str]) -> PauseOfAll:
    return PauseOfAll(by=pause.by, reason=pause.reason, until=pause.until, queues=queues)


def _describe(pause: PauseOfAll) -> dict[str, object]:
    return {"queues": pause.queues, "until": pause.until}


def _store(control: redis.Redis, plant: str, pause: PauseOfAll, now: datetime) -> None:
    left_ms = max(1, round(1_000 * (pause.until - now.timestamp())))
    control.set(keys.PAUSED_TOGETHER.build(plant), encode_document(pause), px=left_ms)
