"""API tokens: created and revoked by their owner, on pages, by the API, and by `manage.py token`.

A token may create others only if its own actions name `token.mint`. Such a child has no more than its parent: neither
role, queues, nor actions, and no later expiry; it ends with its parent, and creates no tokens itself.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from common import checks
from common.errors import BadInput
from common.parameter import Parameter
from console.accounts.access import (
    ACTIONS,
    BY_NAME_ONLY,
    PRODUCER,
    SESSIONS_ONLY,
    Actor,
    choose_lower_role,
    create_token,
    format_audit_name,
    get_action_family,
    require_permission,
    require_recent_confirmation,
)
from console.accounts.identity_settings import ROLES
from console.audit import audit_log
from console.models import ApiToken, SharedLink
from queues.models import Queue
from workers.steering import plant_settings
from workers.steering.overrides import read_reason

NAME = re.compile(r"[\w.-]{1,80}\Z")
MAX_SCOPES = 100
RETAINED = timedelta(days=400)  # after its end; the audit keeps it for longer
FAMILIES = frozenset(map(get_action_family, ACTIONS)) - {"account"}


@dataclass(frozen=True)
class TokenScope:
    """The limits of a token within its role: names of queues, and actions or families of them.

    Empty: no limit.
    """

    queues: Collection[str] = ()
    actions: Collection[str] = ()


EVERYTHING = TokenScope()


def list_grantable_roles(actor: Actor) -> list[str]:
    """Return the roles that a token of this actor can have."""
    return [role for role in (PRODUCER, *ROLES) if choose_lower_role(role, actor.role) == role]


@transaction.atomic
def make(
    actor: Actor, name: str, role: str, days: Any, now: datetime, scope: TokenScope = EVERYTHING
) -> tuple[ApiToken, str]:
    """Create a token of the actor's; return it and its secret, shown once.

    Raises `BadInput` that names the field.
    """
    require_permission(actor, "token.mint")
    _check(actor, name, role, days)
    _check_queues(actor, scope.queues)
    _check_actions(actor, scope.actions)
    ApiToken.objects.filter(Q(expires_at__lt=now - RETAINED) | Q(revoked_at__lt=now - RETAINED)).delete()
    if role == "administrator" or BY_NAME_ONLY & set(scope.actions):
        require_recent_confirmation(actor)
    # A user who is disabled at the same time gets no token that would outlive it.
    account = actor.account
    owner = User.objects.select_for_update().filter(pk=account.pk, is_active=True).first()
    if owner is None:
        raise BadInput("owner", f"{account.get_username()} is not allowed to log in.")
    queues = scope.queues or sorted(actor.queues or ())
    actions = scope.actions or _inherit_actions(actor)
    expires_at = now + timedelta(days=days)
    if actor.token is not None:
        expires_at = min(expires_at, actor.token.expires_at)
    token, secret = create_token(owner, name, role, expires_at, queues=queues, actions=actions, parent=actor.token)
    audit_log.record(actor, "token.create", name, after=describe_token(token))
    return token, secret


def describe_token(token: ApiToken) -> dict[str, Any]:
    """Return a token for the audit log."""
    document = {"role": token.role, "owner": token.owner.get_username(), "expires_at": token.expires_at.isoformat()}
    more = {"queues": token.queues, "actions": token.actions, "parent": token.parent and token.parent.name}
    return {**document, **{key: value for key, value in more.items() if value}}


def _check(actor: Actor, name: str, role: str, days: Any) -> None:
    if not NAME.match(name):
        raise BadInput("name", "must have 1 to 80 letters, digits, dots, hyphens, or underscores.")
    if ApiToken.objects.filter(name=name).exists():
        raise BadInput("name", f"{name} is already taken; choose another name.")
    if role not in ApiToken.Role.values:
        raise BadInput("role", f"must be one of {', '.join(ApiToken.Role.values)}, not {role[:40]!r}.")
    if role not in list_grantable_roles(actor):
        raise BadInput("role", f"{role} exceeds the permissions of {actor.name}.")
    most = plant_settings.get_setting_value("token.maximum_days")
    checks.accept_whole_number(1, most).validate(days, "days", end=".")


def _check_queues(actor: Actor, queues: Collection[str]) -> None:
    if len(queues) > MAX_SCOPES:
        raise BadInput("queues", f"must have at most {MAX_SCOPES} names.")
    known = set(Queue.objects.values_list("name", flat=True))
    if unknown := sorted(set(queues) - known):
        raise BadInput("queues", (f"{unknown[0][:60]!r} is not a queue; choose from {', '.join(sorted(known))}."))
    if (queues and not actor.can_access_queues(queues)) or actor.queues == frozenset():
        raise BadInput("queues", f"exceed those of {actor.name}: {', '.join(sorted(actor.queues or ()))}.")


def _check_actions(actor: Actor, actions: Collection[str]) -> None:
    for action in actions:
        if action in SESSIONS_ONLY or (action not in ACTIONS and action not in FAMILIES):
            named = ", ".join(sorted(set(ACTIONS) - SESSIONS_ONLY))
            raise BadInput(
                "actions",
                f"must be action families ({', '.join(sorted(FAMILIES))}) or actions ({named}), not {action[:60]!r}.",
            )
        mine = [
            known_action
            for known_action in ACTIONS
            if action in (known_action, get_action_family(known_action)) and actor.may(known_action)
        ]
        if not mine or (actor.token is not None and not _is_within(actor, action)):
            raise BadInput("actions", f"{action} exceeds the permissions of {actor.name}.")


def _inherit_actions(parent: Actor) -> list[str]:
    """Return the actions of a child that names none: its parent's, so that it shows what it may do.

    Raises `BadInput` if none is left, since an empty list would mean every action of its role.
    """
    actions = sorted((parent.actions or frozenset()) - BY_NAME_ONLY)
    if parent.actions is not None and not actions:
        own = ", ".join(sorted(parent.actions))
        raise BadInput("actions", f"{parent.name} has no actions that a child token can inherit; it has only {own}.")
    return actions


def _is_within(parent: Actor, action: str) -> bool:
    """Return whether a child of this token may be given the action or family."""
    if action in BY_NAME_ONLY:
        return False
    return parent.actions is None or bool(parent.actions & {action, get_action_family(action)})


@transaction.atomic
def revoke(actor: Actor, token: ApiToken, now: datetime) -> bool:
    """Revoke a token and its children now; return False if it had ended already.

    Users may do this for their own tokens and descendants; user managers, for all tokens.
    """
    require_permission(actor, "token.mint" if is_own(actor, token) else "user.manage")
    if not _end_tokens(ApiToken.objects.filter(pk=token.pk), now):
        return False
    audit_log.record(actor, "token.revoke", token.name, before={"role": token.role})
    for child in token.children.filter(revoked_at=None):
        _end_tokens(ApiToken.objects.filter(pk=child.pk), now)
        audit_log.record(actor, "token.revoke", child.name, reason=f"Its parent token {token.name} was revoked.")
    return True


@transaction.atomic
def set_quota(
    actor: Actor, token: ApiToken, events_per_second: int | None, bytes_per_second: int | None, reason: str
) -> None:
    """Set a token's own quotas; None: those of the plant.

    Only for those who manage users. Raises `BadInput`.
    """
    require_permission(actor, "user.manage")
    why = read_reason(reason)
    wanted = {"quota_events_per_second": events_per_second, "quota_bytes_per_second": bytes_per_second}
    for name, value in wanted.items():
        setting = plant_settings.find_declaration(name.replace("quota_", "quota."))
        if value is not None:
            _check_quota(setting, name.removeprefix("quota_"), value)
    before = {name: getattr(token, name) for name in wanted}
    ApiToken.objects.filter(pk=token.pk).update(**wanted)
    audit_log.record(actor, "token.quota", token.name, reason=why, before=before, after=wanted)


def _check_quota(setting: Parameter, field: str, value: Any) -> None:
    try:
        setting.check(value, field)
    except BadInput as error:
        raise BadInput(field, error.message) from None


def is_own(actor: Actor, token: ApiToken) -> bool:
    """Return whether the actor may end it without managing users: its person's token, or a token's child."""
    if actor.token is not None:
        return token.parent_id == actor.token.pk or token.pk == actor.token.pk
    return token.owner == actor.user


def revoke_all(owner: User, now: datetime) -> int:
    """Revoke all tokens of a user permanently; return their number."""
    return _end_tokens(ApiToken.objects.filter(owner=owner), now)


def _end_tokens(tokens: QuerySet[ApiToken], now: datetime) -> int:
    """Return how many tokens were active, and end them and the links shared with them."""
    end_links(map(format_audit_name, tokens.values_list("name", flat=True)), now)
    return tokens.filter(revoked_at=None).update(revoked_at=now)


def end_links(authors: Iterable[str], now: datetime) -> None:
    """End active links to an instant that these authors have shared, named as in the audit log."""
    links = SharedLink.objects.filter(author__in=list(authors), ended_at=None, expires_at__gt=now)
    links.update(ended_at=now)
