"""Interventions of people at attached plants, besides setting tasks: a paused queue, a limited rate.

An intervention is in force until its expiry, or until somebody undoes it. Everything is then as it was before.

The former value is recorded on the control server before anything is done, so that it can be undone whatever process
dies in between. Starting the same intervention again changes its expiry and its value, but not the former value. If the
plant does not carry out an undo, the record stays, with the reason, and the undo is tried again.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import redis

from common.errors import BadInput, WeirError
from common.stored_document import StoredDocument, decode_document, encode_document, replace_fields
from queues import keys
from queues.control.replies import expect_bytes
from queues.lua.script import load_script
from workers.plants.foreign.bounded import BoundedPlant
from workers.plants.foreign.kind import InterventionKind, PartialUndo
from workers.plants.models import RegisteredPlant
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

logger = logging.getLogger(__name__)
MAX_LENGTH = 255  # characters of a subject and a value; the name of a queue can be this long
MAX_ERROR = 300
MAX_IN_FORCE = 100  # per plant
TRY_SECONDS, GIVE_UP_SECONDS = 10, 3_600.0
AGAIN = f"Weir retries it every {TRY_SECONDS} s for {GIVE_UP_SECONDS / 60:.0f} minutes."


class Intervention(StoredDocument, frozen=True, kw_only=True):
    """An intervention.

    kind: name of its `InterventionKind`. before: the former value, as its adapter wrote it. until: seconds since 1970.
    error: why the last undo failed, at `tried_at`; it has failed since `failed_since`.
    """

    kind: str
    subject: str
    value: str
    before: str
    by: str
    until: float
    error: str = ""
    tried_at: float | None = None
    failed_since: float | None = None

    @property
    def field(self) -> str:
        """Return its field of the hash."""
        return _format_field(self.kind, self.subject)

    @property
    def given_up_at(self) -> float:
        """Return when to stop trying, in seconds since 1970."""
        return (self.until if self.failed_since is None else self.failed_since) + GIVE_UP_SECONDS


def list_active(control: redis.Redis, plant: str) -> list[Intervention]:
    """Return the active interventions, the first to expire first."""
    stored = expect_bytes(control).hgetall(keys.PLANT_INTERVENTIONS.build(plant))
    active = (decode_document(Intervention, text, "intervention") for text in stored.values())
    return sorted(active, key=lambda intervention: intervention.until)


def end(control: redis.Redis, plant: str, kind: str, subject: str, now_seconds: float) -> Intervention:
    """Mark an active intervention as due: even if this process dies, `undo_due` undoes it.

    Raise `BadInput` if it is not in force.
    """
    noted = find_active(control, plant, kind, subject)
    due = replace_fields(noted, until=min(noted.until, now_seconds))
    replace(control, plant, noted, encode_document(due))
    return due


def find_active(control: redis.Redis, plant: str, kind: str, subject: str) -> Intervention:
    """Return the intervention in force. Raise `BadInput` if there is none."""
    stored = expect_bytes(control).hget(keys.PLANT_INTERVENTIONS.build(plant), _format_field(kind, subject))
    if stored is None:
        raise BadInput("subject", f"has no active {kind[:40].replace('_', ' ')}.")
    return decode_document(Intervention, stored, "intervention")


def extend(control: redis.Redis, plant: str, noted: Intervention, until_seconds: float) -> None:
    """Set a later end. Raise `BadInput` if the intervention is being undone, or was changed meanwhile."""
    later = replace_fields(noted, until=until_seconds)
    if noted.tried_at is not None or not replace(control, plant, noted, encode_document(later)):
        raise BadInput("subject", "is being undone, or was changed meanwhile. Reload the page.")


def prepare_intervention(
    control: redis.Redis,
    name: str,
    plant: BoundedPlant,
    kind: InterventionKind,
    subject: str,
    value: str,
    *,
    by: str,
    until: float,
) -> Intervention:
    """Return an intervention to start at the plant, with its former value; nothing is done yet.

    Raise `BadInput`, naming `subject` or `value`, and what the plant raises.
    """
    if not subject or len(subject) > MAX_LENGTH:
        raise BadInput("subject", f"must have 1 to {MAX_LENGTH} characters ({kind.subject}).")
    if len(value) > MAX_LENGTH:
        raise BadInput("value", f"must have at most {MAX_LENGTH} characters.")
    value = value if kind.value else ""
    noted = {intervention.field: intervention for intervention in list_active(control, name)}
    earlier = noted.get(_format_field(kind.name, subject))
    if kind.lasting and earlier is None and len(noted) >= MAX_IN_FORCE:
        raise BadInput(
            "subject", f"exceeds the maximum of {MAX_IN_FORCE} active interventions. Undo an intervention first."
        )
    before = plant.read_before(kind.name, subject, value, earlier.before if earlier else "")
    return Intervention(kind=kind.name, subject=subject, value=value, before=before, by=by, until=until)


def begin(
    control: redis.Redis, name: str, plant: BoundedPlant, kind: InterventionKind, intervention: Intervention
) -> None:
    """Carry out a prepared intervention.

    Raise what the plant raises. If it fails halfway, it is recorded as in force, so that it is undone.
    """
    if not kind.lasting:
        _do(plant, intervention, "The intervention may have taken effect.")
        return
    key = keys.PLANT_INTERVENTIONS.build(name)
    earlier = expect_bytes(control).hget(key, intervention.field)
    control.hset(key, intervention.field, encode_document(intervention))
    try:
        _do(plant, intervention, "The intervention may have taken effect in part; it stays active until you undo it.")
    except BadInput:  # refused: nothing was done
        replace(control, name, intervention, earlier or b"")
        raise


def undo(control: redis.Redis, name: str, plant: BoundedPlant, intervention: Intervention, now_seconds: float) -> None:
    """Undo an intervention.

    Raise what the plant raises: the rest then stays in force, and `undo_due` tries it again. An intervention that
    somebody starts again meanwhile stays in force.
    """
    try:
        plant.undo(intervention.kind, intervention.subject, intervention.before)
    except WeirError as error:
        _note_failure(control, name, intervention, error, now_seconds)
        if isinstance(error, PlantUnavailable):
            raise PlantUnavailable(f"{error} {AGAIN}") from error
        raise
    replace(control, name, intervention, b"")


def undo_due(
    control: redis.Redis,
    rows: Iterable[RegisteredPlant],
    now_seconds: float,
    opened: Callable[[RegisteredPlant], AbstractContextManager[BoundedPlant]],
) -> list[Intervention]:
    """Undo the due interventions of registered plants, and return those that were undone.

    If a plant does not answer, the undo is tried again for GIVE_UP_SECONDS; after that the plant, or the part of it, is
    considered gone. A restarted part has the setup of its owner.

    After its first failure a plant is skipped, and the next run starts with what was not tried: an undo that fails
    delays no other.
    """
    undone: list[Intervention] = []
    for row in rows:
        due = [active_one for active_one in list_active(control, row.name) if active_one.until <= now_seconds]
        if not due:
            continue
        due.sort(key=lambda intervention: intervention.tried_at or 0.0)
        try:
            with opened(row) as plant:
                for intervention in due:
                    undo(control, row.name, plant, intervention, now_seconds)
                    undone.append(intervention)
        except WeirError as error:
            logger.warning("Interventions at %s can't be undone yet: %s", row.name, error)
            _note_failure(control, row.name, due[0], error, now_seconds)  # unless recorded or undone
        for active in list_active(control, row.name):
            if active.tried_at is not None and active.given_up_at <= now_seconds:
                logger.error("%s at %s was never undone: %s", active.field, row.name, active.error or "no response")
                replace(control, row.name, active, b"")
    return undone


def _do(plant: BoundedPlant, intervention: Intervention, unknown: str) -> None:
    try:
        plant.intervene(intervention.kind, intervention.subject, intervention.value)
    except (PlantUnavailable, InvalidPlantResponse) as error:  # one of its workers may refuse what another has done
        raise type(error)(f"{str(error).rstrip('.')}. {unknown}") from error


def _note_failure(control: redis.Redis, plant: str, noted: Intervention, error: WeirError, now_seconds: float) -> None:
    left = error.left if isinstance(error, PartialUndo) else noted.before
    since = now_seconds if noted.failed_since is None else noted.failed_since
    said = str(error)[:MAX_ERROR]
    failed = replace_fields(noted, before=left, error=said, tried_at=now_seconds, failed_since=since)
    replace(control, plant, noted, encode_document(failed))


def replace(control: redis.Redis, plant: str, noted: Intervention, by: bytes) -> bool:
    """Replace a record. Return False if it was changed meanwhile: that change then stays.

    An empty `by` removes it: it is no longer in force.
    """
    key = keys.PLANT_INTERVENTIONS.build(plant)
    # The stored bytes are compared, because another version may encode the same record differently.
    stored = expect_bytes(control).hget(key, noted.field)
    if stored is None or decode_document(Intervention, stored, "intervention") != noted:
        return False
    return bool(control.eval(load_script("plant/replace_note"), 1, key, noted.field, stored, by))


def _format_field(kind: str, subject: str) -> str:
    return f"{kind} {subject}"
