"""Login by OpenID Connect: the code flow with state, nonce, and PKCE, by mozilla-django-oidc.

This module checks what the library does not: issuer, audience, age, and subject of the ID token, and that the user info
has the same subject. An account belongs to (issuer, subject) and is created at its first login; a local account of the
same name is never taken over. Its role follows the groups claim at each login, and without a group that WEIR_OIDC_ROLES
maps there is no login.
"""

import functools
import math
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
from console.accounts.access import Actor, find_user_role
from console.accounts.identity_settings import ROLES
from console.audit import audit_log
from console.models import Identity, QueueLimit

BACKEND = "console.accounts.identity_provider.Backend"
DISCOVERY = "/.well-known/openid-configuration"
RETAINED_SECONDS = 3600.0
TIMEOUT_SECONDS = 10.0
LEEWAY_SECONDS = 30
MAX_ANSWER_BYTES = 1 << 20
MAX_ANSWER_SECONDS = 20.0
# The key type of each signature algorithm, as (kty, crv). Algorithms without a key, or with the client's
# secret, are excluded.
KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    **{f"{family}{bits}": ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
NOT_OF_A_NAME = re.compile(r"[^\w.@+-]")
AUTHENTICATED_AT = "weir_oidc_auth_time"  # in a session: when the provider last asked for credentials


class ProviderError(Exception):
    """The provider does not answer, or its answer is invalid."""


class NoRoleError(Exception):
    """The provider authenticates a user without a mapped group, or whose account is disabled."""


def get_provider_name() -> str | None:
    """Return the label of the login button; None without a provider."""
    return urlsplit(settings.WEIR_OIDC["issuer"]).hostname if settings.WEIR_OIDC else None


def is_of(user: User | AnonymousUser) -> bool:
    """Return whether the provider authenticates this account; local passwords don't apply to it."""
    return user.is_authenticated and Identity.objects.filter(user=user).exists()


def _get_provider_settings() -> dict[str, Any]:
    """Return the provider's settings. Raises `ProviderError` if there are none."""
    if settings.WEIR_OIDC is None:
        raise ProviderError("No OpenID Connect provider is configured.")
    return settings.WEIR_OIDC


def discover() -> Mapping[str, Any]:
    """Return the provider's discovery document. Raises `ProviderError`."""
    return _fetch_discovery(_get_provider_settings()["issuer"], int(time.monotonic() // RETAINED_SECONDS))


@functools.lru_cache(maxsize=2)
def _fetch_discovery(issuer: str, hour: int) -> Mapping[str, Any]:
    try:
        document = _parse_json_object(requests.get(issuer + DISCOVERY, **_build_request_limits()))
        endpoints = [document[f"{endpoint}_endpoint"] for endpoint in ("authorization", "token", "userinfo")]
        endpoints.append(document["jwks_uri"])
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        raise ProviderError("The OpenID Connect provider's discovery document can't be read.") from error
    if str(document.get("issuer", "")).rstrip("/") != issuer:
        raise ProviderError("The OpenID Connect provider returned a different issuer. Check WEIR_OIDC_ISSUER.")
    if issuer.startswith("https:") and not all(str(endpoint).startswith("https:") for endpoint in endpoints):
        raise ProviderError("The OpenID Connect provider returned an address without https.")
    return document


def _build_request_limits() -> dict[str, Any]:
    """Return the arguments by which a request to the provider is bounded in time and size."""
    deadline = time.monotonic() + MAX_ANSWER_SECONDS

    def read(answer: requests.Response, *_: object, **__: object) -> None:
        content = bytearray()
        for chunk in answer.iter_content(8_192):
            content += chunk
            if len(content) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
                answer.close()
                raise ProviderError("The OpenID Connect provider's response is too large or too slow.")
        answer._content = bytes(content)

    # Without redirects: a secret or a code is only sent to the address that the provider names.
    return {"timeout": TIMEOUT_SECONDS, "allow_redirects": False, "stream": True, "hooks": {"response": read}}


def _parse_json_object(answer: requests.Response) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises `ProviderError`, or `RequestException` for a bad status."""
    answer.raise_for_status()
    document = answer.json()
    if not isinstance(document, dict):
        raise ProviderError("The OpenID Connect provider's response is not a JSON object.")
    return document


def list_signature_algorithms() -> list[str]:
    """Return the signature algorithms of ID tokens that the provider offers and Weir checks."""
    offered = discover().get("id_token_signing_alg_values_supported") or ["RS256"]
    supported = [algorithm for algorithm in KEY_TYPES if isinstance(offered, list) and algorithm in offered]
    if not supported:
        raise ProviderError(
            f"The OpenID Connect provider supports none of the signature algorithms {', '.join(KEY_TYPES)}."
        )
    return supported


def get_setting(attribute: str, *default: object) -> Any:
    """Return a setting under the library's name for it."""
    own: dict[str, Callable[[], Any]] = {
        "OIDC_OP_AUTHORIZATION_ENDPOINT": lambda: discover()["authorization_endpoint"],
        "OIDC_OP_TOKEN_ENDPOINT": lambda: discover()["token_endpoint"],
        "OIDC_OP_USER_ENDPOINT": lambda: discover()["userinfo_endpoint"],
        "OIDC_OP_JWKS_ENDPOINT": lambda: discover()["jwks_uri"],
        "OIDC_RP_CLIENT_ID": lambda: _get_provider_settings()["client_id"],
        "OIDC_RP_CLIENT_SECRET": lambda: _get_provider_settings()["client_secret"],
    }
    if attribute in own:
        return own[attribute]()
    return getattr(settings, attribute, *default)


def read_proof_time(request: HttpRequest, now: float) -> float:
    """Return when the provider last asked for credentials, according to this login; 0 if it does not say.

    An existing provider session doesn't prove who uses the browser, so it is not accepted.
    """
    told = request.session.get(AUTHENTICATED_AT)
    if not isinstance(told, int | float) or not math.isfinite(told):
        return 0.0
    return min(float(told), now)


def end_url(back: str) -> str:
    """Return the page where the provider ends its own session and redirects back; "" if it has none."""
    try:
        url = str(discover().get("end_session_endpoint") or "")
    except ProviderError:
        return ""
    if urlsplit(url).scheme not in ("https", urlsplit(_get_provider_settings()["issuer"]).scheme):
        return ""  # no address for browsers, or one less secure than the provider itself
    query = {"client_id": _get_provider_settings()["client_id"], "post_logout_redirect_uri": back}
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query)}"


class Backend(OIDCAuthenticationBackend):  # type: ignore[misc] # the library has no types
    """Checks the provider's answers, and finds or creates the account."""

    get_settings = staticmethod(get_setting)

    def __init__(self) -> None:
        # The library's own class requires every endpoint, and Django creates a backend for each request.
        self.UserModel = User

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("OIDC_"):
            return get_setting(attribute, None)
        raise AttributeError(attribute)

    def authenticate(self, request: HttpRequest | None, **credentials: object) -> User | None:
        # Without the nonce of a login started here it is no answer to one, whatever the address says.
        if not settings.WEIR_OIDC or not credentials.get("nonce") or not credentials.get("code_verifier"):
            return None
        user: User | None = super().authenticate(request, **credentials)
        return user

    def verify_token(self, token: str, **named: object) -> dict[str, Any]:
        """Return the claims of an ID token that answers the login with this nonce."""
        claims = self._verify_jws(token, self.retrieve_matching_jwk(token))
        if not named.get("nonce") or named["nonce"] != claims.get("nonce"):
            raise SuspiciousOperation("The ID token belongs to another login: its nonce does not match.")
        return claims

    def _verify_jws(
        self, payload: str, key: jwt.PyJWK, required: tuple[str, ...] = ("exp", "iat", "aud", "iss", "sub")
    ) -> dict[str, Any]:
        client, issuer, algorithm = (
            get_setting("OIDC_RP_CLIENT_ID"),
            discover()["issuer"],
            _read_token_algorithm(payload),
        )
        if not isinstance(key, jwt.PyJWK) or key.algorithm_name != algorithm:
            raise SuspiciousOperation("The token's signature algorithm does not match its key.")
        try:
            claims = jwt.decode(
                payload,
                key,
                algorithms=[algorithm],
                audience=client,
                issuer=issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": list(required)},
            )
        except (OverflowError, TypeError, AttributeError) as error:  # such as a time that is Infinity
            raise SuspiciousOperation("The token has a claim of the wrong type.") from error
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != client:
            raise SuspiciousOperation("The ID token is for another client.")
        return claims

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """Return the key that the token names; without a name, the only key for such signatures."""
        algorithm, named = _read_token_algorithm(token), jwt.get_unverified_header(token).get("kid")
        answer = _parse_json_object(requests.get(get_setting("OIDC_OP_JWKS_ENDPOINT"), **_build_request_limits()))
        listed = answer.get("keys")
        keys = [key for key in listed if _signs(key, algorithm)] if isinstance(listed, list) else []
        matching = [key for key in keys if named is None or key.get("kid") == named]
        if len(matching) != 1:
            raise SuspiciousOperation(
                f"The provider does not have exactly one key that matches the token ({algorithm})."
            )
        try:
            return jwt.PyJWK(matching[0], algorithm)
        except (jwt.PyJWTError, TypeError, ValueError, AttributeError) as error:
            raise SuspiciousOperation("The provider's key can't be read.") from error

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the provider's tokens for a code."""
        answer = requests.post(get_setting("OIDC_OP_TOKEN_ENDPOINT"), data=payload, **_build_request_limits())
        self.raise_token_response_error(answer)
        return _parse_json_object(answer)

    def verify_claims(self, claims: Mapping[str, Any]) -> bool:
        return isinstance(claims.get("sub"), str) and 0 < len(claims["sub"]) <= 255

    def get_userinfo(self, access_token: str, id_token: str, payload: dict[str, Any]) -> dict[str, Any]:
        answer = requests.get(
            get_setting("OIDC_OP_USER_ENDPOINT"),
            headers={"Authorization": f"Bearer {access_token}"},
            **_build_request_limits(),
        )
        answer.raise_for_status()
        if answer.headers.get("content-type", "").lower().startswith("application/jwt"):
            key = self.retrieve_matching_jwk(answer.text)
            told = self._verify_jws(answer.text, key, required=("aud", "iss", "sub"))
        else:
            told = _parse_json_object(answer)
        if told.get("sub") != payload["sub"]:
            raise SuspiciousOperation("The user info and the ID token have different subjects.")
        self.request.session[AUTHENTICATED_AT] = payload.get("auth_time")
        return {**told, **payload}

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User:
        claims = self.get_userinfo(access_token, id_token, payload)
        if not self.verify_claims(claims):
            raise SuspiciousOperation("The ID token has no subject.")
        return synchronize_account(claims, Actor(name="oidc", role=None, address=self.request.META.get("REMOTE_ADDR")))


def _read_token_algorithm(token: str) -> str:
    """Return the algorithm that a token names. Raises `SuspiciousOperation` for one that is not accepted."""
    algorithm = jwt.get_unverified_header(token).get("alg")
    if algorithm not in list_signature_algorithms():
        raise SuspiciousOperation("The token's signature algorithm is not offered by the provider.")
    return str(algorithm)


def _signs(key: object, algorithm: str) -> bool:
    """Return whether it is a public key for signatures by this algorithm."""
    if not isinstance(key, dict) or key.get("use") not in (None, "sig"):
        return False
    if key.get("alg") not in (None, algorithm):
        return False
    operations = key.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return False
    kind, curve = KEY_TYPES[algorithm]
    return key.get("kty") == kind and (curve is None or key.get("crv") == curve)


@transaction.atomic
def _account(claims: Mapping[str, Any], role: str | None, actor: Actor) -> tuple[User | None, str]:
    """Return the account of these claims with the role of its groups; or None and why the login fails."""
    issuer, subject = _get_provider_settings()["issuer"], claims["sub"]
    identity = Identity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
    if identity is None and role is None:
        return None, "none of the user's groups has a role"
    user = identity.user if identity else _create_user(claims, actor, issuer)
    if not user.is_active:
        return None, "the account is disabled"
    _follow(user, role, actor)
    return (user, "") if role else (None, "none of the user's groups has a role now")


def synchronize_account(claims: Mapping[str, Any], actor: Actor) -> User:
    """Return the provider's account. Raises `NoRoleError`; a lost role is removed even then."""
    user, why = _account(claims, find_group_role(claims), actor)
    if user is None:
        raise NoRoleError(why)
    return user


def find_group_role(claims: Mapping[str, Any]) -> str | None:
    """Return the highest role to which one of the groups is mapped; None without one.

    Raises `ProviderError` if the provider left the groups out because there are too many (as Entra ID does): unknown
    groups change no role.
    """
    provider = _get_provider_settings()
    claim = provider["groups_claim"]
    elsewhere = claims.get("_claim_names")
    is_elsewhere = (isinstance(elsewhere, dict) and claim in elsewhere) or claims.get("hasgroups") is True
    if is_elsewhere and not claims.get(claim):
        raise ProviderError(
            f"The OpenID Connect provider omitted the claim {claim} because the user has too many groups. Configure it "
            "to send only the groups assigned to Weir, or app roles (WEIR_OIDC_GROUPS=roles)."
        )
    groups = claims.get(claim) or []
    groups = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    roles = {provider["roles"].get(group) for group in groups if isinstance(group, str)}
    return next((role for role in reversed(ROLES) if role in roles), None)


def _create_user(claims: Mapping[str, Any], actor: Actor, issuer: str) -> User:
    user = User(username=_free_name(claims))
    user.set_unusable_password()
    user.save()
    Identity.objects.create(user=user, issuer=issuer, subject=claims["sub"])
    audit_log.record(actor, "user.create", user.get_username(), reason="First login.", after={"issuer": issuer})
    return user


def _free_name(claims: Mapping[str, Any]) -> str:
    """Return the provider's user name, with a number if a local account already has it."""
    told = next((str(claims[key]) for key in ("preferred_username", "email", "sub") if claims.get(key)), "")
    wanted = NOT_OF_A_NAME.sub("-", told)[:120] or "somebody"
    taken = {
        taken_name.lower()
        for taken_name in User.objects.filter(username__istartswith=wanted).values_list("username", flat=True)
    }
    names = [wanted, *(f"{wanted}+{number}" for number in range(2, len(taken) + 3))]
    return next(free_name for free_name in names if free_name.lower() not in taken)


def _follow(user: User, role: str | None, actor: Actor) -> None:
    before = find_user_role(user)
    if before == role:
        return
    user.groups.set([Group.objects.get_or_create(name=role)[0]] if role else [])
    if role == "administrator":  # queue limits never apply to an administrator
        QueueLimit.objects.filter(user=user).delete()
    if role is None:
        people.end_access(user)
    noted = {"before": {"role": before}, "after": {"role": role}}
    audit_log.record(actor, "user.role", user.get_username(), reason="Role set from the provider's groups.", **noted)
