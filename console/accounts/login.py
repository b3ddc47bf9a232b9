"""Redirects to the login and back to the page of the user, even if a form was sent from it.

A password alone does not log in a user with a second factor: the session only remembers, for a few minutes, whose
password was right.
"""

from collections.abc import Callable
from urllib.parse import urlencode, urlsplit

from django.contrib.auth import authenticate, login
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from console.accounts import second_factor
from console.accounts.access import CONFIRMED_AT, add_request_id, build_user_actor
from console.audit import audit_log

PASSWORD_BACKEND = "django.contrib.auth.backends.ModelBackend"
PENDING = "weir_pending"
PENDING_SECONDS = 300


class LoginRequired(LoginRequiredMiddleware):
    """Redirects back to the user's page after the login.

    A form's target address can't be opened, so a form redirects to its page; the browser keeps what was typed
    (static/js/forms/drafts.js).
    """

    def handle_no_permission(
        self, request: HttpRequest, view_func: Callable[..., HttpResponseBase]
    ) -> HttpResponseRedirect:
        if request.method in ("GET", "HEAD"):
            return super().handle_no_permission(request, view_func)
        return redirect_to_login(page_of(request))


def page_of(request: HttpRequest) -> str:
    """Return the console page from which a form was sent; "/" if it is unknown."""
    referer = request.headers.get("Referer", "")
    if not is_ours(request, referer):  # an unparsable address is not ours
        return "/"
    page = urlsplit(referer)
    where = f"{page.path}?{page.query}" if page.query else page.path
    return where if where.startswith("/") else "/"


def next_of(request: HttpRequest, default: str) -> str:
    """Return the next page of the request, if it is a page of this console."""
    wanted = request.POST.get("next") or request.GET.get("next", "")
    return wanted if wanted and is_ours(request, wanted) else default


def is_ours(request: HttpRequest, address: str) -> bool:
    return url_has_allowed_host_and_scheme(address, {request.get_host()}, request.is_secure())


def add_next_parameter(address: str, following: str) -> str:
    return f"{address}?{urlencode({'next': following})}"


def enter(request: HttpRequest, user: User, backend: str, by: str, proved_at: float | None = None) -> None:
    """Log in an authenticated user, and record it; `by` says how.

    proved_at: Unix time of the authentication if it was not just now (0: unknown); sensitive actions then need a
    confirmation.
    """
    login(request, user, backend=backend)
    if proved_at is not None:
        request.session[CONFIRMED_AT] = proved_at
    actor = add_request_id(request, build_user_actor(user, request.META.get("REMOTE_ADDR")))
    audit_log.record(actor, "login", user.get_username(), after={"by": by})


def confirm(request: HttpRequest, by: str) -> None:
    """Record that a logged-in user has confirmed their identity."""
    request.session[CONFIRMED_AT] = timezone.now().timestamp()
    actor = add_request_id(request, build_user_actor(request.user, request.META.get("REMOTE_ADDR")))
    audit_log.record(actor, "login.confirm", request.user.get_username(), after={"by": by})


def is_own_password(request: HttpRequest, password: str) -> bool:
    """Return whether it is the logged-in user's password.

    A wrong one counts as a failed login, and during a lockout none is accepted, so that the password can't be guessed
    in an open browser.
    """
    return authenticate(request, username=request.user.get_username(), password=password) == request.user


def is_own_code(request: HttpRequest, user: User, code: str) -> bool:
    """Return whether it is a code of the user's app, or one of the user's recovery codes.

    A wrong code delays the next codes of an app. Without an app, it counts as a failed login.
    """
    if second_factor.find_confirmed(user):
        return second_factor.is_right(user, code, timezone.now())
    return authenticate(request, username=user.get_username(), recovery_code=code) == user


def wait_for_code(request: HttpRequest, user: User) -> None:
    """Remember that this browser knew the password, without a login."""
    request.session.cycle_key()
    request.session.set_expiry(PENDING_SECONDS)
    # With the password's own hash: once the password is changed, this is void.
    request.session[PENDING] = [user.pk, user.get_session_auth_hash(), timezone.now().timestamp()]


def find_pending_login(request: HttpRequest) -> User | None:
    """Return the user whose password was right within the last minutes; None if there is none."""
    user_id, mark, at = request.session.get(PENDING) or (None, "", 0.0)
    if timezone.now().timestamp() - at > PENDING_SECONDS:
        return None
    user = None if user_id is None else User.objects.filter(pk=user_id, is_active=True).first()
    return user if user is not None and user.get_session_auth_hash() == mark else None
