"""Login by OpenID Connect: the code flow with state, nonce and PKCE, by mozilla-django-oidc.

What the library leaves open is checked here: issuer, audience, age and subject of the ID token, and that
the user info is of the same subject. An account belongs to (issuer, subject) and is made at its first
login; a local account of the same name is never taken over. Its role follows the groups claim at each
login, and without a group that WEIR_OIDC_ROLES maps there is no login.
"""

import functools
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import jwt
import requests
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from console.accounts import people
from console.accounts.access import Actor, role_of
from console.accounts.identity_settings import ROLES
from console.audit import audit_log
from console.models import Identity, QueueLimit

BACKEND = "console.accounts.identity_provider.Backend"
DISCOVERY = "/.well-known/openid-configuration"
RETAINED_SECONDS = 3600.0
TIMEOUT_SECONDS = 10.0
LEEWAY_SECONDS = 30
ALGORITHMS = ("RS256", "ES256", "PS256")
NOT_OF_A_NAME = re.compile(r"[^\w.@+-]")
AUTHENTICATED_AT = "weir_oidc_auth_time"  # in a session: when the provider last asked for a proof


class ProviderError(Exception):
    """The provider does not answer, or answers what it must not."""


class NoRoleError(Exception):
    """The provider vouches for somebody whom no group gives a role, or whose account is disabled."""


def name() -> str | None:
    """What the login button says; None without a provider."""
    return urlsplit(settings.WEIR_OIDC["issuer"]).hostname if settings.WEIR_OIDC else None


def is_of(user: User | AnonymousUser) -> bool:
    """Whether the provider vouches for this account; no password of ours opens it."""
    return user.is_authenticated and Identity.objects.filter(user=user).exists()


def _provider_settings() -> dict[str, Any]:
    """What the settings say of the provider. Raises ProviderError without one."""
    if settings.WEIR_OIDC is None:
        raise ProviderError("No OpenID Connect provider is set up.")
    return settings.WEIR_OIDC


def discovered() -> Mapping[str, Any]:
    """The provider's own description. Raises ProviderError."""
    return _discovered(_provider_settings()["issuer"], int(time.monotonic() // RETAINED_SECONDS))


@functools.lru_cache(maxsize=2)
def _discovered(issuer: str, hour: int) -> Mapping[str, Any]:
    try:
        answer = requests.get(issuer + DISCOVERY, timeout=TIMEOUT_SECONDS, allow_redirects=False)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        endpoints = [found[f"{each}_endpoint"] for each in ("authorization", "token", "userinfo")]
        endpoints.append(found["jwks_uri"])
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        raise ProviderError("The OpenID Connect provider's description can't be read.") from error
    if found.get("issuer", "").rstrip("/") != issuer:
        raise ProviderError("The OpenID Connect provider describes another issuer.")
    if issuer.startswith("https:") and not all(str(each).startswith("https:") for each in endpoints):
        raise ProviderError("The OpenID Connect provider names an address without https.")
    return found


def algorithm() -> str:
    """How its ID tokens are signed; never without a key, nor with the client's secret."""
    offered = discovered().get("id_token_signing_alg_values_supported") or ["RS256"]
    found = next((each for each in ALGORITHMS if each in offered), None)
    if found is None:
        raise ProviderError(f"The OpenID Connect provider signs by none of {', '.join(ALGORITHMS)}.")
    return found


def setting(attribute: str, *default: Any) -> Any:
    """What the library asks for by its own names."""
    own: dict[str, Callable[[], Any]] = {
        "OIDC_OP_AUTHORIZATION_ENDPOINT": lambda: discovered()["authorization_endpoint"],
        "OIDC_OP_TOKEN_ENDPOINT": lambda: discovered()["token_endpoint"],
        "OIDC_OP_USER_ENDPOINT": lambda: discovered()["userinfo_endpoint"],
        "OIDC_OP_JWKS_ENDPOINT": lambda: discovered()["jwks_uri"],
        "OIDC_RP_SIGN_ALGO": algorithm,
        "OIDC_RP_CLIENT_ID": lambda: _provider_settings()["client_id"],
        "OIDC_RP_CLIENT_SECRET": lambda: _provider_settings()["client_secret"],
    }
    if attribute in own:
        return own[attribute]()
    return getattr(settings, attribute, *default)


def proved_at(request: HttpRequest, now: float) -> float:
    """When the provider last asked for a proof, as it said of this login; 0 where it did not say. A
    provider's own session lets whoever sits at an open browser in without a question: that proves nothing.
    """
    told = request.session.get(AUTHENTICATED_AT)
    return min(float(told), now) if isinstance(told, int | float) else 0.0


def end_url(back: str) -> str:
    """Where the provider ends its own session, and leads back; "" where it has no such place."""
    try:
        found = str(discovered().get("end_session_endpoint") or "")
    except ProviderError:
        return ""
    query = {"client_id": _provider_settings()["client_id"], "post_logout_redirect_uri": back}
    return f"{found}?{urlencode(query)}" if found else ""


class Backend(OIDCAuthenticationBackend):  # type: ignore[misc] # the library has no types
    """Checks what the provider says, and finds or makes the account."""

    get_settings = staticmethod(setting)

    def __init__(self) -> None:
        # The library's own asks for every endpoint, and Django makes a backend for each request.
        self.UserModel = User

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("OIDC_"):
            return setting(attribute, None)
        raise AttributeError(attribute)

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        # Without the nonce of a login begun here it is no answer to one, whatever the address says.
        if not settings.WEIR_OIDC or not credentials.get("nonce") or not credentials.get("code_verifier"):
            return None
        user: User | None = super().authenticate(request, **credentials)
        return user

    def _verify_jws(self, payload: str, key: Any) -> dict[str, Any]:
        client, issuer = setting("OIDC_RP_CLIENT_ID"), discovered()["issuer"]
        if jwt.get_unverified_header(payload).get("alg") != algorithm():
            raise SuspiciousOperation("The ID token is signed in another way than the provider says.")
        claims = jwt.decode(
            payload,
            key,
            algorithms=[algorithm()],
            audience=client,
            issuer=issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iat", "aud", "iss", "sub"]},
        )
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != client:
            raise SuspiciousOperation("The ID token is for another client.")
        return claims

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """The key that the token names; without a name, the provider's only one for such signatures."""
        answer = requests.get(setting("OIDC_OP_JWKS_ENDPOINT"), timeout=TIMEOUT_SECONDS)
        answer.raise_for_status()
        wanted = jwt.get_unverified_header(token).get("kid")
        keys = [each for each in jwt.PyJWKSet(answer.json()["keys"]).keys if _signs(each)]
        found = [each for each in keys if wanted is None or each.key_id == wanted]
        if len(found) != 1:
            raise SuspiciousOperation(
                "The provider has no key, or several, that the ID token may be signed by."
            )
        return found[0]

    def verify_claims(self, claims: Mapping[str, Any]) -> bool:
        return isinstance(claims.get("sub"), str) and 0 < len(claims["sub"]) <= 255

    def get_userinfo(self, access_token: str, id_token: str, payload: dict[str, Any]) -> dict[str, Any]:
        told = super().get_userinfo(access_token, id_token, payload)
        if told.get("sub") != payload["sub"]:
            raise SuspiciousOperation("The user info is about somebody else than the ID token.")
        self.request.session[AUTHENTICATED_AT] = payload.get("auth_time")
        return {**told, **payload}

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User:
        claims = self.get_userinfo(access_token, id_token, payload)
        if not self.verify_claims(claims):
            raise SuspiciousOperation("The ID token names nobody.")
        return account_of(claims, Actor(name="oidc", role=None, address=self.request.META.get("REMOTE_ADDR")))


def _signs(key: jwt.PyJWK) -> bool:
    """Whether it is a public key for signatures by the provider's algorithm."""
    return key.algorithm_name == algorithm() and key.public_key_use in (None, "sig") and key.key_type != "oct"


@transaction.atomic
def _account(claims: Mapping[str, Any], role: str | None, actor: Actor) -> tuple[User | None, str]:
    """The account of these claims with its role as the groups say; or None and why there is no login."""
    issuer, subject = _provider_settings()["issuer"], claims["sub"]
    found = Identity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
    if found is None and role is None:
        return None, "no group of theirs has a role"
    user = found.user if found else _made(claims, actor, issuer)
    if not user.is_active:
        return None, "the account is disabled"
    _follow(user, role, actor)
    return (user, "") if role else (None, "no group of theirs has a role any more")


def account_of(claims: Mapping[str, Any], actor: Actor) -> User:
    """The account that the provider vouches for. Raises NoRoleError; what it lost is lost all the same."""
    user, why = _account(claims, role_by_groups(claims), actor)
    if user is None:
        raise NoRoleError(why)
    return user


def role_by_groups(claims: Mapping[str, Any]) -> str | None:
    """The highest role that a group of theirs is mapped to; None without one."""
    provider = _provider_settings()
    groups = claims.get(provider["groups_claim"]) or []
    groups = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    roles = {provider["roles"].get(each) for each in groups if isinstance(each, str)}
    return next((role for role in reversed(ROLES) if role in roles), None)


def _made(claims: Mapping[str, Any], actor: Actor, issuer: str) -> User:
    user = User(username=_free_name(claims))
    user.set_unusable_password()
    user.save()
    Identity.objects.create(user=user, issuer=issuer, subject=claims["sub"])
    audit_log.record(
        actor, "user.create", user.get_username(), reason="Their first login.", after={"issuer": issuer}
    )
    return user


def _free_name(claims: Mapping[str, Any]) -> str:
    """The name that the provider has for them, with a number where somebody here has it already."""
    told = next((str(claims[key]) for key in ("preferred_username", "email", "sub") if claims.get(key)), "")
    wanted = NOT_OF_A_NAME.sub("-", told)[:120] or "somebody"
    taken = {
        each.lower()
        for each in User.objects.filter(username__istartswith=wanted).values_list("username", flat=True)
    }
    names = [wanted, *(f"{wanted}+{number}" for number in range(2, len(taken) + 3))]
    return next(each for each in names if each.lower() not in taken)


def _follow(user: User, role: str | None, actor: Actor) -> None:
    before = role_of(user)
    if before == role:
        return
    user.groups.set([Group.objects.get_or_create(name=role)[0]] if role else [])
    if role == "administrator":  # a limit to some queues is never on one
        QueueLimit.objects.filter(user=user).delete()
    if role is None:
        people.end_access(user)
    noted = {"before": {"role": before}, "after": {"role": role}}
    audit_log.record(actor, "user.role", user.get_username(), reason="As the provider's groups say.", **noted)
