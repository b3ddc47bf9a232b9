"""Registering and removing attached plants: authorized, and audited in the same transaction.

All raise `PermissionDenied`, and `BadInput` that names the field; then nothing was changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.input.form_values import check_unchanged, digest_of
from queues import keys
from workers.control.advice import begin_anew
from workers.coordination.connections import control_server
from workers.documents.plants import FoundPlant
from workers.models import Loop
from workers.plants import orders
from workers.plants.foreign import adapters, interventions
from workers.plants.models import RegisteredPlant
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable
from workers.steering import overrides
from workers.steering.overrides import read_reason

UNNAMED = "it"  # of a plant that is only inspected, in messages about it
# Rejections of these are recorded: somebody tries addresses that the console must not contact.
ADDRESS_FIELDS = ("url", "secret_environment")


@dataclass(frozen=True)
class Registration:
    """row: the current or former registration.

    left: that Weir may still hold something there, and what to do; "" if it is released. advising: existing loops of
    that name, which advise again.
    """

    row: RegisteredPlant
    left: str = ""
    advising: Sequence[str] = ()

    @property
    def sentence(self) -> str:
        """Return a sentence about it, or ""."""
        names = ", ".join(self.advising)
        anew = (
            (f"Existing loops of this plant were set to advise ({names}). To let them act, set them to auto.")
            if names
            else ""
        )
        return " ".join(filter(None, (anew, self.left)))


def register(
    actor: Actor,
    name: str,
    kind: str,
    url: str,
    *,
    secret_environment: str,
    options: Mapping[str, str],
    reason: str,
    changes: bool = False,
    digest: str = "",
) -> Registration:
    """Register a plant, or (`changes`) change its registration; it is observed within seconds.

    Holds at the previous plant are released, and interventions there have to be undone first. digest: of the
    registration as shown. Existing loops of that name start again if it is another plant now: they advise.
    """
    require_permission(actor, "plant.register", subjects=[f"plant/{name}"])
    why = read_reason(reason)
    before = RegisteredPlant.objects.filter(name=name).first()
    if before is not None and not changes:
        raise BadInput("name", f"{name} is already registered. Choose another name, or change that plant.")
    row = RegisteredPlant.objects.filter(name=name).first() or RegisteredPlant(name=name, owner=actor.user)
    row.kind, row.url, row.secret_environment = kind, url.strip(), secret_environment.strip()
    row.options = {key: value for key, value in options.items() if value}
    with audit_log.audit_refusals(actor, "plant.register", name, ADDRESS_FIELDS):
        adapters.check(row)
    is_another = before is None or before.place != row.place
    if before is not None and is_another:
        _refuse_while_in_force(name)
    with transaction.atomic():
        if before is not None:
            now = RegisteredPlant.objects.select_for_update().filter(pk=before.pk).first()
            if now is None:
                raise BadInput("name", f"{before.name} was removed in the meantime. Register it again.")
            shown = digest or digest_of(describe_registration(before))
            check_unchanged(before.name, describe_registration(now), shown)
        row.save()
        # Before the audit log, which is the last lock for everybody.
        begun = begin_loops_anew(actor, name) if is_another else []
        was = describe_registration(before) if before else None
        audit_log.record(actor, "plant.register", name, reason=why, before=was, after=describe_registration(row))
        record_advising(actor, begun, why)
    left = adapters.let_go(before) if before and is_another else ""
    if before and is_another:
        _forget_tasks_before(name)
    return Registration(row, left, [loop.name for loop in begun])


def record_advising(actor: Actor, loops: Sequence[Loop], why: str) -> None:
    """Record that these loops, given as they were, only advise now."""
    for loop in loops:
        if loop.mode != Loop.Mode.ADVISE:
            modes = {"mode": loop.mode}, {"mode": Loop.Mode.ADVISE.value}
            audit_log.record(actor, "loop.mode", loop.name, reason=why, before=modes[0], after=modes[1])


def _forget_tasks_before(plant: str) -> None:
    """Forget the tasks before Weir: they belong to the plant that is no longer registered under this name."""
    control_server().delete(keys.TASKS_BEFORE.build(plant))


def begin_loops_anew(actor: Actor, plant: str) -> list[Loop]:
    """Reset the loops of another plant of that name: what they learned, were permitted, and ordered is void.

    Returns the loops as they were.
    """
    now = timezone.now()
    loops = list(Loop.objects.filter(target__plant=plant).order_by("name"))
    for held in overrides.list_active(now).filter(loop__in=loops):
        overrides.end(held, by=actor.user, now=now)
    Loop.objects.filter(pk__in=[loop.pk for loop in loops]).update(mode=Loop.Mode.ADVISE, state=None)
    for loop in loops:
        begin_anew(loop, now)
    orders.forget(plant)
    return loops


def inspect(actor: Actor, kind: str, url: str, *, secret_environment: str, options: Mapping[str, str]) -> FoundPlant:
    """Inspect an address for a user who may register it; nothing is changed there or here.

    No answer, or a wrong one, is `BadInput` of the address. The audit entry is written first.
    """
    require_permission(actor, "plant.register", subjects=())
    row = RegisteredPlant(name=UNNAMED, kind=kind, url=url.strip(), secret_environment=secret_environment.strip())
    row.options = {key: value for key, value in options.items() if value}
    with audit_log.audit_refusals(actor, "plant.register", UNNAMED, ADDRESS_FIELDS):
        adapters.check(row)
    audit_log.record(actor, "plant.inspect", f"{kind} {row.url}".strip()[:200], after=describe_registration(row))
    try:
        return adapters.get_kind(kind).run_inspection(adapters.build_address(row))
    except (PlantUnavailable, InvalidPlantResponse) as error:
        raise BadInput("url", str(error).removeprefix(f"{UNNAMED} ")) from error


def remove(actor: Actor, name: str, reason: str) -> Registration:
    """Remove a plant; its loops are retired, their ledger stays, and its holds are released."""
    require_permission(actor, "plant.register", subjects=[f"plant/{name}"])
    why = read_reason(reason)
    row = RegisteredPlant.objects.filter(name=name).first()
    if row is None:
        raise BadInput("name", f"{name} is not registered.")
    _refuse_while_in_force(name)
    with transaction.atomic():
        RegisteredPlant.objects.filter(pk=row.pk).delete()
        audit_log.record(actor, "plant.remove", name, reason=why, before=describe_registration(row))
    # Only now: a loop that holds it again releases it itself (`adapters.plant_named`).
    left = adapters.let_go(row)
    _forget_tasks_before(name)
    return Registration(row, left)


def _refuse_while_in_force(name: str) -> None:
    """Reject the change while interventions are in force: they are undone by the current registration."""
    if in_force := interventions.list_active(control_server(), name):
        raise BadInput("name", f"{name} has an intervention in force ({in_force[0].field}). Undo it first.")


def describe_registration(row: RegisteredPlant) -> dict[str, object]:
    """Return a plant's registration for the audit log."""
    return {"kind": row.kind, "url": row.url, "secret_environment": row.secret_environment, "options": row.options}
