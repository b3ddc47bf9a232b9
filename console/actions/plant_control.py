"""Manual control of a plant's tasks, and other interventions in attached plants.

Tasks are set through the control API: authorized, audited, and by one controller at a time. The other interventions
expire. All raise PermissionDenied, BadInput that names the field, PlantHeld, PlantUnavailable, and
InvalidPlantResponse.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import redis
from django.db import transaction
from django.utils import timezone

from common.errors import BadInput, WeirError
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from controllers.framework.guard import STALE_SECONDS
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.documents.plants import PlantHolder
from workers.documents.snapshot import Snapshot
from workers.plants import holding, orders
from workers.plants.foreign import adapters, interventions
from workers.plants.foreign.kind import InterventionKind
from workers.plants.models import RegisteredPlant
from workers.plants.plant import ElasticPlant, InvalidPlantResponse
from workers.steering.overrides import Expiry, read_reason

MAX_NAME = 80
HAND_MINUTES = 15.0  # time after which the loops take over from a manual setting
OLD_SECONDS = 2 * STALE_SECONDS


def describe_staleness(snapshot: Snapshot, now: datetime) -> str:
    """Return why an observation is too old for a decision; "" if it is recent."""
    age_seconds = now.timestamp() - (snapshot.at or 0.0)
    if age_seconds <= OLD_SECONDS:
        return ""
    return f"The plant was last observed {age_seconds:.0f} s ago. Its current state is unknown."


def set_parallelism(
    actor: Actor,
    plant: ElasticPlant,
    seen: MeasuredTopology,
    tasks: Mapping[str, int],
    control: redis.Redis,
    *,
    controller: str = "",
    seconds: float = holding.SECONDS,
    reason: str = "",
) -> float:
    """Set the tasks of operators, and hold the plant; return until when (Unix time).

    The plant is held here and against its own controllers. seen: the plant now. A rejected request leaves no new hold.
    """
    require_permission(actor, "plant.scale", subjects=[f"plant/{seen.plant}"])
    checked = seen.check_tasks(tasks, "tasks")
    before = holding.find_holder(control, seen.plant)
    present = {name: known for name in checked if (known := seen.operators[name].known_parallelism) is not None}
    until = take(
        actor, seen.plant, control, controller=controller, seconds=seconds, reason=reason, before=present, after=checked
    )
    holder = format_holder_name(actor, controller)
    _hold_there(plant, seen.plant, holder, seconds, control, before)
    try:
        with audit_log.record_attempt(
            actor,
            "plant.scale",
            seen.plant,
            reason=reason or f"by {holder}",
            before={name: seen.operators[name].known_parallelism for name in checked},
            after=checked,
        ):
            plant.set_parallelism(checked)
    except (BadInput, InvalidPlantResponse):
        if before is None:
            holding.release(control, seen.plant, holder)
            with suppress(WeirError):  # otherwise its hold expires
                plant.release()
        raise
    return until


def _hold_there(
    plant: ElasticPlant, name: str, holder: str, seconds: float, control: redis.Redis, before: PlantHolder | None
) -> None:
    """Hold the plant against its own controllers; if that fails, restore the hold `before` here."""
    try:
        plant.hold(seconds)
    except Exception:
        if before is None:
            holding.release(control, name, holder)
        raise


def set_by_hand(
    actor: Actor,
    plant: ElasticPlant,
    seen: MeasuredTopology,
    tasks: Mapping[str, int],
    control: redis.Redis,
    *,
    minutes: float,
    reason: str,
) -> float:
    """Set tasks for a person for some minutes: the loops here and the plant's own hold, then decide again."""
    why, seconds = read_reason(reason), _convert_minutes(minutes)
    return set_parallelism(actor, plant, seen, tasks, control, seconds=seconds, reason=why)


def _convert_minutes(minutes: float) -> float:
    """Return the seconds. Raises `BadInput` that names minutes."""
    least, most = holding.MIN_SECONDS / 60.0, holding.MAX_SECONDS / 60.0
    if not least <= minutes <= most:
        raise BadInput("minutes", f"must be {least:.2g} to {most:g}, not {minutes:g}")
    return 60.0 * minutes


def take_by_hand(
    actor: Actor,
    plant: str,
    control: redis.Redis,
    minutes: float,
    *,
    reason: str,
    before: Mapping[str, int] = holding.NO_TASKS,
    after: Mapping[str, int] = holding.NO_TASKS,
) -> float:
    """Take the plant for a person for some minutes; return until when. Raises `BadInput` that names minutes."""
    return take(actor, plant, control, seconds=_convert_minutes(minutes), reason=reason, before=before, after=after)


def hold(
    actor: Actor,
    plant: ElasticPlant,
    name: str,
    control: redis.Redis,
    *,
    controller: str = "",
    seconds: float = holding.SECONDS,
) -> float:
    """Hold the plant, without setting anything, against its own controllers; return until when.

    The audit log records the start of the hold, not its renewal.
    """
    before, holder = holding.find_holder(control, name), format_holder_name(actor, controller)
    with transaction.atomic():
        if before is None:
            audit_log.record(actor, "plant.hold", name, after={"holder": holder})
        until = take(actor, name, control, controller=controller, seconds=seconds)
    _hold_there(plant, name, holder, seconds, control, before)
    return until


def take(
    actor: Actor,
    plant: str,
    control: redis.Redis,
    *,
    controller: str = "",
    seconds: float = holding.SECONDS,
    reason: str = "",
    before: Mapping[str, int] = holding.NO_TASKS,
    after: Mapping[str, int] = holding.NO_TASKS,
) -> float:
    """Take the plant for this actor; return until when. Its parallelism loops hold in the meantime.

    The caller records the purpose.
    """
    require_permission(actor, "plant.scale", subjects=[f"plant/{plant}"])
    if not holding.MIN_SECONDS <= seconds <= holding.MAX_SECONDS:
        takes = f"must be {holding.MIN_SECONDS:g} to {holding.MAX_SECONDS:g}, not {seconds!r}"
        raise BadInput("seconds", takes)
    now = timezone.now().timestamp()
    holder = format_holder_name(actor, controller)
    return holding.hold(control, plant, holder, now, seconds, reason=reason, before=before, after=after)


def release(actor: Actor, plant: ElasticPlant, name: str, control: redis.Redis, *, controller: str = "") -> bool:
    """Release the plant at once, here and there; return False if somebody else or nobody has it."""
    require_permission(actor, "plant.scale", subjects=())
    with transaction.atomic():
        released = holding.release(control, name, format_holder_name(actor, controller))
        if released:
            audit_log.record(actor, "plant.release", name)
    if released:
        plant.release()
    return released


def end_hold(actor: Actor, plant: ElasticPlant, name: str, control: redis.Redis, reason: str) -> bool:
    """End the hold on the plant, regardless of its holder; return False if there is none."""
    require_permission(actor, "plant.scale", subjects=())
    with transaction.atomic():
        held = holding.find_holder(control, name)
        if held is None or not holding.release(control, name, held.holder or ""):
            return False
        audit_log.record(
            actor, "plant.release", name, reason=reason, before={"holder": held.holder, "tasks": held.after}
        )
    plant.release()
    return True


def extend_hold(
    actor: Actor, plant: ElasticPlant, name: str, control: redis.Redis, expiry: Expiry, *, now: datetime
) -> datetime:
    """Extend the hold on the plant for its holder, here and at the plant; return its new end.

    Raises `BadInput` if there is none, or naming minutes or expires_at.
    """
    require_permission(actor, "plant.scale", subjects=())
    held = holding.find_holder(control, name)
    if held is None or held.until is None:
        raise BadInput("plant", f"The manual setting of {name[:60]} has ended. Set its tasks again.")
    before = datetime.fromtimestamp(held.until, UTC)
    until = expiry.compute_later(before, now)
    seconds = (until - now).total_seconds()
    if seconds > holding.MAX_SECONDS:
        most = f"at most {holding.MAX_SECONDS / 60:.0f} minutes from now"
        raise BadInput("minutes", f"must be a smaller number: manually set tasks can stay until {most}.")
    with transaction.atomic():
        ends = {"until": before.isoformat()}, {"until": until.isoformat()}
        audit_log.record(actor, "plant.extend", name, before=ends[0], after=ends[1])
        holding.hold(control, name, held.holder or "", now.timestamp(), seconds)
    plant.hold(seconds)
    return until


def release_hand(actor: Actor, plant: ElasticPlant, name: str, control: redis.Redis) -> None:
    """Release a person's manual setting, here and at the plant. Raises `BadInput` if it is not this person's."""
    if not release(actor, plant, name, control):
        raise BadInput("plant", f"{name} is not held by you.")


def resume(actor: Actor, plant: str, reason: str) -> int:
    """Forget orders to the plant's operators; return their number.

    Loops that hold because an order had no effect, or was undone, continue.
    """
    why = read_reason(reason)
    require_permission(actor, "plant.scale", subjects=[f"plant/{plant}"])
    if not RegisteredPlant.objects.filter(name=plant).exists():
        raise BadInput("plant", f"{plant} is not registered.")
    with transaction.atomic():
        forgotten = orders.forget(plant)
        audit_log.record(actor, "plant.resume", plant, reason=why, before={"orders": forgotten})
    return forgotten


def format_holder_name(actor: Actor, controller: str = "") -> str:
    """Return the name of the holder: the token or person, and which of its controllers."""
    if len(controller) > MAX_NAME:
        raise BadInput("controller", f"must have at most {MAX_NAME} characters, not {len(controller)}")
    return f"{actor.name}/{controller}" if controller else actor.name


def intervene(
    actor: Actor, plant: str, kind: str, subject: str, value: str, control: redis.Redis, *, minutes: float, reason: str
) -> InterventionKind:
    """Intervene, for some minutes if the intervention has a duration."""
    require_permission(actor, "plant.scale", subjects=[f"plant/{plant}"])
    why, row, now = read_reason(reason), get_registered_plant(plant), timezone.now()
    chosen = get_intervention(row, kind)
    until = (Expiry(minutes=minutes).compute(now) if chosen.lasting else None) or now
    with adapters.open_bounded(row) as bounded:
        intervention = interventions.prepare_intervention(
            control,
            plant,
            bounded,
            chosen,
            subject.strip(),
            value.strip(),
            by=format_holder_name(actor),
            until=until.timestamp(),
        )
        after = {"kind": kind, "subject": intervention.subject, "value": intervention.value}
        ends = {"until": until.isoformat()} if chosen.lasting else {}
        with audit_log.record_attempt(actor, "plant.intervene", plant, reason=why, after=after | ends):
            interventions.begin(control, plant, bounded, chosen, intervention)
    return chosen


def undo_intervention(actor: Actor, plant: str, kind: str, subject: str, control: redis.Redis, *, reason: str) -> None:
    """Undo an intervention now; if the plant does not follow, it is retried (`interventions.undo_due`)."""
    require_permission(actor, "plant.scale", subjects=())
    why, row, now = read_reason(reason), get_registered_plant(plant), timezone.now().timestamp()
    due = interventions.end(control, plant, kind, subject, now)
    before = {"kind": kind, "subject": subject, "value": due.value}
    with (
        audit_log.record_attempt(actor, "plant.undo", plant, reason=why, before=before),
        adapters.open_bounded(row) as bounded,
    ):
        interventions.undo(control, plant, bounded, due, now)


def extend_intervention(
    actor: Actor, plant: str, kind: str, subject: str, expiry: Expiry, *, now: datetime, control: redis.Redis
) -> datetime:
    """Extend an intervention; return its new end."""
    require_permission(actor, "plant.scale", subjects=())
    active = interventions.find_active(control, plant, kind, subject)
    until = expiry.compute_later(datetime.fromtimestamp(active.until, UTC), now)
    with transaction.atomic():
        after = {"kind": kind, "subject": subject, "until": until.isoformat()}
        audit_log.record(actor, "plant.extend", plant, after=after)
        interventions.extend(control, plant, active, until.timestamp())
    return until


def get_intervention(row: RegisteredPlant, name: str) -> InterventionKind:
    """Return the intervention of that name. Raises `BadInput` that lists the available ones."""
    known = {intervention.name: intervention for intervention in adapters.get_kind(row.kind).interventions}
    if name not in known:
        if not known:
            raise BadInput("kind", f"{name[:40]!r} is not available: this plant has no interventions.")
        raise BadInput("kind", f"must be one of {', '.join(known)}, not {name[:40]!r}.")
    return known[name]


def get_registered_plant(plant: str) -> RegisteredPlant:
    """Return the registration of an attached plant. Raises `BadInput` that names plant."""
    row = RegisteredPlant.objects.filter(name=plant).first()
    if row is None:
        raise BadInput("plant", f"{plant[:60]} is not registered.")
    return row
