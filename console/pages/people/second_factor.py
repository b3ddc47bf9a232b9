"""A user's own second factors: an app and passkeys, their setup and removal, and recovery codes (shown once)."""

from dataclasses import dataclass, replace

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from common.errors import BadInput
from console.accounts import identity_provider
from console.accounts import passkeys as keys
from console.accounts import second_factor as factor
from console.accounts.access import actor_of, require_recent_confirmation, requires, user_of
from console.audit import audit_log
from console.models import Passkey
from console.pages.frame.page import ConsolePage, render_page

CHANGES = ("begin", "confirm", "remove", "add-passkey", "rename-passkey", "remove-passkey")


@dataclass(frozen=True, kw_only=True)
class SecondFactorPage(ConsolePage):
    """The state of the app: off, begun, on, or provider, which keeps it.

    picture, key: while setup is begun. codes_left: None without a second factor. obstacle: why browsers can't use
    passkeys at this address, empty if they can.
    """

    TEMPLATE, NAME = "people/second_factor.html", "settings"

    state: str
    passkeys: QuerySet[Passkey]
    obstacle: str
    picture: str = ""
    key: str = ""
    codes_left: int | None = None
    codes: list[str] | None = None  # shown once
    error: str = ""


@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
@requires("account.change")
def page(request: HttpRequest) -> HttpResponse:
    """Change the second factors.

    Posted: do (begin, confirm, remove, add-passkey, rename-passkey, remove-passkey); code; passkey (its ID, or for
    add-passkey the browser's answer); name.
    """
    if request.method != "POST":
        return _page(request)
    try:
        codes = _redirect_when_done(request, request.POST.get("do", ""))
    except BadInput as error:
        return _page(request, error=f"{error.field.capitalize()} {error.message}", status=422)
    return _page(request, codes=codes)


@require_POST
@requires("account.change")
def create_passkey_options(request: HttpRequest) -> HttpResponse:
    """Return the options with which the browser creates a passkey, as JSON. Nothing is posted."""
    actor, user = actor_of(request), user_of(request)
    require_recent_confirmation(actor)
    try:
        _check_local(user)
        return JsonResponse(keys.create_registration_options(request, user))
    except BadInput as error:
        return JsonResponse({"errors": {error.field: [error.message]}}, status=422)


def _check_local(user: User) -> None:
    if identity_provider.is_of(user):
        raise BadInput("account", "is managed by your identity provider. Set up a second factor there.")


def _redirect_when_done(request: HttpRequest, wanted: str) -> list[str] | None:
    actor, user = actor_of(request), user_of(request)
    _check_local(user)
    if wanted not in CHANGES:
        raise BadInput("do", f"must be one of {', '.join(CHANGES)}, not {wanted[:40]!r}.")
    # A person who finds an open browser must neither bind it to a phone nor remove the phone.
    require_recent_confirmation(actor)
    posted = {name: request.POST.get(name, "") for name in ("code", "passkey", "name")}
    if wanted == "add-passkey":
        return keys.add(actor, keys.verify_registration(request, user, posted["name"], posted["passkey"]))
    if wanted == "rename-passkey":
        keys.rename(actor, keys.find_passkey(user, posted["passkey"]), posted["name"])
    elif wanted == "remove-passkey":
        keys.remove(actor, keys.find_passkey(user, posted["passkey"]))
    elif wanted == "confirm":
        codes = factor.confirm(user, posted["code"])
        audit_log.record(actor, "account.second_factor", actor.name, after={"on": True})
        return codes
    elif wanted == "begin":
        factor.begin(user)
    elif factor.remove_app(user):
        audit_log.record(actor, "account.second_factor", actor.name, after={"on": False})
    return None


def _page(request: HttpRequest, codes: list[str] | None = None, error: str = "", status: int = 200) -> HttpResponse:
    shown = replace(_as_it_is(request, user_of(request)), codes=codes, error=error)
    response = render_page(request, shown, status=status)
    response["Cache-Control"] = "no-store"
    return response


def _as_it_is(request: HttpRequest, user: User) -> SecondFactorPage:
    page = SecondFactorPage(
        state="off",
        passkeys=keys.list_passkeys(user),
        obstacle=keys.describe_obstacle(request),
        codes_left=factor.count_unused_codes(user) if factor.is_required(user) else None,
    )
    if identity_provider.is_of(user):
        return replace(page, state="provider")
    if factor.find_confirmed(user):
        return replace(page, state="on")
    if begun := factor.find_pending(user):
        return replace(
            page, state="begun", picture=factor.render_qr_code(begun), key=factor.format_device_secret(begun)
        )
    return page
