"""API tokens: created and revoked by their owner, on pages, by the API, and by `manage.py token`; and their quotas.

A token may create others only if its own actions name `token.mint`. Such a child has no more than its parent: neither
role, queues, nor actions, and no later expiry; it ends with its parent, and creates no tokens itself.

Publishing quotas are events per second and bytes per second, shared by all web processes. Each quota is a token bucket
on the control server. It holds at most BURST_SECONDS of its rate and fills by the server's clock. A request is admitted
while no bucket is below 0, then takes its cost, even if that exceeds the level: the debt delays the next request. A
body of any size therefore passes once, and the average never exceeds the rate by more than the burst and one request.
Levels: a hash `weir:quota:{subject}`, deleted when full.
"""

import math
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
from console.connections.control_server import control
from console.models import ApiToken, SharedLink
from queues import keys
from queues.lua.script import load_script
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
    actor: Actor, name: str, role: str, days: float, now: datetime, scope: TokenScope = EVERYTHING
) -> tuple[ApiToken, str]:
    """Create a token of the actor's; return it and its secret, shown once. Raises `BadInput` that names the field."""
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


def _check(actor: Actor, name: str, role: str, days: object) -> None:
    if not NAME.match(name):
        raise BadInput("name", "must have 1 to 80 letters, digits, dots, hyphens, or underscores.")
    if ApiToken.objects.filter(name=name).exists():
        raise BadInput("name", f"{name} is already taken. Choose another name.")
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
        raise BadInput("queues", (f"{unknown[0][:60]!r} is not a queue. Choose from {', '.join(sorted(known))}."))
    if (queues and not actor.can_access_queues(queues)) or actor.queues == frozenset():
        raise BadInput("queues", f"exceed those of {actor.name}: {', '.join(sorted(actor.queues or ()))}.")


def list_grantable_actions(actor: Actor) -> dict[str, list[str]]:
    """Return the actions that the actor may give a token, by family."""
    grantable: dict[str, list[str]] = {}
    for action in sorted(set(ACTIONS) - SESSIONS_ONLY):
        if actor.may_somewhere(action):
            grantable.setdefault(get_action_family(action), []).append(action)
    return grantable


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
        inherited = actor.actions is None or bool(actor.actions & {action, get_action_family(action)})
        is_within = inherited and action not in BY_NAME_ONLY  # what a child of this token may be given
        if not mine or (actor.token is not None and not is_within):
            raise BadInput("actions", f"{action} exceeds the permissions of {actor.name}.")


def _inherit_actions(parent: Actor) -> list[str]:
    """Return the actions of a child that names none: its parent's, so that it shows what it may do.

    Raises `BadInput` if none is left, since an empty list would mean every action of its role.
    """
    actions = sorted((parent.actions or frozenset()) - BY_NAME_ONLY)
    if parent.actions is not None and not actions:
        own = ", ".join(sorted(parent.actions))
        raise BadInput("actions", f"{parent.name} has no actions that a child token can inherit. It has only {own}.")
    return actions


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
    """Set a token's own quotas; None: those of the plant. Only for those who manage users. Raises `BadInput`."""
    require_permission(actor, "user.manage")
    why = read_reason(reason)
    wanted = {"quota_events_per_second": events_per_second, "quota_bytes_per_second": bytes_per_second}
    for name, value in wanted.items():
        setting = plant_settings.find_declaration(name.replace("quota_", "quota."))
        if value is not None:
            field = name.removeprefix("quota_")
            try:
                setting.check(value, field)
            except BadInput as error:
                raise BadInput(field, error.message) from None
    before = {name: getattr(token, name) for name in wanted}
    ApiToken.objects.filter(pk=token.pk).update(**wanted)
    audit_log.record(actor, "token.quota", token.name, reason=why, before=before, after=wanted)


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


BURST_SECONDS = 10


@dataclass(frozen=True)
class Quota:
    """The quota of one subject; `subject` is a token or, for a session, its user."""

    subject: str
    events_per_second: int
    bytes_per_second: int

    def wait_seconds(self, size_bytes: int) -> int:
        """Return 0 if a request of that size is admitted and counted, else the whole seconds to wait.

        Raises `redis.RedisError` if the control server does not answer.
        """
        return math.ceil(self._take(0, size_bytes, ask=True) / 1000)

    def charge(self, events: int, size_bytes: int) -> None:
        """Count the events and bytes that an admitted request additionally contained. Raises `redis.RedisError`."""
        self._take(events, size_bytes, ask=False)

    def _take(self, events: int, size_bytes: int, ask: bool) -> int:
        rates = (self.events_per_second, self.bytes_per_second, BURST_SECONDS)
        words = (keys.QUOTA.build(self.subject), *rates, events, size_bytes, int(ask))
        return int(control().eval(load_script("control/take_quota"), 1, *words))


def get_actor_quota(actor: Actor) -> Quota:
    """Return the token's own quota if it has one, else the plant's settings.

    A child token shares its parent's quota; otherwise many children could publish many times as much.
    """
    token = actor.token and (actor.token.parent or actor.token)
    own_events = token.quota_events_per_second if token else None
    own_bytes = token.quota_bytes_per_second if token else None
    return Quota(
        f"token:{token.pk}" if token else f"user:{actor.user.pk if actor.user else 0}",
        own_events or plant_settings.get_setting_value("quota.events_per_second"),
        own_bytes or plant_settings.get_setting_value("quota.bytes_per_second"),
    )
