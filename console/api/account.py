"""Accounts and settings: users, sessions, tokens, the plant's settings and the loops' own values."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router, Status

from console import people, plant_steering, sessions, tokens
from console.access import role_of
from console.api.authentication import actor_for
from console.api.control import Given, loop_named
from console.models import ApiToken, UserSession

router = Router(tags=["settings"])
SHOWN_ONCE = "no-store"


class Value(Given):
    """A value, and why."""

    value: float | int | str
    reason: str


class OwnValue(Given):
    """A loop's own value of a parameter or `guard.NAME`; null gives the default back."""

    name: str
    value: float | int | str | None = None
    reason: str


class NewUser(Given):
    """`password` is made up when it is left out."""

    username: str
    role: str
    reason: str
    password: str = ""


class Role(Given):
    role: str
    reason: str


class Why(Given):
    reason: str


class NewPassword(Given):
    reason: str
    password: str = ""


class NewToken(Given):
    name: str
    role: str = "producer"
    days: int = 90


@router.get("/settings", summary="The plant's settings, with what each takes")
def list_settings(request: HttpRequest) -> dict[str, Any]:
    actor_for(request, "plant.view")
    return {"settings": plant_steering.setting_rows()}


@router.post("/settings/{name}", summary="Set a setting of the plant")
def change_setting(request: HttpRequest, name: str, body: Value) -> dict[str, Any]:
    actor = actor_for(request, "settings.change")
    before, after = plant_steering.change_setting(actor, name, body.value, body.reason, timezone.now())
    return {"name": name, "before": before, "value": after}


@router.post("/loops/{loop_id}/settings", summary="Set a loop's own value of a parameter or of its guard")
def change_own(request: HttpRequest, loop_id: int, body: OwnValue) -> dict[str, Any]:
    actor = actor_for(request, "settings.change")
    before, after = plant_steering.change_own(actor, loop_named(loop_id), **body.dict())
    return {"name": body.name, "before": before, "value": after}


@router.get("/users", summary="Who may log in")
def list_users(request: HttpRequest) -> dict[str, Any]:
    actor_for(request, "user.manage")
    return {"users": [user_row(each) for each in people.User.objects.order_by("username")]}


@router.post("/users", response={201: dict[str, Any]}, summary="A new user; the password is shown this once")
def create_user(request: HttpRequest, response: HttpResponse, body: NewUser) -> Status:
    actor = actor_for(request, "user.manage")
    user, password = people.create(actor, **body.dict())
    response["Cache-Control"] = SHOWN_ONCE
    return Status(201, {**user_row(user), "password": password})


@router.post("/users/{username}/role", summary="Give another role")
def change_role(request: HttpRequest, username: str, body: Role) -> dict[str, Any]:
    actor, user = actor_for(request, "user.manage"), _user(username)
    people.change_role(actor, user, body.role, body.reason)
    return user_row(user)


@router.post("/users/{username}/disable", summary="Let them log in no more; sessions and tokens end")
def disable_user(request: HttpRequest, username: str, body: Why) -> dict[str, Any]:
    actor, user = actor_for(request, "user.manage"), _user(username)
    people.enable(actor, user, False, body.reason)
    return user_row(_user(username))


@router.post("/users/{username}/enable", summary="Let them log in again")
def enable_user(request: HttpRequest, username: str, body: Why) -> dict[str, Any]:
    actor, user = actor_for(request, "user.manage"), _user(username)
    people.enable(actor, user, True, body.reason)
    return user_row(_user(username))


@router.post("/users/{username}/reset", summary="A new password, shown this once; their sessions end")
def reset_password(
    request: HttpRequest, response: HttpResponse, username: str, body: NewPassword
) -> dict[str, Any]:
    actor, user = actor_for(request, "user.manage"), _user(username)
    password = people.reset_password(actor, user, body.reason, body.password)
    response["Cache-Control"] = SHOWN_ONCE
    return {**user_row(user), "password": password}


@router.get("/sessions", summary="Where you are logged in; everybody, for who manages users")
def list_sessions(request: HttpRequest) -> dict[str, Any]:
    actor = actor_for(request, "account.change")
    rows = sessions.alive(None if actor.may("user.manage") else actor.user)
    return {"sessions": [_session(each) for each in rows]}


@router.post("/sessions/{session_id}/end", summary="Log a session out")
def end_session(request: HttpRequest, session_id: int) -> dict[str, Any]:
    actor = actor_for(request, "account.change")
    found = UserSession.objects.select_related("user").filter(pk=session_id).first()
    if found is None or not (found.user == actor.user or actor.may("user.manage")):
        raise Http404(f"session {session_id} is not there.")
    sessions.end(actor, found)
    return {"id": session_id, "ended": True}


@router.get("/tokens", summary="Your API tokens; everybody's, for who manages users")
def list_tokens(request: HttpRequest) -> dict[str, Any]:
    actor = actor_for(request, "account.change")
    rows = ApiToken.objects.select_related("owner").order_by("-created_at")
    rows = rows if actor.may("user.manage") else rows.filter(owner=actor.user)
    return {"tokens": [_token(each) for each in rows]}


@router.post("/tokens", response={201: dict[str, Any]}, summary="A new token; its secret is shown this once")
def create_token(request: HttpRequest, response: HttpResponse, body: NewToken) -> Status:
    actor = actor_for(request, "account.change")
    token, secret = tokens.make(actor, body.name, body.role, body.days, timezone.now())
    response["Cache-Control"] = SHOWN_ONCE
    return Status(201, {**_token(token), "token": secret})


@router.post("/tokens/{token_id}/revoke", summary="End a token")
def revoke_token(request: HttpRequest, token_id: int) -> dict[str, Any]:
    actor = actor_for(request, "account.change")
    found = ApiToken.objects.select_related("owner").filter(pk=token_id).first()
    if found is None or not (found.owner == actor.user or actor.may("user.manage")):
        raise Http404(f"token {token_id} is not there.")
    return {"id": token_id, "revoked": tokens.revoke(actor, found, timezone.now())}


def _user(username: str) -> people.User:
    return people.found(username)


def user_row(user: people.User) -> dict[str, Any]:
    return {
        "username": user.get_username(),
        "role": role_of(user) if user.is_active else None,
        "enabled": user.is_active,
        "last_login": user.last_login,
        "joined": user.date_joined,
    }


def _session(row: UserSession) -> dict[str, Any]:
    fields = ("id", "created_at", "seen_at", "address", "agent")
    return {"user": row.user.get_username(), **{name: getattr(row, name) for name in fields}}


def _token(row: ApiToken) -> dict[str, Any]:
    fields = ("id", "name", "role", "created_at", "expires_at", "revoked_at", "used_at")
    return {"owner": row.owner.get_username(), **{name: getattr(row, name) for name in fields}}
