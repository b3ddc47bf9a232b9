"""How far the remedy ladder of a queue may go: authorized and audited, for pages and API."""

from datetime import datetime

from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.actions.loops import require_no_override
from console.audit import audit_log
from controllers import catalog
from controllers.shedding.ladder import LAW
from workers.models import Loop
from workers.steering.overrides import read_reason


@transaction.atomic
def set_cap(actor: Actor, queue: str, cap: str, *, reason: str, now: datetime) -> tuple[str, str]:
    """Set the highest level a queue may reach, until it is changed again; return (before, after).

    Capped below `shed` it loses nothing. Raises `BadInput` that names queue, cap, or reason.
    """
    require_permission(actor, "ladder.cap", [queue])
    why = read_reason(reason)
    loop = Loop.objects.select_for_update().filter(name=f"{LAW.name}/{queue}").first()
    if loop is None:
        raise BadInput("queue", f"{queue} has no remedy ladder yet; try again in a few seconds.")
    catalog.get_parameter(LAW, "cap").check(cap, "")
    before = str(catalog.read_parameters(LAW, loop.parameters)["cap"])
    if cap == before:
        raise BadInput("cap", f"is already {cap}; choose another level.")
    require_no_override(loop, "cap", "cap", now)
    Loop.objects.filter(pk=loop.pk).update(parameters={**loop.parameters, "cap": cap})
    audit_log.record(actor, "ladder.cap", queue, reason=why, before={"cap": before}, after={"cap": cap})
    return before, cap
