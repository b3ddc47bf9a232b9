"""Who may do what: one table of actions, one answer for pages, API and websockets.

Roles are Django groups: viewer < operator < administrator. A token carries a role too, never more than its
owner has today; the role *producer* may publish events and nothing else.
"""

import functools
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from console.models import ApiToken

ROLES = ("viewer", "operator", "administrator")
PRODUCER = "producer"

# Action → least role. Every view, endpoint and socket asks here, by one of these names.
ACTIONS = {
    "plant.view": "viewer",
    "account.change": "viewer",
    "events.publish": "operator",
    "override.set": "operator",
    "override.extend": "operator",
    "override.end": "operator",
    "override.endless": "administrator",
    "loop.mode": "operator",
    "node.thresholds": "operator",
    "node.use": "operator",
    "plan.propose": "operator",
    "plan.approve": "operator",
    "plan.stop": "operator",
    "lab.run": "operator",
    "task.run": "operator",
    "task.cancel": "operator",
    "task.resume": "operator",
    "task.change": "operator",
    "task.define": "administrator",
    "pipeline.declare": "operator",
    "pipeline.steer": "operator",
    "plant.scale": "operator",
    "ladder.cap": "operator",
    "plant.register": "administrator",
    "dead_letters.requeue": "operator",
    "dead_letters.discard": "operator",
    "dead_letters.fix": "operator",
    "alert.acknowledge": "operator",
    "alert.snooze": "operator",
    "alert.escalate": "operator",
    "alert.note": "operator",
    "silence.set": "operator",
    "silence.end": "operator",
    "alert_rule.change": "operator",
    "receiver.change": "administrator",
    "receiver.test": "administrator",
    "mark.add": "operator",
    "mark.remove": "operator",
    "audit.view": "administrator",
    "settings.change": "administrator",
    "user.manage": "administrator",
}
TOKEN_PREFIX = "weir_"
USED_AT_STEP = timedelta(minutes=1)


@dataclass(frozen=True)
class Actor:
    """A person or a token that asks for something. `role` is None for one who may do nothing."""

    name: str
    role: str | None
    user: User | None = None
    token: ApiToken | None = None
    address: str | None = None
    request_id: str = ""

    def may(self, action: str) -> bool:
        """Whether this actor may do `action`; an action missing in the table raises KeyError."""
        least = ACTIONS[action]
        if self.role == PRODUCER:
            return action == "events.publish"
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(least)

    def permissions(self) -> dict[str, bool]:
        """Every action with its answer, named for templates: `override.set` is `override_set`."""
        return {action.replace(".", "_"): self.may(action) for action in ACTIONS}


NOBODY = Actor(name="nobody", role=None)


def role_of(user: User | AnonymousUser) -> str | None:
    """The highest role among the user's groups; a superuser is an administrator."""
    if not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return "administrator"
    held = set(user.groups.values_list("name", flat=True))
    return next((role for role in reversed(ROLES) if role in held), None)


def actor_of(request: HttpRequest) -> Actor:
    """The logged-in person of a request (once looked up, kept on the request)."""
    known = getattr(request, "weir_actor", None)
    if known is None:
        known = named(request, actor_of_user(request.user, request.META.get("REMOTE_ADDR")))
        request.weir_actor = known
    return known


def named(request: HttpRequest, actor: Actor) -> Actor:
    """The actor with the id of its request, which the audit notes."""
    return replace(actor, request_id=getattr(request, "request_id", ""))


def actor_of_user(user: User | AnonymousUser, address: str | None = None) -> Actor:
    if not user.is_authenticated:
        return Actor(name=NOBODY.name, role=None, address=address)
    return Actor(name=user.get_username(), role=role_of(user), user=user, address=address)


def requires(action: str) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """A view only for actors who may do `action`; others get 403 (the login middleware has asked already)."""
    if action not in ACTIONS:
        raise KeyError(f"{action} is missing in console.access.ACTIONS")

    def decorate(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @functools.wraps(view)
        def guarded(request: HttpRequest, *args: Any, **named: Any) -> HttpResponse:
            demand(actor_of(request), action)
            return view(request, *args, **named)

        guarded.action = action  # the permissions test reads it
        return guarded

    return decorate


def demand(actor: Actor, action: str) -> None:
    """Raise PermissionDenied, saying which role is needed, unless the actor may do it."""
    if actor.may(action):
        return
    held = actor.role or "no role"
    raise PermissionDenied(f"{action} takes the role {ACTIONS[action]}; {actor.name} has {held}.")


def digest_of(secret: str) -> str:
    """SHA-256 in hex. Tokens are 256 random bits, so a slow hash would add nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(owner: User, name: str, role: str, expires_at: datetime) -> tuple[ApiToken, str]:
    """A new token and its secret, which is never to be seen again."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        name=name, digest=digest_of(secret), role=role, owner=owner, expires_at=expires_at
    )
    return token, secret


def actor_of_token(secret: str, now: datetime, address: str | None = None) -> Actor | None:
    """The actor behind a secret; None when it is unknown, expired, revoked, or its owner may not log in."""
    token = ApiToken.objects.select_related("owner").filter(digest=digest_of(secret)).first()
    if token is None or token.revoked_at is not None or token.expires_at <= now or not token.owner.is_active:
        return None
    role = least_role(token.role, role_of(token.owner))
    if token.used_at is None or now - token.used_at >= USED_AT_STEP:
        ApiToken.objects.filter(pk=token.pk).update(used_at=now)
    return Actor(name=f"token:{token.name}", role=role, user=token.owner, token=token, address=address)


def least_role(token_role: str, owner_role: str | None) -> str | None:
    """What a token may be: its own role, but never above its owner's."""
    if owner_role is None:
        return None
    if token_role == PRODUCER:
        return PRODUCER if ROLES.index(owner_role) >= ROLES.index(ACTIONS["events.publish"]) else None
    return min(token_role, owner_role, key=ROLES.index)


def bearer_of(header: str | None) -> str | None:
    """The secret in `Authorization: Bearer …`, or None when the header is missing or of another kind."""
    kind, _, secret = (header or "").partition(" ")
    return secret.strip() or None if kind.lower() == "bearer" else None


def user_of_session(session_key: str | None) -> User | AnonymousUser:
    """Who a session belongs to now: nobody once it is logged out, expired, or the password was changed."""
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    return get_user(request)


def actor_of_connection(
    session_key: str | None, authorization: str | None, address: str | None = None
) -> Actor:
    """Who holds a websocket, asked again while it is open: by token when one was given, else by session."""
    if authorization is not None:
        secret = bearer_of(authorization)
        found = actor_of_token(secret, timezone.now(), address) if secret else None
        return found or NOBODY
    return actor_of_user(user_of_session(session_key), address) if session_key else NOBODY


class ContentSecurityPolicy(MiddlewareMixin):
    """Only our own scripts run, nothing may frame us; inline styles are allowed, since Plotly sets them."""

    POLICY = "; ".join(
        (
            "default-src 'self'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "connect-src 'self'",  # covers the websocket of the same origin (CSP level 3)
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Content-Security-Policy", self.POLICY)
        return response
