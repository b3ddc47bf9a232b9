"""Who may log in: users, their roles and sessions; for administrators."""

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from console import people, sessions
from console.access import ROLES, actor_of, requires, role_of
from console.models import ApiToken
from console.pages.action import Done, action
from console.pages.frame import show
from queues.errors import BadInput


@require_safe
@requires("user.manage")
def users(request: HttpRequest) -> HttpResponse:
    """Context: users ({user, role, sessions, tokens}), roles, sessions of all, new_password (shown once)."""
    return users_page(request)


def users_page(
    request: HttpRequest, errors: Any = None, submitted: Any = None, new_password: Any = None
) -> HttpResponse:
    everybody = User.objects.prefetch_related("groups").order_by("username")
    return show(
        request,
        "users.html",
        "settings",
        users=[{"user": each, "role": role_of(each)} for each in everybody],
        roles=ROLES,
        sessions=sessions.alive(),
        session_key=request.session.session_key,
        tokens=ApiToken.objects.select_related("owner").order_by("owner__username", "-created_at"),
        now=timezone.now(),
        new_password=new_password,
        errors=errors or {},
        submitted=submitted or {},
    )


@sensitive_post_parameters()
@require_POST
@requires("user.manage")
def create(request: HttpRequest) -> HttpResponse:
    """Posted: username, role, reason, password (made up when empty), which the answer shows this once."""
    posted = request.POST
    given = (posted.get(name, "") for name in ("username", "role", "reason", "password"))
    try:
        user, password = people.create(actor_of(request), *given)
    except BadInput as error:
        return _refused(request, error)
    return _shown_once(request, user, password)


@sensitive_post_parameters()
@require_POST
@requires("user.manage")
def reset(request: HttpRequest, user_id: int) -> HttpResponse:
    """Posted: reason. The new password is on the answering page, this once."""
    user = get_object_or_404(User, pk=user_id)
    try:
        password = people.reset_password(actor_of(request), user, request.POST.get("reason", ""))
    except BadInput as error:
        return _refused(request, error)
    return _shown_once(request, user, password)


def _refused(request: HttpRequest, error: BadInput) -> HttpResponse:
    page = users_page(request, {error.field: [error.message]}, request.POST)
    page.status_code = 422
    return page


def _shown_once(request: HttpRequest, user: User, password: str) -> HttpResponse:
    page = users_page(request, new_password={"username": user.get_username(), "password": password})
    page["Cache-Control"] = "no-store"
    return page


@action("user.manage", users_page)
def change(request: HttpRequest, user_id: int) -> Done:
    """Posted: change (role, enable, disable), reason; role."""
    user, posted = get_object_or_404(User, pk=user_id), request.POST
    actor, reason, wanted = actor_of(request), posted.get("reason", ""), posted.get("change", "role")
    name, here = user.get_username(), reverse("users")
    if wanted == "role":
        people.change_role(actor, user, posted.get("role", ""), reason)
        return Done(f"{name} is {posted['role']} from now on.", here, {"go": here})
    if wanted not in ("enable", "disable"):
        raise BadInput("change", "takes role, enable or disable.")
    people.enable(actor, user, wanted == "enable", reason)
    return Done(f"{name} may log in{' again' if wanted == 'enable' else ' no more'}.", here, {"go": here})
