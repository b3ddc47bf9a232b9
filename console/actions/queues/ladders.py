"""The highest level that the remedy ladder of a queue may reach: authorized and audited, for pages and API."""

from datetime import datetime

from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from controllers import catalog
from controllers.shedding.ladder import LAW, LEVELS
from workers.models import Loop, Override
from workers.steering import overrides
from workers.steering.overrides import Expiry

UNTIL_ENDED = Expiry(endless=True)


@transaction.atomic
def set_cap(
    actor: Actor, queue: str, cap: str, *, reason: str, now: datetime, expiry: Expiry = UNTIL_ENDED
) -> tuple[str, str, Override | None]:
    """Set the highest level a queue may reach; return (before, after, the override that limits it).

    The cap is an override of its ladder; the usual level ends it. Capped below `shed` the queue loses nothing. Raises
    `BadInput` that names queue, cap, or reason.
    """
    require_permission(actor, "ladder.cap", [queue])
    why = overrides.read_reason(reason)
    loop = Loop.objects.select_for_update().filter(name=f"{LAW.name}/{queue}").first()
    if loop is None:
        raise BadInput("queue", f"{queue} has no remedy ladder yet. Try again in a few seconds.")
    catalog.get_parameter(LAW, "cap").check(cap, "")
    held = [row for row in overrides.list_for_loop(loop, now) if row.name == "cap"]
    configured = str(catalog.read_parameters(LAW, loop.parameters)["cap"])
    before = str(held[-1].value) if held else configured
    if cap == before:
        raise BadInput("cap", f"is already {cap}. Choose another level.")
    made = None
    if cap in (configured, LEVELS[-1]) and all(row.loop_id for row in held):
        for row in held:
            overrides.end(row, by=actor.user, now=now)
        if cap != configured:  # a cap that an earlier version wrote to the ladder's own parameters
            Loop.objects.filter(pk=loop.pk).update(parameters={**loop.parameters, "cap": cap})
    else:
        made = overrides.set_override(
            name="cap", value=cap, owner=actor.account, reason=why, now=now, loop=loop, **vars(expiry)
        )
    end = {"expires_at": made.expires_at.isoformat()} if made and made.expires_at else {}
    audit_log.record(actor, "ladder.cap", queue, reason=why, before={"cap": before}, after={"cap": cap, **end})
    return before, cap, made
