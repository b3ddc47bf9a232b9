"""Authorization: one table of actions, and one decision for pages, API, and websockets.

Roles are Django groups: viewer < operator < administrator. A token has a role too, never more than its owner's current
role; the role *producer* may publish events and nothing else. A person or a token may be limited to some queues:
`demand` gets the queues that an action concerns, and rejects those outside the limit. Actions in CONFIRMED require a
person who has confirmed their identity within the last minutes.
"""

import functools
import hashlib
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, NoReturn

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from console.accounts import second_factor, submissions
from console.accounts.identity_settings import ROLES
from console.audit import refusals
from console.models import ApiToken, Identity, QueueLimit
from console.web import admission
from console.web.web_request import get_web_request
from workers.steering import plant_settings
from workers.windows import freezes

PRODUCER = "producer"

# Action → minimum role. Every view, endpoint, and socket checks one of these names.
ACTIONS = {
    "plant.view": "viewer",
    "account.change": "viewer",
    "token.mint": "viewer",
    "events.publish": "operator",
    "override.set": "operator",
    "override.extend": "operator",
    "override.end": "operator",
    "override.undo": "operator",
    "override.endless": "administrator",
    "loop.mode": "operator",
    "node.thresholds": "operator",
    "node.use": "operator",
    "plan.propose": "operator",
    "proposal.make": "viewer",
    "proposal.decide": "operator",
    "plan.approve": "operator",
    "plan.stop": "operator",
    "lab.run": "operator",
    "drill.run": "operator",
    "task.run": "operator",
    "task.cancel": "operator",
    "task.resume": "operator",
    "task.change": "operator",
    "task.define": "administrator",
    "pipeline.declare": "operator",
    "pipeline.steer": "operator",
    "plant.scale": "operator",
    "plant.start_task": "operator",
    "ladder.cap": "operator",
    "queue.pause": "operator",
    "queue.circuit": "operator",
    "queue.fairness": "operator",
    "queue.peek": "operator",
    "queue.define": "administrator",
    "host.drain": "operator",
    "process.view": "administrator",
    "process.restart": "administrator",
    "plant.register": "administrator",
    "retry.propose": "operator",
    "retry.approve": "operator",
    "retry.stop": "operator",
    "messages.move": "operator",
    "messages.purge": "operator",
    "dead_letters.requeue": "operator",
    "dead_letters.discard": "operator",
    "dead_letters.fix": "operator",
    "alert.acknowledge": "operator",
    "alert.snooze": "operator",
    "alert.escalate": "operator",
    "alert.note": "operator",
    "incident.change": "operator",
    "alert.report": "operator",
    "silence.set": "operator",
    "silence.end": "operator",
    "window.set": "operator",
    "window.end": "operator",
    "freeze.manage": "administrator",
    "freeze.override": "administrator",
    "alert_rule.change": "operator",
    "receiver.change": "administrator",
    "receiver.test": "administrator",
    "objective.change": "operator",
    "mark.add": "operator",
    "mark.remove": "operator",
    "link.make": "operator",
    "link.end": "operator",
    "integrity.manage": "administrator",
    "audit.view": "administrator",
    "settings.change": "administrator",
    "user.manage": "administrator",
}
# A user's own password, sessions, and second factor, and decisions on assistants' proposals: for people who
# are logged in, never for a token.
SESSIONS_ONLY = frozenset({"account.change", "proposal.decide"})
# A token has these only if its own list of actions names them, and it gives them to no child.
BY_NAME_ONLY = frozenset({"token.mint", "user.manage"})
# Actions that name no queue and change none: users who are limited to some queues may do them.
OF_NO_QUEUE = frozenset(
    {"plant.view", "account.change", "token.mint", "lab.run", "mark.add", "mark.remove", "audit.view"}
)
# Actions that always concern the whole plant: users who are limited to some queues may not do them.
OF_THE_PLANT = frozenset(
    {
        "alert.report",
        "alert_rule.change",
        "drill.run",
        "freeze.manage",
        "freeze.override",
        "host.drain",
        "integrity.manage",
        "link.end",
        "link.make",
        "messages.move",
        "messages.purge",
        "node.thresholds",
        "node.use",
        "plant.register",
        "plant.scale",
        "plant.start_task",
        "process.restart",
        "process.view",
        "proposal.decide",
        "proposal.make",
        "receiver.change",
        "receiver.test",
        "retry.approve",
        "retry.propose",
        "retry.stop",
        "settings.change",
        "task.define",
        "user.manage",
    }
)
CONFIRMED = frozenset(
    {"user.manage", "settings.change", "receiver.change", "plant.register", "task.define", "queue.define"}
)
# Actions that a change freeze refuses in its scope. Ends of manual changes, and repairs, stay possible.
FROZEN = frozenset(
    {
        "override.set",
        "loop.mode",
        "node.thresholds",
        "node.use",
        "plan.approve",
        "retry.approve",
        "pipeline.declare",
        "pipeline.steer",
        "plant.scale",
        "plant.start_task",
        "plant.register",
        "ladder.cap",
        "queue.pause",
        "queue.define",
        "host.drain",
        "settings.change",
    }
)
CONFIRMED_SECONDS = 600.0
CONFIRMED_AT = "weir_confirmed_at"  # in a session: when its person last confirmed their identity
MAX_ANCESTORS = 8
TOKEN_PREFIX = "weir_"
USED_AT_STEP = timedelta(minutes=1)


@dataclass(frozen=True)
class Actor:
    """A person or a token that requests something. `role` is None if it may do nothing."""

    name: str
    role: str | None
    user: User | None = None
    token: ApiToken | None = None
    address: str | None = None
    request_id: str = ""
    queues: frozenset[str] | None = None  # those it is limited to; None: all
    actions: frozenset[str] | None = None  # actions or their families; None: all of its role
    confirmed_at: float | None = None  # Unix time, for a session; None: a token or a command has no session

    def may(self, action: str) -> bool:
        """Return whether this actor may do `action`. Raises `KeyError` for an action that is missing in the table."""
        least = ACTIONS[action]
        if (self.token or self.actions is not None) and not self._token_has(action):
            return False
        if self.role == PRODUCER:
            return action == "events.publish"
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(least)

    def _token_has(self, action: str) -> bool:
        if action in SESSIONS_ONLY:
            return False
        if action in BY_NAME_ONLY:
            return self.actions is not None and action in self.actions
        return self.actions is None or bool(self.actions & {action, get_action_family(action)})

    def can_access_queues(self, queues: Collection[str] | None) -> bool:
        """Return whether the actor's limit includes these queues (None: the whole plant)."""
        return self.queues is None or (queues is not None and self.queues.issuperset(queues))

    def may_somewhere(self, action: str) -> bool:
        """Return whether the actor may do the action on anything."""
        return self.may(action) and (self.queues is None or action not in OF_THE_PLANT)

    def is_confirmed(self) -> bool:
        """Return whether its person has confirmed their identity within CONFIRMED_SECONDS.

        A time in the future dates from before the clock was set back, so it does not count.
        """
        if self.confirmed_at is None:
            return True
        return abs(timezone.now().timestamp() - self.confirmed_at) <= CONFIRMED_SECONDS

    @property
    def account_key(self) -> str | None:
        """Return the key that all its sessions and tokens share; None for a command of this machine."""
        return None if self.user is None else f"user:{self.user.pk}"

    @property
    def account(self) -> User:
        """Return the account of the actor. Raises `PermissionDenied` if there is none: a command of this machine."""
        if self.user is None:
            raise PermissionDenied(f"{self.name} has no account. This action requires an account.")
        return self.user

    def list_permissions(self) -> dict[str, bool]:
        """Return whether to offer each action, by its name in templates: `override.set` is `override_set`."""
        return {action.replace(".", "_"): self.may_somewhere(action) for action in ACTIONS}


NOBODY = Actor(name="nobody", role=None)


def get_action_family(action: str) -> str:
    """Return the family of an action: `override` for `override.set`."""
    return action.partition(".")[0]


class ConfirmationNeeded(PermissionDenied):
    """The actor may do it, but must confirm their identity first (page /confirm/)."""

    def __init__(self) -> None:
        super().__init__(
            "Confirm your identity at /confirm/: this requires a login within the last "
            f"{CONFIRMED_SECONDS / 60:.0f} minutes. Nothing was changed."
        )


class ChangeFrozen(PermissionDenied):
    """The actor's role permits the action, but a change freeze refuses it; the message names the freeze."""


def find_user_role(user: User | AnonymousUser) -> str | None:
    """Return the highest role among the user's groups; a superuser is an administrator."""
    if not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return "administrator"
    held = set(user.groups.values_list("name", flat=True))
    return next((role for role in reversed(ROLES) if role in held), None)


def actor_of(request: HttpRequest) -> Actor:
    """Return the logged-in person of a request, and cache it on the request."""
    known = getattr(request, "weir_actor", None)
    if known is None:
        person = build_user_actor(request.user, request.META.get("REMOTE_ADDR"))
        known = replace(add_request_id(request, person), confirmed_at=request.session.get(CONFIRMED_AT, 0.0))
        get_web_request(request).weir_actor = known
    return known


def add_request_id(request: HttpRequest, actor: Actor) -> Actor:
    """Return the actor with the id of its request, which the audit records."""
    return replace(actor, request_id=getattr(request, "request_id", ""))


def claim_place(scope: Mapping[str, Any], user: User | None) -> None:
    """Count an active request of a person (a User). Raises `RequestRefused` if they have too many."""
    if user is not None:
        admission.claim(scope, f"person:{user.pk}")


def build_user_actor(user: User | AnonymousUser, address: str | None = None) -> Actor:
    if not user.is_authenticated:
        return Actor(name=NOBODY.name, role=None, address=address)
    role, queues = find_user_role(user), get_user_queues(user)
    if role == "administrator" and _lacks_second_factor(user):
        role = "viewer"  # users who may see a second factor and set one up
    return Actor(name=user.get_username(), role=role, user=user, address=address, queues=queues)


def _lacks_second_factor(user: User) -> bool:
    """Return whether this administrator still needs a second factor. Those with an identity provider need none."""
    if not plant_settings.get_setting_value("login.second_factor"):
        return False
    return not second_factor.is_required(user) and not Identity.objects.filter(user=user).exists()


def get_user_queues(user: User) -> frozenset[str] | None:
    """Return the queues that a user's role is limited to; None: all."""
    limit = QueueLimit.objects.filter(user=user).first()
    return intersect(limit.queues) if limit else None


def intersect(*limits: Collection[str]) -> frozenset[str] | None:
    """Return the intersection of all limits, of which an empty one allows nothing; None: everything."""
    real = [frozenset(limit) for limit in limits if limit]
    return functools.reduce(frozenset.intersection, real) if real else None


def user_of(request: HttpRequest) -> User:
    """Return the logged-in user. Raises `PermissionDenied` if there is none; the login middleware prevents that."""
    if not isinstance(request.user, User):
        raise PermissionDenied("Log in.")
    return request.user


def requires(action: str) -> Callable[[Callable[..., HttpResponseBase]], Callable[..., HttpResponseBase]]:
    """Decorate a view for actors who may do `action`; others get 403. The login middleware has run before."""
    if action not in ACTIONS:
        raise KeyError(f"{action} is missing from console.accounts.access.ACTIONS")

    def decorate(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @functools.wraps(view)
        def guard(request: HttpRequest, *args: object, **named: object) -> HttpResponseBase:
            actor = actor_of(request)
            admit(actor, action)
            submissions.once(request, actor)
            return view(request, *args, **named)

        vars(guard)["action"] = action  # the permissions test reads it
        return guard

    return decorate


def admit(actor: Actor, action: str) -> None:
    """Raise `PermissionDenied`, naming the required role, unless the actor's role permits the action.

    It only admits to a view; the view's objects are checked by `demand`. Rejections of known users are recorded in the
    audit log.
    """
    if actor.may(action):
        return
    held = actor.role or "no role"
    why = f"{action} requires the role {ACTIONS[action]}. The user {actor.name} has {held}."
    if actor.token is not None and action in SESSIONS_ONLY | BY_NAME_ONLY:
        why = f"{action} is not permitted for {actor.name}: log in, or use a token whose actions include it."
    _refuse(actor, action, why)


def _refuse(actor: Actor, action: str, why: str, error: type[PermissionDenied] = PermissionDenied) -> NoReturn:
    if actor.user is not None:
        refusals.note(refusals.Refusal(actor.name, action, "", why, actor.address, actor.request_id))
    raise error(why)


def require_permission(
    actor: Actor, action: str, queues: Collection[str] | None = None, subjects: Collection[str] | None = None
) -> None:
    """Raise `PermissionDenied` unless the actor may do it to these queues (None: the whole plant).

    subjects: what is changed, such as node/n1, which a change freeze may protect; None: these queues; empty: nothing.
    Raises `ConfirmationNeeded` if the person must confirm their identity again.
    """
    if action in OF_NO_QUEUE:
        admit(actor, action)
    else:
        require_data_access(actor, action, queues)
    if action in CONFIRMED:
        require_recent_confirmation(actor)
    if action in FROZEN:
        changed = freezes.list_queue_subjects(queues) if subjects is None else subjects
        if (freeze := freezes.find_freeze(actor.user, changed, timezone.now())) is not None:
            _refuse(actor, action, freezes.explain_freeze(freeze), ChangeFrozen)


def require_data_access(actor: Actor, action: str, queues: Collection[str] | None) -> None:
    """Raise `PermissionDenied` unless the actor may do it and has access to these queues.

    None stands for the whole plant. The check also applies to actions that concern no queue, since what they read or
    use was made from these queues' events.
    """
    admit(actor, action)
    if not actor.can_access_queues(queues):
        own = actor.queues or frozenset()
        beyond = "the whole plant" if queues is None else ", ".join(sorted(set(queues) - own))
        mine = ", ".join(sorted(own)) or "none"
        _refuse(actor, action, f"{action} affects {beyond}. The user {actor.name} is limited to the queues {mine}.")


def require_recent_confirmation(actor: Actor) -> None:
    """Raise `ConfirmationNeeded` if the person's last confirmation is too old."""
    if not actor.is_confirmed():
        raise ConfirmationNeeded


def digest_of(secret: str) -> str:
    """Return the SHA-256 in hex. Tokens are 256 random bits, so a slow hash would add nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(
    owner: User,
    name: str,
    role: str,
    expires_at: datetime,
    *,
    queues: Collection[str] = (),
    actions: Collection[str] = (),
    parent: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """Create a token; return it and its secret, which can't be shown again."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        name=name,
        digest=digest_of(secret),
        role=role,
        owner=owner,
        expires_at=expires_at,
        queues=sorted(queues),
        actions=sorted(actions),
        parent=parent,
    )
    return token, secret


def find_token_actor(secret: str, now: datetime, address: str | None = None) -> Actor | None:
    """Return the actor of a secret; None if it is unknown, expired, revoked, or its owner may not log in.

    A child token is valid only while its parent is.
    """
    token = ApiToken.objects.select_related("owner", "parent").filter(digest=digest_of(secret)).first()
    if token is None or not is_valid(token, now):
        return None
    line = list(_iterate_token_lineage(token))
    role: str | None = find_user_role(token.owner)
    for token_ in line:
        role = choose_lower_role(token_.role, role)
    if token.used_at is None or now - token.used_at >= USED_AT_STEP:
        ApiToken.objects.filter(pk=token.pk).update(used_at=now)
    of_owner = get_user_queues(token.owner)
    return Actor(
        name=format_audit_name(token.name),
        role=role,
        user=token.owner,
        token=token,
        address=address,
        queues=_intersect_limits(of_owner, intersect(*(token_.queues for token_ in line))),
        actions=_list_allowed_actions([token_.actions for token_ in line]),
    )


def format_audit_name(token_name: str) -> str:
    """Return the name under which the audit records a token's actions."""
    return f"token:{token_name}"


def _iterate_token_lineage(token: ApiToken) -> Iterator[ApiToken]:
    """Return a token and its ancestors. Raises `PermissionDenied` for a cycle."""
    for _ in range(MAX_ANCESTORS):
        yield token
        if token.parent is None:
            return
        token = token.parent
    raise PermissionDenied(f"{token.name} has too many parent tokens.")


def _intersect_limits(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _list_allowed_actions(lists: list[list[str]]) -> frozenset[str] | None:
    """Return the actions of a token: its own list, limited by that of each ancestor.

    An empty list limits nothing; a parent's list limits its children whatever they have, even to nothing.
    """
    own, *inherited = lists
    narrowing = [_list_named_actions(actions) - BY_NAME_ONLY for actions in inherited if actions]
    if not narrowing:
        return intersect(own)
    return frozenset.intersection(*narrowing, *([_list_named_actions(own)] if own else []))


def _list_named_actions(actions: Collection[str]) -> frozenset[str]:
    """Return each action in a list of actions and families."""
    return frozenset(action for action in ACTIONS if action in actions or get_action_family(action) in actions)


def choose_lower_role(token_role: str, owner_role: str | None) -> str | None:
    """Return the lower one of the token's role and its owner's."""
    if owner_role is None:
        return None
    if owner_role == PRODUCER:  # a producer's child
        return PRODUCER
    if token_role == PRODUCER:
        return PRODUCER if ROLES.index(owner_role) >= ROLES.index(ACTIONS["events.publish"]) else None
    return min(token_role, owner_role, key=ROLES.index)


def is_valid(token: ApiToken, now: datetime) -> bool:
    """Return whether the token and all its ancestors are valid, and its owner may log in."""
    ended = any(token_.revoked_at is not None or token_.expires_at <= now for token_ in _iterate_token_lineage(token))
    return token.owner.is_active and not ended


def parse_bearer_secret(header: str | None) -> str | None:
    """Return the secret in `Authorization: Bearer …`; None if the header is missing or of another kind."""
    kind, _, secret = (header or "").partition(" ")
    return secret.strip() or None if kind.lower() == "bearer" else None


def find_session_user(session_key: str | None) -> User | AnonymousUser:
    """Return the user of a session; None if it was logged out or expired, or the password was changed."""
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    return get_user(request)


def get_session_actor(session_key: str | None, address: str | None = None) -> Actor:
    """Return the actor of a websocket's session; checked again while it is open."""
    return build_user_actor(find_session_user(session_key), address) if session_key else NOBODY
