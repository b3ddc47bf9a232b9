"""Answers about settings, users, sessions, and tokens."""

from datetime import datetime
from typing import Annotated, get_args

from pydantic import Field

from common.parameter import Parameter
from console.accounts.identity_settings import ROLES
from console.api.answer.schema import ApiAnswer, Json, build_enum_field
from console.models import ApiToken

KINDS = get_args(Parameter.__annotations__["kind"])


class SettingRow(ApiAnswer):
    """A setting of the plant as declared, and its value."""

    name: str
    value: Annotated[Json, Field(description="Current value, in `unit`; null: no value.")]
    default: Json
    optional: Annotated[bool, Field(description="Whether null is allowed.")]
    minimum: float
    maximum: float
    unit: str
    help: str
    kind: Annotated[str, build_enum_field(KINDS)]
    changed_by: Annotated[str | None, Field(description="The user who changed it last; null: never changed.")]
    changed_at: datetime | None


class SettingList(ApiAnswer):
    settings: list[SettingRow]


class SettingChange(ApiAnswer):
    """A value before and after it was set."""

    name: str
    before: Json
    value: Json


class UserRow(ApiAnswer):
    """A user."""

    username: str
    role: Annotated[
        Annotated[str, build_enum_field(ROLES)] | None, Field(description="null: disabled, or without a role.")
    ]
    enabled: bool
    queues: Annotated[list[str], Field(description="The queues that the role is limited to; empty: all.")]
    second_factor: Annotated[bool, Field(description="Whether the login requires a second factor.")]
    last_login: datetime | None
    joined: datetime


class UserWithPassword(UserRow):
    """A user with a new password."""

    password: Annotated[str, Field(description="Shown only once.")]


class UserList(ApiAnswer):
    users: list[UserRow]


class SessionRow(ApiAnswer):
    """A browser with a login."""

    user: str
    id: int
    created_at: datetime
    seen_at: Annotated[datetime, Field(description="Time of the last request.")]
    address: str | None
    agent: Annotated[str, Field(description="The browser's user agent.")]


class SessionList(ApiAnswer):
    sessions: list[SessionRow]


class SessionEnd(ApiAnswer):
    id: int
    ended: bool


class TokenRow(ApiAnswer):
    """An API token, without its secret."""

    owner: str
    parent: Annotated[str | None, Field(description="The parent token; null: created by a user.")]
    id: int
    name: str
    role: Annotated[str, build_enum_field(ApiToken.Role.values)]
    queues: Annotated[
        list[str], Field(description=("The queues that the token is limited to; empty: all queues of its role."))
    ]
    actions: Annotated[
        list[str], Field(description="Allowed actions, or families of actions; empty: all actions of its role.")
    ]
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    used_at: datetime | None
    quota_events_per_second: Annotated[int | None, Field(description="null: the plant's setting applies.")]
    quota_bytes_per_second: Annotated[int | None, Field(description="null: the plant's setting applies.")]


class TokenWithSecret(TokenRow):
    """A new token with its secret."""

    token: Annotated[str, Field(description="The secret, shown only once.")]


class TokenList(ApiAnswer):
    tokens: list[TokenRow]


class TokenRevocation(ApiAnswer):
    id: int
    revoked: Annotated[bool, Field(description="false: already expired or revoked.")]
