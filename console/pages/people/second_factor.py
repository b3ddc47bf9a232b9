"""A user's own second factor: setup, recovery codes (shown once), and removal."""

from dataclasses import dataclass, replace

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from common.errors import BadInput
from console.accounts import identity_provider
from console.accounts import second_factor as factor
from console.accounts.access import actor_of, require_recent_confirmation, requires, user_of
from console.audit import audit_log
from console.pages.frame.page import ConsolePage, render_page


@dataclass(frozen=True, kw_only=True)
class SecondFactorPage(ConsolePage):
    """The state: off, begun, on, or provider, which keeps it. picture, key: while setup is begun."""

    TEMPLATE, NAME = "people/second_factor.html", "settings"

    state: str
    picture: str = ""
    key: str = ""
    codes_left: int | None = None
    codes: list[str] | None = None  # shown once
    error: str = ""


@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
@requires("account.change")
def page(request: HttpRequest) -> HttpResponse:
    """Change the second factor. Posted: do (begin, confirm, remove); code."""
    if request.method != "POST":
        return _page(request)
    try:
        codes = _redirect_when_done(request, request.POST.get("do", ""))
    except BadInput as error:
        return _page(request, error=f"{error.field.capitalize()} {error.message}", status=422)
    return _page(request, codes=codes)


def _redirect_when_done(request: HttpRequest, wanted: str) -> list[str] | None:
    actor, user = actor_of(request), user_of(request)
    if identity_provider.is_of(user):
        raise BadInput("account", "is managed by your identity provider; set up a second factor there.")
    # A person who finds an open browser must neither bind it to a phone nor remove the phone.
    require_recent_confirmation(actor)
    if wanted == "confirm":
        codes = factor.confirm(user, request.POST.get("code", ""))
        audit_log.record(actor, "account.second_factor", actor.name, after={"on": True})
        return codes
    if wanted == "begin":
        factor.begin(user)
    elif wanted == "remove":
        if factor.remove(user):
            audit_log.record(actor, "account.second_factor", actor.name, after={"on": False})
    else:
        raise BadInput("do", f"must be one of begin, confirm, remove, not {wanted[:40]!r}.")
    return None


def _page(request: HttpRequest, codes: list[str] | None = None, error: str = "", status: int = 200) -> HttpResponse:
    shown = replace(_as_it_is(user_of(request)), codes=codes, error=error)
    response = render_page(request, shown, status=status)
    response["Cache-Control"] = "no-store"
    return response


def _as_it_is(user: User) -> SecondFactorPage:
    if identity_provider.is_of(user):
        return SecondFactorPage(state="provider")
    if factor.find_confirmed(user):
        return SecondFactorPage(state="on", codes_left=factor.count_unused_codes(user))
    if begun := factor.find_pending(user):
        return SecondFactorPage(
            state="begun", picture=factor.render_qr_code(begun), key=factor.format_device_secret(begun)
        )
    return SecondFactorPage(state="off")
