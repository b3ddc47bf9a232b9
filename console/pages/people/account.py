"""A user's own account: password, sessions, and API tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from common.errors import BadInput
from console.accounts import identity_provider, sessions, tokens
from console.accounts.access import actor_of, requires, user_of
from console.accounts.password_form import OwnPasswordForm
from console.actions import preferences
from console.audit import audit_log
from console.input.form_values import parse_number
from console.models import ApiToken, UserSession
from console.pages.frame.page import ActionResult, ConsolePage, Errors, Submitted, declare_action, render_page
from queues.models import Queue
from workers.steering import plant_settings


@dataclass(frozen=True)
class TokenShownOnce:
    """A new token with its secret, which is shown only once."""

    name: str
    secret: str


@dataclass(frozen=True, kw_only=True)
class AccountPage(ConsolePage):
    """A user's own account."""

    TEMPLATE, NAME = "people/settings.html", "settings"

    form: OwnPasswordForm
    has_password: bool  # not if an identity provider keeps it
    token_errors: Errors
    submitted: Submitted  # of a rejected token
    submitted_queues: Sequence[str]
    submitted_actions: Sequence[str]
    token_actions: Mapping[str, Sequence[str]]  # that a token may be limited to, by group
    queues: Sequence[str]  # that a token may be limited to
    roles: Sequence[str]
    most_days: int
    tokens: QuerySet[ApiToken]
    sessions: QuerySet[UserSession]
    session_digest: str
    new_token: TokenShownOnce | None
    now: datetime


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@requires("account.change")
def settings(request: HttpRequest) -> HttpResponse:
    """Show the account. Posted: a new password."""
    if request.method == "POST" and identity_provider.is_of(request.user):
        errors = {"password": ["is managed by your identity provider. Change it there."]}
        return _settings_page(request, OwnPasswordForm(request), errors, status=422)
    user = user_of(request)
    form = OwnPasswordForm(request, request.POST or None)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            form.save()
            sessions.end_all(user, but=sessions.digest_of(request))
            audit_log.record(actor_of(request), "account.password", user.get_username())
        before = sessions.digest_of(request)
        # Otherwise the person who changed the password would be logged out with all other sessions.
        update_session_auth_hash(request, user)
        sessions.rename(before, sessions.digest_of(request))
        messages.success(request, "Password changed. Your other sessions were logged out.")
        return redirect("settings")
    return _settings_page(request, form)


@require_POST
@requires("token.mint")
def token_create(request: HttpRequest) -> HttpResponse:
    """Create a token and show its secret once. Posted: name, role, days, queues and actions (several)."""
    actor, posted = actor_of(request), request.POST
    try:
        days = parse_number(posted.get("days", ""), "days")
        scope = tokens.TokenScope(posted.getlist("queues"), " ".join(posted.getlist("actions")).split())
        token, secret = tokens.make(actor, posted.get("name", ""), posted.get("role", ""), days, timezone.now(), scope)
    except BadInput as error:
        return _settings_page(request, OwnPasswordForm(request), {error.field: [error.message]}, status=422)
    fresh = TokenShownOnce(token.name, secret)
    page = _settings_page(request, OwnPasswordForm(request), new_token=fresh)
    page["Cache-Control"] = "no-store"  # not stored, not even for a repeated click
    return page


@declare_action("token.mint", lambda request: _show_rejected(request))
def token_revoke(request: HttpRequest, token_id: int) -> ActionResult:
    """Revoke a token. Nothing is posted."""
    token = get_object_or_404(ApiToken, pk=token_id, owner=request.user)
    tokens.revoke(actor_of(request), token, timezone.now())
    return ActionResult(f"Token {token.name} was revoked.", reverse("settings"), {"go": reverse("settings")})


@declare_action("account.change", lambda request: _show_rejected(request))
def session_end(request: HttpRequest, session_id: int) -> ActionResult:
    """End a session: a user's own, or with permission to manage users anybody's. Nothing is posted."""
    actor = actor_of(request)
    mine = {} if actor.may("user.manage") else {"user": request.user}
    session = get_object_or_404(UserSession.objects.select_related("user"), pk=session_id, **mine)
    sessions.end(actor, session)
    where = reverse("settings") if session.user == request.user else reverse("users")
    return ActionResult(f"A session of {session.user.get_username()} was logged out.", where, {"go": where})


@declare_action("account.change", lambda request: _show_rejected(request))
def preference_set(request: HttpRequest) -> ActionResult:
    """Set a preference of the user. Posted: name, value."""
    name, value = (request.POST.get(field, "") for field in ("name", "value"))
    preferences.set_preference(actor_of(request), user_of(request), name, value)
    return ActionResult(f"The {name.replace('_', ' ')} is now {value}.", reverse("settings"))


def _show_rejected(request: HttpRequest) -> HttpResponse:
    rejected = getattr(request, "weir_rejected_form", None)
    return _settings_page(request, OwnPasswordForm(request), rejected.errors if rejected else None)


def _settings_page(
    request: HttpRequest,
    form: OwnPasswordForm,
    token_errors: Errors | None = None,
    new_token: TokenShownOnce | None = None,
    status: int = 200,
) -> HttpResponse:
    names = Queue.objects.order_by("name").values_list("name", flat=True)
    page = AccountPage(
        form=form,
        token_errors=token_errors or {},
        submitted=request.POST if token_errors else {},
        submitted_queues=request.POST.getlist("queues") if token_errors else [],
        submitted_actions=" ".join(request.POST.getlist("actions")).split() if token_errors else [],
        token_actions=tokens.list_grantable_actions(actor_of(request)),
        queues=[name for name in names if actor_of(request).can_access_queues([name])],
        has_password=not identity_provider.is_of(request.user),
        roles=tokens.list_grantable_roles(actor_of(request)),
        most_days=plant_settings.get_setting_value("token.maximum_days"),
        tokens=ApiToken.objects.filter(owner=user_of(request)).order_by("-created_at"),
        sessions=sessions.list_active_sessions(user_of(request)),
        session_digest=sessions.digest_of(request),
        new_token=new_token,
        now=timezone.now(),
    )
    return render_page(request, page, status=422 if form.is_bound else status)
