"""Users and their roles: one role each, and always at least one administrator."""

import re
import secrets
from collections.abc import Collection

from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from common.errors import BadInput
from console.accounts import passkeys, second_factor, sessions, tokens
from console.accounts.access import Actor, find_user_role, get_user_queues, require_permission
from console.accounts.identity_settings import ROLES
from console.audit import audit_log
from console.models import Identity, QueueLimit
from queues.models import Queue
from workers.steering.overrides import read_reason

USERNAME = re.compile(r"[\w.@+-]{1,150}\Z")


def find_user(username: str) -> User:
    """Return the user of that name. Raises `BadInput`."""
    user = User.objects.filter(username=username).first()
    if user is None:
        raise BadInput("username", f"{username[:60]!r} is not a user.")
    return user


@transaction.atomic
def create(actor: Actor, username: str, role: str, reason: str, password: str = "") -> tuple[User, str]:
    """Create a user; return it and the password (random unless given), which is shown once."""
    require_permission(actor, "user.manage")
    why = read_reason(reason)
    if not USERNAME.match(username):
        raise BadInput("username", "must have 1 to 150 letters, digits, or the characters @ . + - _.")
    if User.objects.filter(username__iexact=username).exists():
        raise BadInput("username", f"{username} is already taken.")
    _check_role(role)
    user = User(username=username)
    given = _set_password(user, password)
    user.save()
    user.groups.set([_group(role)])
    audit_log.record(actor, "user.create", username, reason=why, after={"role": role})
    return user, given


@transaction.atomic
def change_role(actor: Actor, user: User, role: str, reason: str) -> None:
    """Change the role, which applies from the next request on."""
    require_permission(actor, "user.manage")
    why, before = read_reason(reason), find_user_role(user)
    _check_role(role)
    if role == before:
        raise BadInput("role", f"of {user.get_username()} is already {role}.")
    _check_local(user, "role", "is set by the groups of the identity provider. Change them there.")
    if role != "administrator":
        _keep_an_administrator(user)
    else:
        QueueLimit.objects.filter(user=user).delete()
    user.groups.set([_group(role)])
    if user.is_superuser:  # a superuser is an administrator, whatever the groups say
        user.is_superuser = False
        user.save(update_fields=["is_superuser"])
    audit_log.record(actor, "user.role", user.get_username(), reason=why, before={"role": before}, after={"role": role})


@transaction.atomic
def limit_queues(actor: Actor, user: User, queues: Collection[str], reason: str) -> None:
    """Limit a user's role to these queues; none: all queues. Raises `BadInput` that names the field."""
    require_permission(actor, "user.manage")
    why, wanted, before = read_reason(reason), sorted(set(queues)), sorted(get_user_queues(user) or ())
    if find_user_role(user) == "administrator" and wanted:
        raise BadInput("queues", "can't be limited for an administrator, who could remove the limit.")
    known = set(Queue.objects.values_list("name", flat=True))
    if unknown := [queue for queue in wanted if queue not in known]:
        raise BadInput("queues", (f"{unknown[0][:60]!r} is not a queue. Choose from {', '.join(sorted(known))}."))
    if wanted == before:
        raise BadInput("queues", f"of {user.get_username()} already have this value.")
    QueueLimit.objects.filter(user=user).delete()
    if wanted:
        QueueLimit.objects.create(user=user, queues=wanted)
    audit_log.record(actor, "user.queues", user.get_username(), reason=why, before=before, after=wanted)


@transaction.atomic
def remove_second_factor(actor: Actor, user: User, reason: str) -> None:
    """Remove app, passkeys, and recovery codes of a user who has lost them; the user's sessions end."""
    require_permission(actor, "user.manage")
    why = read_reason(reason)
    if not second_factor.remove_all(user):
        raise BadInput("username", f"{user.get_username()} has no second factor.")
    sessions.end_all(user)
    audit_log.record(actor, "user.second_factor", user.get_username(), reason=why, after={"on": False})


@transaction.atomic
def remove_passkey(actor: Actor, user: User, passkey_id: str | int, reason: str) -> str:
    """Remove a passkey of a user, whose sessions end, and return its name. Raises `BadInput`."""
    require_permission(actor, "user.manage")
    why, passkey = read_reason(reason), passkeys.find_passkey(user, passkey_id)
    passkeys.delete(passkey)
    sessions.end_all(user)
    audit_log.record(actor, "user.passkey.remove", user.get_username(), reason=why, before={"name": passkey.name})
    return passkey.name


@transaction.atomic
def enable(actor: Actor, user: User, on: bool, reason: str) -> None:
    """Enable or disable a user. Disabling permanently ends all their sessions, tokens, and shared links at once."""
    require_permission(actor, "user.manage")
    why = read_reason(reason)
    if user.is_active == on:
        raise BadInput("username", f"{user.get_username()} is already {'enabled' if on else 'disabled'}.")
    if not on and user == actor.user:
        raise BadInput("username", "is your own. Ask another administrator to disable your account.")
    if not on:
        _keep_an_administrator(user)
    User.objects.filter(pk=user.pk).update(is_active=on)
    if not on:
        end_access(user)
    state = {"before": {"enabled": not on}, "after": {"enabled": on}}
    audit_log.record(actor, "user.enable" if on else "user.disable", user.get_username(), reason=why, **state)


@transaction.atomic
def reset_password(actor: Actor, user: User, reason: str, password: str = "") -> str:
    """Set a new password, which is shown once. The user's sessions, tokens, and shared links end permanently."""
    require_permission(actor, "user.manage")
    why = read_reason(reason)
    _check_local(user, "username", "belongs to an account of the identity provider, which has no password in Weir.")
    given = _set_password(user, password)
    user.save(update_fields=["password"])
    end_access(user)
    audit_log.record(actor, "user.reset", user.get_username(), reason=why)
    return given


def end_access(user: User) -> None:
    """End a user's access permanently: sessions, tokens, and links shared by the user or with a token."""
    now = timezone.now()
    sessions.end_all(user)
    tokens.revoke_all(user, now)
    tokens.end_links([user.get_username()], now)


def _set_password(user: User, password: str) -> str:
    given = password or secrets.token_urlsafe(12)
    try:
        validate_password(given, user)
    except ValidationError as error:
        raise BadInput("password", " ".join(error.messages)) from None
    user.set_password(given)
    return given


def _check_local(user: User, field: str, why: str) -> None:
    if Identity.objects.filter(user=user).exists():
        raise BadInput(field, why)


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise BadInput("role", f"must be one of {', '.join(ROLES)}, not {role[:40]!r}.")


def _group(role: str) -> Group:
    return Group.objects.get_or_create(name=role)[0]


def _keep_an_administrator(leaving: User) -> None:
    """Reject a change that would leave no administrator, which could not be repaired from within."""
    # Locked: of two administrators who remove each other's role at the same time, one keeps it.
    active = User.objects.select_for_update(no_key=True).filter(is_active=True).order_by("pk")
    others = [user for user in active if user.pk != leaving.pk]
    if find_user_role(leaving) == "administrator" and not any(
        find_user_role(other) == "administrator" for other in others
    ):
        raise BadInput(
            "username", (f"{leaving.get_username()} is the last administrator. Create another administrator first.")
        )
