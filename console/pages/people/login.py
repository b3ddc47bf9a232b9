"""Login and logout: password, then the code of a second factor; and confirming one's identity."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts import identity_provider, login, second_factor
from console.accounts.access import Actor, actor_of, user_of
from console.actions.lab import drills
from console.audit import audit_log, refusals
from console.web.template_context import TemplateContext, render_context

LATE_OR_WRONG = "The code was wrong, or was entered while further attempts were blocked."
WRONG_CODE = "The code does not match. Wait for the next code from the app, then try again."


@dataclass(frozen=True, kw_only=True)
class LoginPage(TemplateContext):
    """Name and password.

    provider: name of the OpenID Connect provider; next: the page after login.
    """

    TEMPLATE = "people/login.html"

    form: AuthenticationForm
    next: str
    provider: str | None


@dataclass(frozen=True, kw_only=True)
class LoginCodePage(TemplateContext):
    """The code of a second factor."""

    TEMPLATE = "people/login_code.html"

    next: str
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class LoggedOutPage(TemplateContext):
    """After logout. end_url: the page that ends the provider's own session ("" if there is none)."""

    TEMPLATE = "people/logged_out.html"

    provider: str | None
    end_url: str


@dataclass(frozen=True, kw_only=True)
class ConfirmPage(TemplateContext):
    """Confirming one's identity. proof: password, code, or provider."""

    TEMPLATE = "people/confirm.html"

    next: str
    proof: str
    provider: str | None = None
    error: str = ""


def find_first_page(request: HttpRequest) -> str:
    """Return the page after login: Welcome on a new plant, else the overview."""
    return reverse("welcome" if drills.shows_welcome(actor_of(request)) else "overview")


class LogIn(LoginView):
    """The password form."""

    redirect_authenticated_user = True

    def render_to_response(self, context: dict[str, Any], **response: object) -> HttpResponse:
        page = LoginPage(
            form=context["form"], next=context[self.redirect_field_name], provider=identity_provider.get_provider_name()
        )
        return render_context(self.request, page)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        if second_factor.find_confirmed(user) is None:
            login.enter(self.request, user, login.PASSWORD_BACKEND, "password")
            return redirect(self.get_redirect_url() or find_first_page(self.request))
        login.wait_for_code(self.request, user)
        return redirect(login.add_next_parameter(reverse("login-code"), self.get_success_url()))


@login_not_required
@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
def code(request: HttpRequest) -> HttpResponse:
    """Check the second factor of a login. Posted: code, next."""
    following = login.next_of(request, reverse("overview"))
    user = login.find_pending_login(request)
    if user is None:
        return redirect(login.add_next_parameter(reverse("login"), following))
    if request.method != "POST":
        return render_context(request, LoginCodePage(next=following))
    throttled = second_factor.is_throttled(user)
    if second_factor.is_right(user, request.POST.get("code", ""), timezone.now()):
        request.session.pop(login.PENDING)
        login.enter(request, user, login.PASSWORD_BACKEND, "password and code")
        return redirect(following)
    address, request_id = request.META.get("REMOTE_ADDR"), getattr(request, "request_id", "")
    actor = Actor(name=user.get_username(), role=None, address=address, request_id=request_id)
    _note_wrong_code(actor, throttled)
    return render_context(request, LoginCodePage(next=following, error=WRONG_CODE), 422)


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

    See `console.accounts.access.CONFIRMED`. Posted: password, or the code of a second factor; next.
    """
    following = login.next_of(request, reverse("overview"))
    way = "password"
    if identity_provider.is_of(request.user):
        way = "provider"
    elif second_factor.find_confirmed(user_of(request)):
        way = "code"
    throttled = way == "code" and second_factor.is_throttled(user_of(request))
    if request.method == "POST" and way != "provider":
        if way == "code":
            is_proved = second_factor.is_right(user_of(request), request.POST.get("code", ""), timezone.now())
        else:
            is_proved = login.is_own_password(request, request.POST.get("password", ""))
        if is_proved:
            login.confirm(request, way)
            return redirect(following)
        if way == "code":  # a wrong password is recorded where it is counted
            _note_wrong_code(actor_of(request), throttled)
        error = WRONG_CODE if way == "code" else "The password does not match."
        return render_context(request, ConfirmPage(next=following, proof=way, error=error), 422)
    page = ConfirmPage(next=following, proof=way, provider=identity_provider.get_provider_name())
    return render_context(request, page)


def _note_wrong_code(actor: Actor, throttled: bool) -> None:
    """Record a wrong code. While codes are throttled, entries are folded so that guessing can't fill the audit log."""
    if not throttled:
        audit_log.record(actor, "login.failed", actor.name, reason=LATE_OR_WRONG)
        return
    why = "too many wrong codes"
    refusals.note(refusals.Refusal(actor.name, "login", actor.name, why, actor.address, actor.request_id))
