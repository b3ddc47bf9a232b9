"""API tokens: made and revoked, by their owner, on pages, over the API and by `manage.py token`."""

import re
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from console import audit
from console.access import PRODUCER, ROLES, Actor, create_token, demand, least_role
from console.models import ApiToken
from queues.errors import BadInput
from workers import plant_settings

NAME = re.compile(r"[\w.-]{1,80}\Z")


def grantable_roles(actor: Actor) -> list[str]:
    """The roles a token of this actor can really have."""
    return [role for role in (PRODUCER, *ROLES) if least_role(role, actor.role) == role]


def make(actor: Actor, name: str, role: str, days: Any, now: datetime) -> tuple[ApiToken, str]:
    """A new token of the actor's, and its secret, to be shown this once. Raises BadInput naming the field."""
    demand(actor, "account.change")
    _check(actor, name, role, days)
    with transaction.atomic():
        token, secret = create_token(actor.user, name, role, now + timedelta(days=days))
        after = {"role": role, "owner": actor.user.get_username(), "expires_at": token.expires_at.isoformat()}
        audit.record(actor, "token.create", name, after=after)
    return token, secret


def _check(actor: Actor, name: str, role: str, days: Any) -> None:
    if not NAME.match(name):
        raise BadInput("name", "takes letters, digits, dot, - and _ (80 at most).")
    if ApiToken.objects.filter(name=name).exists():
        raise BadInput("name", f"{name} is taken; choose another.")
    if role not in ApiToken.Role.values:
        raise BadInput("role", f"takes {', '.join(ApiToken.Role.values)}, not {role[:40]!r}.")
    if role not in grantable_roles(actor):
        raise BadInput("role", f"{role} is more than its owner {actor.user.get_username()} may do.")
    most = plant_settings.value("token.maximum_days")
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= most:
        raise BadInput("days", f"takes a whole number from 1 to {most}, not {days!r}.")


@transaction.atomic
def revoke(actor: Actor, token: ApiToken, now: datetime) -> bool:
    """End it now; False when it was over already. One's own, or anybody's for who manages users."""
    demand(actor, "account.change" if token.owner == actor.user else "user.manage")
    if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
        return False
    audit.record(actor, "token.revoke", token.name, before={"role": token.role})
    return True
