"""Login at an OpenID Connect provider: the redirect there and the callback."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from console.accounts import identity_provider, login
from console.audit import refusals
from console.web.template_context import TemplateContext, render_context
from console.web.web_request import get_web_request

BEGUN_SECONDS = 600  # time limit for an anonymous visitor at the provider
CONFIRMING = "weir_oidc_confirming"
FAILED = (
    "The login at {name} failed. Try again. If it keeps failing, an administrator can find the reason in the audit log."
)
NO_LOGIN = "the provider returned an error"
OTHER_ISSUER = "the response is from a different provider"
MAX_ERROR = 100
REFUSED = "{name} authenticated you, but you have no role here. Ask an administrator of Weir."


@dataclass(frozen=True, kw_only=True)
class LoginFailedPage(TemplateContext):
    """The page for a failed login at the provider."""

    TEMPLATE = "people/login_failed.html"

    message: str


def _require_provider(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a view that needs an identity provider.

    Without a provider the view does not exist. A provider that does not answer is reported.
    """

    @functools.wraps(view)
    def guard(request: HttpRequest, *args: object, **named: object) -> HttpResponse:
        if not settings.WEIR_OIDC:
            raise Http404("No OpenID Connect provider is configured.")
        try:
            return view(request, *args, **named)
        except identity_provider.NoRoleError as error:
            return _report_failure(request, REFUSED, str(error), 403)
        # An invalid answer of the provider is no error of this server.
        except (
            identity_provider.ProviderError,
            SuspiciousOperation,
            requests.RequestException,
            jwt.PyJWTError,
            KeyError,
            ValueError,
        ) as error:
            return _report_failure(request, FAILED, f"{type(error).__name__}: {error}", 502)

    return guard


def _report_failure(
    request: HttpRequest, message: str, why: str, status: int, after: dict[str, str] | None = None
) -> HttpResponse:
    """Report a failed login. after: text that anybody may make up; it does not distinguish audit entries."""
    name, address = identity_provider.get_provider_name(), request.META.get("REMOTE_ADDR")
    request_id = get_web_request(request).request_id
    refusals.note(refusals.Refusal("unknown", "login", "", why[:300], address, request_id, after))
    return render_context(request, LoginFailedPage(message=message.format(name=name)), status)


@method_decorator([login_not_required, never_cache, _require_provider], name="dispatch")
class Begin(OIDCAuthenticationRequestView):  # type: ignore[misc] # the library has no types
    """GET with `next`. With `confirm`, the provider must ask for the password again."""

    get_settings = staticmethod(identity_provider.get_setting)

    def __init__(self, **named: object) -> None:
        super(OIDCAuthenticationRequestView, self).__init__(**named)

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "OIDC_OP_AUTH_ENDPOINT":
            return identity_provider.get_setting("OIDC_OP_AUTHORIZATION_ENDPOINT")
        if attribute.startswith("OIDC_"):
            return identity_provider.get_setting(attribute)
        raise AttributeError(attribute)

    def get(self, request: HttpRequest) -> HttpResponse:
        if not request.user.is_authenticated:
            request.session.set_expiry(BEGUN_SECONDS)
        request.session[CONFIRMING] = time.time() if "confirm" in request.GET else None
        answer: HttpResponseRedirect = super().get(request)
        endpoint = identity_provider.get_setting("OIDC_OP_AUTHORIZATION_ENDPOINT")
        if "?" in endpoint:  # which the library does not expect
            return redirect(answer.url.replace(f"{endpoint}?", f"{endpoint}&", 1))
        return answer

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        return {"prompt": "login", "max_age": "0"} if "confirm" in request.GET else {}


@method_decorator([login_not_required, never_cache, _require_provider], name="dispatch")
class Callback(OIDCAuthenticationCallbackView):  # type: ignore[misc] # the library has no types
    """GET: the provider's callback with code and state."""

    get_settings = staticmethod(identity_provider.get_setting)

    def get(self, request: HttpRequest) -> HttpResponse:
        # The library would log out anybody who is sent here with an error.
        if request.GET.get("error"):
            return self.login_failure()
        issuer = request.GET.get("iss")
        if issuer is not None and issuer != identity_provider.discover()["issuer"]:
            return _report_failure(request, FAILED, OTHER_ISSUER, 403, {"issuer": issuer[:MAX_ERROR]})
        answer: HttpResponse = super().get(request)
        return answer

    def login_failure(self) -> HttpResponse:
        if error := self.request.GET.get("error"):
            return _report_failure(self.request, FAILED, NO_LOGIN, 403, {"error": error[:MAX_ERROR]})
        return _report_failure(self.request, FAILED, "no login was started in this session", 403)

    def login_success(self) -> HttpResponse:
        request, following = self.request, self.request.session.get("oidc_login_next") or reverse("overview")
        asked_at = request.session.pop(CONFIRMING, None)
        if asked_at is None or not request.user.is_authenticated:
            proved_at = identity_provider.read_proof_time(request, time.time())
            login.enter(request, self.user, identity_provider.BACKEND, "OpenID Connect", proved_at)
            return redirect(following)
        # It must be the same person, and the provider must really have asked for the password.
        told = request.session.get(identity_provider.AUTHENTICATED_AT)
        fresh = isinstance(told, int | float) and told >= asked_at - identity_provider.LEEWAY_SECONDS
        if self.user != request.user or not fresh:
            return _report_failure(request, FAILED, "the provider did not confirm that it is the same user", 403)
        login.confirm(request, "OpenID Connect")
        return redirect(following)
