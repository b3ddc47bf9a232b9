"""Accounts and settings: users, sessions, tokens, the plant's settings, and the loops' own values."""

from typing import Annotated, TypedDict

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from pydantic import StrictInt

from common.stored_document import Time, describe
from console.accounts import passkeys, people, second_factor, sessions, tokens
from console.accounts.access import Actor, find_user_role, get_user_queues
from console.accounts.identity_settings import ROLES
from console.actions import plant_settings
from console.actions.plant_settings import ShownSetting
from console.api.request.answers import Created, Json, Router, build_answer
from console.api.request.authentication import actor_for
from console.api.request.input import Reason, RequestBody
from console.api.routes.control import get_loop_or_404
from console.input.form_values import Id
from console.models import ApiToken, Passkey, UserSession

router = Router(tags=["settings"])
SHOWN_ONCE = "no-store"


class SettingList(TypedDict):
    settings: list[ShownSetting]


class SettingChange(TypedDict):
    """A value before and after it was set."""

    name: str
    before: Json
    value: Json


class UserRow(TypedDict):
    """A user."""

    username: str
    role: Annotated[
        Annotated[str, describe(values=ROLES)] | None, describe("Role of the user; null: disabled, or without a role.")
    ]
    enabled: bool
    queues: Annotated[list[str], describe("The queues that the role is limited to; empty: all.")]
    second_factor: Annotated[bool, describe("Whether the login requires a second factor.")]
    last_login: Time | None
    joined: Time


class UserWithPassword(UserRow):
    """A user with a new password."""

    password: Annotated[str, describe("The password, which is shown only once.")]


class UserList(TypedDict):
    users: list[UserRow]


class PasskeyRow(TypedDict):
    """A passkey of a user."""

    id: int
    name: str
    host: Annotated[str, describe("The hostname of Weir at which it can be used.")]
    is_discoverable: Annotated[bool, describe("Whether it replaces username and password.")]
    created_at: Time
    used_at: Annotated[Time | None, describe("Time of the last use; null: never used.")]


class PasskeyList(TypedDict):
    passkeys: list[PasskeyRow]


class PasskeyRemoval(TypedDict):
    id: int
    removed: bool


class SessionRow(TypedDict):
    """A browser with a login."""

    user: str
    id: int
    created_at: Time
    seen_at: Annotated[Time, describe("Time of the last request.")]
    address: str | None
    agent: Annotated[str, describe("The browser's user agent.")]


class SessionList(TypedDict):
    sessions: list[SessionRow]


class SessionEnd(TypedDict):
    id: int
    ended: bool


class TokenRow(TypedDict):
    """An API token, without its secret."""

    owner: str
    parent: Annotated[str | None, describe("The parent token; null: created by a user.")]
    id: int
    name: str
    role: Annotated[str, describe(values=ApiToken.Role.values)]
    queues: Annotated[list[str], describe("The queues that the token is limited to; empty: all queues of its role.")]
    actions: Annotated[list[str], describe("Allowed actions, or families of actions; empty: all actions of its role.")]
    created_at: Time
    expires_at: Time
    revoked_at: Time | None
    used_at: Time | None
    quota_events_per_second: Annotated[int | None, describe("Quota of the token; null: the plant's setting applies.")]
    quota_bytes_per_second: Annotated[int | None, describe("Quota of the token; null: the plant's setting applies.")]


class TokenWithSecret(TokenRow):
    """A new token with its secret."""

    token: Annotated[str, describe("The secret, shown only once.")]


class TokenList(TypedDict):
    tokens: list[TokenRow]


class TokenRevocation(TypedDict):
    id: int
    revoked: Annotated[bool, describe("false: already expired or revoked.")]


class PasskeyName(RequestBody):
    """The new name of a passkey."""

    name: str


class Value(RequestBody):
    """A setting's value and the reason. value: null for no value, an object for values by name."""

    value: float | int | str | dict[str, float] | None
    reason: str


class OwnValue(RequestBody):
    """A loop's own value of a parameter or `guard.NAME`; null restores the default."""

    name: str
    value: bool | float | int | str | None = None
    reason: str


class NewUser(RequestBody):
    """`password` is generated if it is omitted."""

    username: str
    role: str
    reason: str
    password: str = ""


class Role(RequestBody):
    role: str
    reason: str


class LimitedQueues(RequestBody):
    """The queues that the role is limited to. Empty: all queues."""

    queues: list[str]
    reason: str


class NewPassword(RequestBody):
    reason: str
    password: str = ""


class NewToken(RequestBody):
    """A new token with its `queues` and its `actions` (or families of them).

    Empty lists mean no limit within its role.
    """

    name: str
    role: str = "producer"
    days: int = 90
    queues: list[str] = []
    actions: list[str] = []


class NewQuota(RequestBody):
    """An omitted quota, or null, is the plant's."""

    events_per_second: StrictInt | None = None
    bytes_per_second: StrictInt | None = None
    reason: str


@router.get("/settings", summary="List the plant's settings")
def list_settings(request: HttpRequest) -> SettingList:
    actor_for(request, "plant.view")
    return {"settings": list(plant_settings.list_setting_rows())}


@router.post("/settings/{name}", summary="Change a setting of the plant")
def change_setting(request: HttpRequest, name: str, body: Value) -> SettingChange:
    actor = actor_for(request, "settings.change")
    before, after = plant_settings.change_setting(actor, name, body.value, body.reason, timezone.now())
    return {"name": name, "before": before, "value": after}


@router.post("/loops/{loop_id}/settings", summary="Set a loop's own value of a parameter or guard setting")
def change_loop_setting(request: HttpRequest, loop_id: Id, body: OwnValue) -> SettingChange:
    actor = actor_for(request, "settings.change")
    before, after = plant_settings.change_own(actor, get_loop_or_404(loop_id), now=timezone.now(), **body.dict())
    return {"name": body.name, "before": before, "value": after}


@router.get("/users", summary="List users")
def list_users(request: HttpRequest) -> UserList:
    actor_for(request, "user.manage")
    return {"users": [build_user_row(user) for user in User.objects.order_by("username")]}


@router.post("/users", summary="Create a user; the password is shown once")
def create_user(request: HttpRequest, response: HttpResponse, body: NewUser) -> Created[UserWithPassword]:
    actor = actor_for(request, "user.manage")
    user, password = people.create(actor, **body.dict())
    response["Cache-Control"] = SHOWN_ONCE
    return {**build_user_row(user), "password": password}


@router.post("/users/{username}/role", summary="Change the role of a user")
def change_role(request: HttpRequest, username: str, body: Role) -> UserRow:
    actor, user = actor_for(request, "user.manage"), _get_user(username)
    people.change_role(actor, user, body.role, body.reason)
    return build_user_row(user)


@router.post("/users/{username}/queues", summary="Limit a user's role to queues; an empty list means all queues")
def limit_queues(request: HttpRequest, username: str, body: LimitedQueues) -> UserRow:
    actor, user = actor_for(request, "user.manage"), _get_user(username)
    people.limit_queues(actor, user, body.queues, body.reason)
    return build_user_row(user)


@router.post("/users/{username}/second-factor", summary="Remove lost second factors; the user's sessions end")
def remove_second_factor(request: HttpRequest, username: str, body: Reason) -> UserRow:
    actor, user = actor_for(request, "user.manage"), _get_user(username)
    people.remove_second_factor(actor, user, body.reason)
    return build_user_row(user)


@router.get("/users/{username}/passkeys", summary="List the passkeys of a user")
def list_user_passkeys(request: HttpRequest, username: str) -> PasskeyList:
    actor_for(request, "user.manage")
    return {"passkeys": [build_answer(PasskeyRow, row) for row in passkeys.list_passkeys(_get_user(username))]}


@router.post("/users/{username}/passkeys/{passkey_id}/remove", summary="Remove a passkey; the user's sessions end")
def remove_user_passkey(request: HttpRequest, username: str, passkey_id: Id, body: Reason) -> PasskeyRemoval:
    actor, user = actor_for(request, "user.manage"), _get_user(username)
    people.remove_passkey(actor, user, passkey_id, body.reason)
    return {"id": passkey_id, "removed": True}


@router.get("/passkeys", summary="List your passkeys")
def list_own_passkeys(request: HttpRequest) -> PasskeyList:
    actor = actor_for(request, "account.change")
    return {"passkeys": [build_answer(PasskeyRow, row) for row in passkeys.list_passkeys(actor.account)]}


@router.post("/passkeys/{passkey_id}/rename", summary="Rename one of your passkeys")
def rename_own_passkey(request: HttpRequest, passkey_id: Id, body: PasskeyName) -> PasskeyRow:
    actor = actor_for(request, "account.change")
    passkey = _get_own_passkey(actor, passkey_id)
    passkeys.rename(actor, passkey, body.name)
    return build_answer(PasskeyRow, passkey)


@router.post("/passkeys/{passkey_id}/remove", summary="Remove one of your passkeys")
def remove_own_passkey(request: HttpRequest, passkey_id: Id) -> PasskeyRemoval:
    actor = actor_for(request, "account.change")
    passkeys.remove(actor, _get_own_passkey(actor, passkey_id))
    return {"id": passkey_id, "removed": True}


@router.post("/users/{username}/disable", summary="Disable a user; sessions and tokens end")
def disable_user(request: HttpRequest, username: str, body: Reason) -> UserRow:
    actor, user = actor_for(request, "user.manage"), _get_user(username)
    people.enable(actor, user, False, body.reason)
    return build_user_row(_get_user(username))


@router.post("/users/{username}/enable", summary="Enable a user")
def enable_user(request: HttpRequest, username: str, body: Reason) -> UserRow:
    actor, user = actor_for(request, "user.manage"), _get_user(username)
    people.enable(actor, user, True, body.reason)
    return build_user_row(_get_user(username))


@router.post("/users/{username}/reset", summary="Reset a password, which is shown once; the user's sessions end")
def reset_password(request: HttpRequest, response: HttpResponse, username: str, body: NewPassword) -> UserWithPassword:
    actor, user = actor_for(request, "user.manage"), _get_user(username)
    password = people.reset_password(actor, user, body.reason, body.password)
    response["Cache-Control"] = SHOWN_ONCE
    return {**build_user_row(user), "password": password}


@router.get("/sessions", summary="List your sessions, or all sessions if you have the permission user.manage")
def list_sessions(request: HttpRequest) -> SessionList:
    actor = actor_for(request, "account.change")
    rows = sessions.list_active_sessions(None if actor.may("user.manage") else actor.user)
    return {"sessions": [build_answer(SessionRow, row, user=row.user.get_username()) for row in rows]}


@router.post("/sessions/{session_id}/end", summary="End a session")
def end_session(request: HttpRequest, session_id: Id) -> SessionEnd:
    actor = actor_for(request, "account.change")
    session = UserSession.objects.select_related("user").filter(pk=session_id).first()
    if session is None or not (session.user == actor.user or actor.may("user.manage")):
        raise Http404(f"session {session_id} does not exist.")
    sessions.end(actor, session)
    return {"id": session_id, "ended": True}


@router.get(
    "/tokens",
    summary=(
        "List your API tokens, or all tokens if you have the permission user.manage; a token lists its child tokens"
    ),
)
def list_tokens(request: HttpRequest) -> TokenList:
    actor = actor_for(request, "token.mint")
    rows = ApiToken.objects.select_related("owner", "parent").order_by("-created_at")
    return {"tokens": [_build_token_row(row) for row in rows if _is_seen(actor, row)]}


@router.post("/tokens", summary="Create a token; its secret is shown once")
def create_token(request: HttpRequest, response: HttpResponse, body: NewToken) -> Created[TokenWithSecret]:
    actor = actor_for(request, "token.mint")
    scope = tokens.TokenScope(body.queues, body.actions)
    token, secret = tokens.make(actor, body.name, body.role, body.days, timezone.now(), scope)
    response["Cache-Control"] = SHOWN_ONCE
    return {**_build_token_row(token), "token": secret}


@router.post("/tokens/{token_id}/revoke", summary="Revoke a token")
def revoke_token(request: HttpRequest, token_id: Id) -> TokenRevocation:
    actor = actor_for(request, "token.mint")
    token = ApiToken.objects.select_related("owner").filter(pk=token_id).first()
    if token is None or not _is_seen(actor, token):
        raise Http404(f"token {token_id} does not exist.")
    return {"id": token_id, "revoked": tokens.revoke(actor, token, timezone.now())}


@router.post("/tokens/{token_id}/quota", summary="Set a token's own quota of events and bytes per second")
def change_quota(request: HttpRequest, token_id: Id, body: NewQuota) -> TokenRow:
    actor = actor_for(request, "user.manage")
    token = ApiToken.objects.select_related("owner").filter(pk=token_id).first()
    if token is None:
        raise Http404(f"token {token_id} does not exist.")
    tokens.set_quota(actor, token, body.events_per_second, body.bytes_per_second, body.reason)
    token.refresh_from_db()
    return _build_token_row(token)


def _get_own_passkey(actor: Actor, passkey_id: int) -> Passkey:
    passkey = passkeys.list_passkeys(actor.account).filter(pk=passkey_id).first()
    if passkey is None:
        raise Http404(f"passkey {passkey_id} does not exist.")
    return passkey


def _get_user(username: str) -> User:
    return people.find_user(username)


def build_user_row(user: User) -> UserRow:
    return {
        "username": user.get_username(),
        "role": find_user_role(user) if user.is_active else None,
        "enabled": user.is_active,
        "queues": sorted(get_user_queues(user) or ()),
        "second_factor": second_factor.is_required(user),
        "last_login": user.last_login,
        "joined": user.date_joined,
    }


def _is_seen(actor: Actor, token: ApiToken) -> bool:
    return tokens.is_own(actor, token) or actor.may("user.manage")


def _build_token_row(row: ApiToken) -> TokenRow:
    return build_answer(TokenRow, row, owner=row.owner.get_username(), parent=row.parent.name if row.parent else None)
