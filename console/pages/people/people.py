"""Users, their roles, and sessions; for administrators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from common.errors import BadInput
from console.accounts import identity_provider, passkeys, people, second_factor, sessions
from console.accounts.access import actor_of, find_user_role, get_user_queues, requires
from console.accounts.identity_settings import ROLES
from console.models import ApiToken, Passkey, UserSession
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    call_page,
    declare_action,
    declare_page,
    render_page,
    render_rejected,
)
from queues.models import Queue

CHANGES = ("role", "queues", "second-factor", "passkey", "enable", "disable")


@dataclass(frozen=True)
class ListedUser:
    """A user in the list.

    queues: those that the user is limited to. provider: an identity provider keeps the password.
    """

    user: User
    role: str | None
    queues: list[str]
    second_factor: bool
    passkeys: QuerySet[Passkey]
    provider: bool


@dataclass(frozen=True)
class PasswordShownOnce:
    """A new password, which is shown only once."""

    username: str
    password: str


@dataclass(frozen=True, kw_only=True)
class UsersPage(FormPage):
    """All users, with their tokens and sessions."""

    TEMPLATE, NAME = "people/users.html", "users"

    users: list[ListedUser]
    queues: QuerySet[Queue, str]
    roles: Sequence[str]
    sessions: QuerySet[UserSession]
    session_digest: str
    tokens: QuerySet[ApiToken]
    now: datetime
    new_password: PasswordShownOnce | None


@declare_page("user.manage")
def users_page(request: HttpRequest, new_password: PasswordShownOnce | None = None) -> HttpResponse:
    everybody = User.objects.prefetch_related("groups").order_by("username")
    page = UsersPage(
        users=[
            ListedUser(
                user=user,
                role=find_user_role(user),
                queues=sorted(get_user_queues(user) or ()),
                second_factor=second_factor.is_required(user),
                passkeys=passkeys.list_passkeys(user),
                provider=identity_provider.is_of(user),
            )
            for user in everybody
        ],
        queues=Queue.objects.order_by("name").values_list("name", flat=True),
        roles=ROLES,
        sessions=sessions.list_active_sessions(),
        session_digest=sessions.digest_of(request),
        tokens=ApiToken.objects.select_related("owner").order_by("owner__username", "-created_at"),
        now=timezone.now(),
        new_password=new_password,
    )
    return render_page(request, page)


@sensitive_post_parameters()
@require_POST
@requires("user.manage")
def create(request: HttpRequest) -> HttpResponse:
    """Create a user. Posted: username, role, reason, password (generated if empty), which the page shows once."""
    posted = request.POST
    given = (posted.get(name, "") for name in ("username", "role", "reason", "password"))
    try:
        user, password = people.create(actor_of(request), *given)
    except BadInput as error:
        return render_rejected(request, users_page, {error.field: [error.message]})
    return _show_password_once(request, user, password)


@sensitive_post_parameters()
@require_POST
@requires("user.manage")
def reset(request: HttpRequest, user_id: int) -> HttpResponse:
    """Reset a password. Posted: reason. The page shows the new password once."""
    user = get_object_or_404(User, pk=user_id)
    try:
        password = people.reset_password(actor_of(request), user, request.POST.get("reason", ""))
    except BadInput as error:
        return render_rejected(request, users_page, {error.field: [error.message]})
    return _show_password_once(request, user, password)


def _show_password_once(request: HttpRequest, user: User, password: str) -> HttpResponse:
    page = call_page(users_page, request, new_password=PasswordShownOnce(user.get_username(), password))
    page["Cache-Control"] = "no-store"
    return page


@declare_action("user.manage", users_page)
def change(request: HttpRequest, user_id: int) -> ActionResult:
    """Change a user.

    Posted: change (role, queues, second-factor, passkey, enable, disable), reason; role; queues (several); passkey.
    """
    user, posted = get_object_or_404(User, pk=user_id), request.POST
    actor, reason, wanted = actor_of(request), posted.get("reason", ""), posted.get("change", "role")
    name, here = user.get_username(), reverse("users")
    if wanted == "role":
        people.change_role(actor, user, posted.get("role", ""), reason)
        return ActionResult(f"{name} now has the role {posted['role']}.", here, {"go": here})
    if wanted == "queues":
        queues = posted.getlist("queues")
        people.limit_queues(actor, user, queues, reason)
        limits = (f"limited to {', '.join(sorted(set(queues)))}") if queues else "permitted to act on all queues"
        return ActionResult(f"{name} is now {limits}.", here, {"go": here})
    if wanted == "second-factor":
        people.remove_second_factor(actor, user, reason)
        return ActionResult(f"The second factors of {name} were removed.", here, {"go": here})
    if wanted == "passkey":
        removed = people.remove_passkey(actor, user, posted.get("passkey", ""), reason)
        return ActionResult(f"Passkey {removed} of {name} was removed.", here, {"go": here})
    if wanted not in ("enable", "disable"):
        raise BadInput("change", f"must be one of {', '.join(CHANGES)}, not {wanted[:40]!r}.")
    people.enable(actor, user, wanted == "enable", reason)
    return ActionResult(
        (f"{name} {'can log in again' if wanted == 'enable' else 'can no longer log in'}."), here, {"go": here}
    )
