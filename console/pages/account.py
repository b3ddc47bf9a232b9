"""One's own account: password and API tokens."""

from datetime import timedelta

from django import forms
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console import audit
from console.access import PRODUCER, ROLES, Actor, actor_of, create_token, least_role, requires
from console.models import ApiToken
from console.pages.frame import show

MAXIMUM_TOKEN_DAYS = 366


class TokenForm(forms.Form):
    """A new token: a name nobody has used, a role not above one's own, and an expiry."""

    name = forms.RegexField(
        r"\A[\w.-]+\Z",
        max_length=80,
        error_messages={"invalid": "name takes letters, digits, dot, - and _."},
    )
    role = forms.ChoiceField(choices=ApiToken.Role.choices)
    days = forms.IntegerField(min_value=1, max_value=MAXIMUM_TOKEN_DAYS, initial=90)

    def __init__(self, *args, actor: Actor, **named):
        super().__init__(*args, **named)
        self.actor = actor
        self.fields["role"].choices = [(role, role) for role in grantable_roles(actor)]

    def clean_name(self) -> str:
        name = self.cleaned_data["name"]
        if ApiToken.objects.filter(name=name).exists():
            raise forms.ValidationError(f"name {name} is taken; choose another.")
        return name


def grantable_roles(actor: Actor) -> list[str]:
    """The roles a token of this actor can really have."""
    return [role for role in (PRODUCER, *ROLES) if least_role(role, actor.role) == role]


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@requires("account.change")
def settings(request: HttpRequest) -> HttpResponse:
    """Context: form (password), token_form, tokens (one's own, newest first), new_token (shown once)."""
    form = PasswordChangeForm(request.user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            form.save()
            audit.record(actor_of(request), "account.password", request.user.get_username())
        # Without this the person who changed the password would be logged out with all other sessions.
        update_session_auth_hash(request, request.user)
        messages.success(request, "Password changed. Your other sessions are logged out.")
        return redirect("settings")
    return _settings_page(request, form, TokenForm(actor=actor_of(request)))


@require_POST
@requires("account.change")
def token_create(request: HttpRequest) -> HttpResponse:
    """Make a token and show its secret on the answering page, this once."""
    actor = actor_of(request)
    form = TokenForm(request.POST, actor=actor)
    if not form.is_valid():
        return _settings_page(request, PasswordChangeForm(request.user), form, status=422)
    wanted = form.cleaned_data
    with transaction.atomic():
        expires_at = timezone.now() + timedelta(days=wanted["days"])
        token, secret = create_token(actor.user, wanted["name"], wanted["role"], expires_at)
        after = {"role": token.role, "expires_at": expires_at.isoformat()}
        audit.record(actor, "token.create", token.name, after=after)
    fresh = {"name": token.name, "secret": secret}
    page = _settings_page(request, PasswordChangeForm(request.user), TokenForm(actor=actor), new_token=fresh)
    page["Cache-Control"] = "no-store"  # nowhere: also not among the answers that a second click gets
    return page


@require_POST
@requires("account.change")
def token_revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    token = get_object_or_404(ApiToken, pk=token_id, owner=request.user)
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record(actor_of(request), "token.revoke", token.name)
    messages.success(request, f"Token {token.name} is revoked.")
    return redirect("settings")


def _settings_page(request, password_form, token_form, new_token=None, status=None) -> HttpResponse:
    refused = password_form.is_bound or (status is not None)
    response = show(
        request,
        "settings.html",
        "settings",
        view="frame",
        form=password_form,
        token_form=token_form,
        tokens=ApiToken.objects.filter(owner=request.user).order_by("-created_at"),
        new_token=new_token,
        now=timezone.now(),
    )
    response.status_code = 422 if refused else 200
    return response
