"""Login and logout: password, then a second factor, or a passkey instead; and confirming one's identity."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from common.errors import BadInput
from console.accounts import identity_provider, login, passkeys, second_factor
from console.accounts.access import Actor, actor_of, user_of
from console.accounts.passkeys import Purpose
from console.actions.lab import drills
from console.audit import audit_log, refusals
from console.web.template_context import TemplateContext, render_context

LATE_OR_WRONG = "The code was wrong, or was entered while further attempts were blocked."
WRONG_CODE = "The code does not match. Wait for the next code from the app, then try again."
WRONG_RECOVERY_CODE = "The recovery code does not match, or it was already used."


@dataclass(frozen=True, kw_only=True)
class LoginPage(TemplateContext):
    """Name and password.

    provider: name of the OpenID Connect provider; next: the page after login; passkeys: whether to offer a login with a
    passkey.
    """

    TEMPLATE = "people/login.html"

    form: AuthenticationForm
    next: str
    provider: str | None
    passkeys: bool
    error: str = ""  # of a login with a passkey


@dataclass(frozen=True, kw_only=True)
class LoginCodePage(TemplateContext):
    """The second factor after the password. has_app: the user has an app; passkeys: a passkey can be used here."""

    TEMPLATE = "people/login_code.html"

    next: str
    has_app: bool
    passkeys: bool
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class LoggedOutPage(TemplateContext):
    """After logout. end_url: the page that ends the provider's own session ("" if there is none)."""

    TEMPLATE = "people/logged_out.html"

    provider: str | None
    end_url: str


@dataclass(frozen=True, kw_only=True)
class ConfirmPage(TemplateContext):
    """Confirming one's identity. proof: password, code, or provider. has_app, passkeys: see `LoginCodePage`."""

    TEMPLATE = "people/confirm.html"

    next: str
    proof: str
    provider: str | None = None
    has_app: bool = False
    passkeys: bool = False
    error: str = ""


def find_first_page(request: HttpRequest) -> str:
    """Return the page after login: Welcome on a new plant, else the overview."""
    return reverse("welcome" if drills.shows_welcome(actor_of(request)) else "overview")


class LogIn(LoginView):
    """The password form."""

    redirect_authenticated_user = True

    def render_to_response(self, context: dict[str, Any], **response: object) -> HttpResponse:
        return _show_login(self.request, context["form"], context[self.redirect_field_name])

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        if not second_factor.is_required(user):
            login.enter(self.request, user, login.PASSWORD_BACKEND, "password")
            return redirect(self.get_redirect_url() or find_first_page(self.request))
        login.wait_for_code(self.request, user)
        return redirect(login.add_next_parameter(reverse("login-code"), self.get_success_url()))


def _show_login(
    request: HttpRequest, form: AuthenticationForm, following: str, error: str = "", status: int = 200
) -> HttpResponse:
    page = LoginPage(
        form=form,
        next=following,
        provider=identity_provider.get_provider_name(),
        passkeys=passkeys.is_usable(request),
        error=error,
    )
    return render_context(request, page, status)


@login_not_required
@never_cache
@require_POST
def passkey(request: HttpRequest) -> HttpResponse:
    """Log in with a passkey, without a password. Posted: passkey (the browser's answer), next."""
    try:
        user = passkeys.authenticate_user(request, Purpose.LOGIN, request.POST.get("passkey", ""))
        error = passkeys.NOT_ACCEPTED
    except BadInput as refused:
        user, error = None, _describe(refused)
    following = login.next_of(request, "")
    if user is None:
        return _show_login(request, AuthenticationForm(request), following, error, 422)
    login.enter(request, user, login.PASSWORD_BACKEND, "passkey")
    return redirect(following or find_first_page(request))


@login_not_required
@never_cache
@require_POST
def passkey_options(request: HttpRequest) -> HttpResponse:
    """Return the options of a request for a passkey as JSON. Posted: purpose (login, second-factor, confirm)."""
    purpose = request.POST.get("purpose", "")
    try:
        if purpose == Purpose.SECOND_FACTOR:
            user = login.find_pending_login(request)
        else:
            user = user_of(request) if purpose == Purpose.CONFIRM else None
        if purpose not in (Purpose.LOGIN, Purpose.SECOND_FACTOR, Purpose.CONFIRM):
            raise BadInput("purpose", f"must be login, second-factor, or confirm, not {purpose[:40]!r}.")
        if purpose == Purpose.SECOND_FACTOR and user is None:
            raise BadInput("login", "has expired. Enter your password again.")
        return JsonResponse(passkeys.create_login_options(request, Purpose(purpose), user))
    except BadInput as error:
        return JsonResponse({"errors": {error.field: [error.message]}}, status=422)


@login_not_required
@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
def code(request: HttpRequest) -> HttpResponse:
    """Check the second factor of a login. Posted: code or passkey (the browser's answer), next."""
    following = login.next_of(request, reverse("overview"))
    user = login.find_pending_login(request)
    if user is None:
        return redirect(login.add_next_parameter(reverse("login"), following))
    error = _find_flaw_of_factor(request, user, Purpose.SECOND_FACTOR) if request.method == "POST" else ""
    if request.method == "POST" and not error:
        request.session.pop(login.PENDING)
        by = "password and passkey" if "passkey" in request.POST else "password and code"
        login.enter(request, user, login.PASSWORD_BACKEND, by)
        return redirect(following)
    page = LoginCodePage(
        next=following,
        has_app=second_factor.find_confirmed(user) is not None,
        passkeys=passkeys.is_usable(request, user),
        error=error,
    )
    return render_context(request, page, 422 if error else 200)


def _find_flaw_of_factor(request: HttpRequest, user: User, purpose: Purpose) -> str:
    """Check the posted passkey or code of a user's second factor; return why it is not accepted, or an empty text."""
    if "passkey" in request.POST:
        try:
            is_proved = passkeys.authenticate_user(request, purpose, request.POST["passkey"], user) == user
        except BadInput as refused:
            return _describe(refused)
        return "" if is_proved else passkeys.NOT_ACCEPTED
    has_app, throttled = second_factor.find_confirmed(user) is not None, second_factor.is_throttled(user)
    if login.is_own_code(request, user, request.POST.get("code", "")):
        return ""
    if has_app:  # without an app, the failed login was recorded where it is counted
        address, request_id = request.META.get("REMOTE_ADDR"), getattr(request, "request_id", "")
        _note_wrong_code(Actor(user.get_username(), None, address=address, request_id=request_id), throttled)
    return WRONG_CODE if has_app else WRONG_RECOVERY_CODE


def _describe(error: BadInput) -> str:
    return f"{error.field.capitalize()} {error.message}"


@require_POST
def log_out(request: HttpRequest) -> HttpResponse:
    """Log out. Nothing is posted. A provider keeps its own session: the next page links to its logout."""
    actor, came_from = actor_of(request), identity_provider.is_of(request.user)
    audit_log.record(actor, "logout", actor.name)
    logout(request)
    return redirect("logged-out" if came_from else "login")


@login_not_required
@require_http_methods(["GET", "HEAD"])
def confirm_logout(request: HttpRequest) -> HttpResponse:
    """Show that the provider's session is still open, and a link that ends it."""
    provider = identity_provider.get_provider_name()
    if provider is None:
        return redirect("login")
    back = request.build_absolute_uri(reverse("login"))
    page = LoggedOutPage(provider=provider, end_url=identity_provider.end_url(back))
    return render_context(request, page)


@never_cache
@sensitive_post_parameters("password", "code")
@require_http_methods(["GET", "HEAD", "POST"])
def confirm(request: HttpRequest) -> HttpResponse:
    """Confirm the user's identity, which permits sensitive actions for some minutes.

    See `console.accounts.access.CONFIRMED`. Posted: password, or the code or passkey of a second factor; next.
    """
    following, user = login.next_of(request, reverse("overview")), user_of(request)
    way = "password"
    if identity_provider.is_of(user):
        way = "provider"
    elif second_factor.is_required(user):
        way = "code"
    error = _find_flaw_of_proof(request, user, way) if request.method == "POST" and way != "provider" else ""
    if request.method == "POST" and way != "provider" and not error:
        login.confirm(request, "passkey" if "passkey" in request.POST and way == "code" else way)
        return redirect(following)
    page = ConfirmPage(
        next=following,
        proof=way,
        provider=identity_provider.get_provider_name(),
        has_app=second_factor.find_confirmed(user) is not None,
        passkeys=passkeys.is_usable(request, user),
        error=error,
    )
    return render_context(request, page, 422 if error else 200)


def _find_flaw_of_proof(request: HttpRequest, user: User, way: str) -> str:
    if way == "code":
        return _find_flaw_of_factor(request, user, Purpose.CONFIRM)
    return "" if login.is_own_password(request, request.POST.get("password", "")) else "The password does not match."


def _note_wrong_code(actor: Actor, throttled: bool) -> None:
    """Record a wrong code. While codes are throttled, entries are folded so that guessing can't fill the audit log."""
    if not throttled:
        audit_log.record(actor, "login.failed", actor.name, reason=LATE_OR_WRONG)
        return
    why = "too many wrong codes"
    refusals.note(refusals.Refusal(actor.name, "login", actor.name, why, actor.address, actor.request_id))
