"""Passkeys (WebAuthn) of local accounts: a second factor, or a login without a password.

A passkey belongs to the host name of the page on which it was registered. Browsers use passkeys only with HTTPS, and on
localhost. A passkey that its authenticator stores, and that verifies the user (PIN, fingerprint), replaces password and
code. After the password, its use alone is sufficient. Each challenge is valid once, for five minutes, in one browser
session, and for one purpose. Rejected passkeys count as failed logins (`console.accounts.lockout`).

py_webauthn is imported with the first request for a passkey: it takes 10 MB of memory and 0.15 s.
"""

import base64
import hashlib
import ipaddress
import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from django.contrib.auth import authenticate
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.request import split_domain_port
from django.utils import timezone

from common.errors import BadInput
from console.accounts import second_factor
from console.accounts.access import Actor, require_recent_confirmation
from console.audit import audit_log
from console.models import Identity, Passkey
from console.storage import sealing
from console.storage.session_store import SessionStore

if TYPE_CHECKING:
    from webauthn.helpers import structs

MAX_PASSKEYS = 20  # per user
MAX_NAME = 64
MAX_ANSWER = 16 * 1024  # characters of a browser's answer
CHALLENGE_SECONDS = 300
CHALLENGE_BYTES = 32
CHALLENGE = "weir_passkey_challenge"  # in a session
LOCAL_HOST = "localhost"
NOT_ACCEPTED = (
    "The passkey was not accepted. It may have been removed, or it belongs to another account. Log in in another way, "
    "and check your passkeys under Settings, Account."
)


class Purpose(StrEnum):
    """The purpose of a challenge."""

    REGISTER = "register"
    LOGIN = "login"  # instead of password and code
    SECOND_FACTOR = "second-factor"  # after the password
    CONFIRM = "confirm"  # of the identity of a logged-in user


@dataclass(frozen=True)
class Site:
    """The console as browsers know it. host: its name, to which passkeys belong (RP ID)."""

    host: str
    origin: str


@dataclass(frozen=True)
class PasskeyProof:
    """A browser's answer to a challenge of this site."""

    answer: dict[str, Any]
    challenge: bytes
    site: Site
    purpose: Purpose


def find_site(request: HttpRequest) -> Site:
    """Return the site of a request. Raises `BadInput` if browsers can't use passkeys at its address."""
    address = request.get_host().lower()  # Django accepts only hosts in WEIR_HOSTS
    host, port = split_domain_port(address)
    is_local = host == LOCAL_HOST
    if _is_ip_address(host):
        example = f"{request.scheme}://{LOCAL_HOST}{f':{port}' if port else ''}"
        raise BadInput("passkeys", f"need a hostname, not the IP address {host}. Open Weir at {example}, for example.")
    if not is_local and not request.is_secure():
        raise BadInput(
            "passkeys", f"need HTTPS. Open Weir at https://{host}, or on its own machine at http://localhost."
        )
    return Site(host, f"{request.scheme}://{address}")


def describe_obstacle(request: HttpRequest) -> str:
    """Return why browsers can't use passkeys at the address of the request, as a sentence; empty if they can."""
    try:
        find_site(request)
    except BadInput as error:
        return f"{error.field.capitalize()} {error.message}"
    return ""


def list_passkeys(user: User) -> QuerySet[Passkey]:
    """Return the user's passkeys, the oldest first."""
    return Passkey.objects.filter(user=user).order_by("pk")


def find_passkey(user: User, passkey_id: str | int) -> Passkey:
    """Return the user's passkey of this ID. Raises `BadInput`."""
    text = str(passkey_id)
    is_id = text.isascii() and text.isdecimal() and len(text) < 19
    passkey = list_passkeys(user).filter(pk=int(text)).first() if is_id else None
    if passkey is None:
        raise BadInput("passkey", f"{text[:20]!r} is not a passkey of {user.get_username()}.")
    return passkey


def is_usable(request: HttpRequest, user: User | None = None) -> bool:
    """Return whether there is a passkey for the site of the request: of any user, or of this user."""
    if describe_obstacle(request):
        return False
    passkeys = Passkey.objects.filter(host=find_site(request).host)
    return (passkeys if user is None else passkeys.filter(user=user)).exists()


def create_registration_options(request: HttpRequest, user: User) -> dict[str, Any]:
    """Return the options with which the user's browser creates a passkey. Raises `BadInput`."""
    import webauthn
    from webauthn.helpers import options_to_json_dict, structs

    site = find_site(request)
    _check_count(user)
    options = webauthn.generate_registration_options(
        rp_id=site.host,
        rp_name="Weir",
        user_id=_user_handle(user),
        user_name=user.get_username(),
        challenge=_create_challenge(request, Purpose.REGISTER),
        timeout=CHALLENGE_SECONDS * 1_000,
        exclude_credentials=_describe(list_passkeys(user)),
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.PREFERRED,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        ),
    )
    # The browser then says whether the authenticator stores the passkey.
    return {**options_to_json_dict(options), "extensions": {"credProps": True}}


def verify_registration(request: HttpRequest, user: User, name: str, answer: str) -> Passkey:
    """Return the passkey that the user's browser created, not stored yet. Raises `BadInput`.

    answer: the browser's answer to the registration options, as JSON.
    """
    import webauthn

    site, challenge = find_site(request), _take_challenge(request, Purpose.REGISTER)
    named, document = _check_name(name), _parse_answer(answer)
    with _reporting_invalid_answers():
        verified = webauthn.verify_registration_response(
            credential=document,
            expected_challenge=challenge,
            expected_rp_id=site.host,
            expected_origin=site.origin,
            require_user_verification=True,
        )
    properties = _read_object(document.get("clientExtensionResults"), "credProps")
    return Passkey(
        user=user,
        name=named,
        digest=hashlib.sha256(verified.credential_id).hexdigest(),
        credential_id=_encode(verified.credential_id),
        public_key=_encode(verified.credential_public_key),
        sign_count=verified.sign_count,
        transports=_read_transports(document),
        host=site.host,
        is_discoverable=properties.get("rk") is True,
    )


@transaction.atomic
def add(actor: Actor, passkey: Passkey) -> list[str]:
    """Store a verified passkey; return new recovery codes if its user had none. Raises `BadInput`."""
    require_recent_confirmation(actor)
    # Locked: two requests at the same time can't exceed the limit.
    User.objects.select_for_update(no_key=True).get(pk=passkey.user_id)
    _check_count(passkey.user)
    if Passkey.objects.filter(digest=passkey.digest).exists():
        raise BadInput("passkey", "is already registered.")
    passkey.save()
    audit_log.record(actor, "account.passkey.add", actor.name, after={"name": passkey.name})
    return second_factor.create_missing_codes(passkey.user)


@transaction.atomic
def rename(actor: Actor, passkey: Passkey, name: str) -> None:
    """Name one of the actor's passkeys. Raises `BadInput`."""
    require_recent_confirmation(actor)
    before, passkey.name = passkey.name, _check_name(name)
    passkey.save(update_fields=["name"])
    after = {"name": passkey.name}
    audit_log.record(actor, "account.passkey.rename", actor.name, before={"name": before}, after=after)


@transaction.atomic
def remove(actor: Actor, passkey: Passkey) -> None:
    """Remove one of the actor's passkeys."""
    require_recent_confirmation(actor)
    delete(passkey)
    audit_log.record(actor, "account.passkey.remove", actor.name, before={"name": passkey.name})


def delete(passkey: Passkey) -> None:
    """Delete a passkey, and with the user's last second factor the recovery codes."""
    passkey.delete()
    second_factor.remove_unneeded_codes(passkey.user)


def create_login_options(request: HttpRequest, purpose: Purpose, user: User | None) -> dict[str, Any]:
    """Return the options with which a browser proves a passkey. Raises `BadInput`.

    user: whose passkeys are offered. None: the browser offers the passkeys that it knows for this site.
    """
    import webauthn
    from webauthn.helpers import options_to_json_dict, structs

    site, needs_verification = find_site(request), purpose is not Purpose.SECOND_FACTOR
    wanted = structs.UserVerificationRequirement
    options = webauthn.generate_authentication_options(
        rp_id=site.host,
        challenge=_create_challenge(request, purpose),
        timeout=CHALLENGE_SECONDS * 1_000,
        allow_credentials=_describe(list_passkeys(user).filter(host=site.host)) if user else [],
        user_verification=wanted.REQUIRED if needs_verification else wanted.DISCOURAGED,
    )
    return options_to_json_dict(options)


def authenticate_user(request: HttpRequest, purpose: Purpose, answer: str, user: User | None = None) -> User | None:
    """Return the user whose passkey signed the challenge of this session; None if it is not accepted.

    answer: the browser's answer, as JSON. user: whose passkey it must be. None: of any user. A passkey that is not
    accepted counts as a failed login. Raises `BadInput` if there is no challenge, or if this is not an answer.
    """
    site = find_site(request)
    challenge, document = _take_challenge(request, purpose), _parse_answer(answer)
    if user is None:
        passkey = _find_by_answer(document)
        user = passkey.user if passkey else None
    username = user.get_username() if user else ""
    proof = PasskeyProof(document, challenge, site, purpose)
    proved: User | None = authenticate(request, username=username, passkey_proof=proof)
    return proved


class PasskeyBackend(BaseBackend):
    """Authenticates the owner of a passkey by its signature. django-axes counts the failures of all backends."""

    @transaction.atomic
    def authenticate(  # type: ignore[override] # Django calls only backends that take all credentials
        self, request: HttpRequest | None, username: str, passkey_proof: PasskeyProof
    ) -> User | None:
        # The row is locked: of two requests with the same counter, the second is rejected.
        passkey = _find_by_answer(passkey_proof.answer, Passkey.objects.select_for_update())
        if passkey is None or passkey.user.get_username() != username or not _may_log_in(passkey.user):
            return None
        return passkey.user if _verify(passkey, passkey_proof) else None


def _verify(passkey: Passkey, proof: PasskeyProof) -> bool:
    """Return whether the proof is of this passkey, and record its use."""
    import webauthn

    handle = _read_object(proof.answer, "response").get("userHandle")
    # Only a passkey that its authenticator stores names the user.
    is_named = handle == _encode(_user_handle(passkey.user))
    if not is_named and (handle or proof.purpose is Purpose.LOGIN):
        return False
    try:
        with _reporting_invalid_answers():
            verified = webauthn.verify_authentication_response(
                credential=proof.answer,
                expected_challenge=proof.challenge,
                expected_rp_id=proof.site.host,
                expected_origin=proof.site.origin,
                credential_public_key=_decode(passkey.public_key),
                credential_current_sign_count=passkey.sign_count,
                require_user_verification=proof.purpose is not Purpose.SECOND_FACTOR,
            )
    except BadInput:
        return False
    passkey.sign_count = verified.new_sign_count
    passkey.used_at = timezone.now()
    passkey.save(update_fields=["sign_count", "used_at"])
    return True


@contextmanager
def _reporting_invalid_answers() -> Iterator[None]:
    """Raise `BadInput` for an answer that py_webauthn rejects or can't parse."""
    from cbor2 import CBORError
    from webauthn.helpers.exceptions import WebAuthnException

    try:
        yield
    # Its parsers of CBOR and of certificates raise these for malformed data.
    except (WebAuthnException, CBORError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput("passkey", f"was not accepted: {str(error)[:200]}") from None


def _create_challenge(request: HttpRequest, purpose: Purpose) -> bytes:
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    if not request.user.is_authenticated:  # sessions without a login are short, and don't accumulate
        request.session.set_expiry(CHALLENGE_SECONDS)
        SessionStore.clear_expired()
    request.session[CHALLENGE] = [purpose, _encode(challenge), timezone.now().timestamp()]
    return challenge


def _take_challenge(request: HttpRequest, purpose: Purpose) -> bytes:
    """Return the challenge of this session, which is then used up. Raises `BadInput` if there is none."""
    held_for, challenge, at = request.session.pop(CHALLENGE, None) or ("", "", 0.0)
    # Saved before the answer is read: no failure makes a challenge valid again.
    request.session.save()
    if held_for != purpose or not 0 <= timezone.now().timestamp() - at <= CHALLENGE_SECONDS:
        raise BadInput("passkey", "request has expired or was already used. Try again.")
    return _decode(challenge)


def _parse_answer(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text) if len(text) <= MAX_ANSWER else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadInput("passkey", "answer is missing or is not a JSON object. Use a browser that supports passkeys.")
    return document


def _read_object(holder: object, name: str) -> dict[str, Any]:
    """Return the object of this name in a browser's answer; an empty one if there is none."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def _read_transports(document: dict[str, Any]) -> list[str]:
    from webauthn.helpers.structs import AuthenticatorTransport

    named = _read_object(document, "response").get("transports")
    return [each.value for each in AuthenticatorTransport if isinstance(named, list) and each.value in named]


def _find_by_answer(document: dict[str, Any], among: QuerySet[Passkey] | None = None) -> Passkey | None:
    passkeys = Passkey.objects.all() if among is None else among
    try:
        digest = hashlib.sha256(_decode(str(document.get("id", "")))).hexdigest()
    except ValueError:
        return None
    return passkeys.filter(digest=digest).first()


def _may_log_in(user: User) -> bool:
    """Return whether the account is enabled and local: an identity provider authenticates its own accounts."""
    return user.is_active and not Identity.objects.filter(user=user).exists()


def _describe(passkeys: Iterable[Passkey]) -> "list[structs.PublicKeyCredentialDescriptor]":
    from webauthn.helpers import structs

    return [
        structs.PublicKeyCredentialDescriptor(
            id=_decode(passkey.credential_id),
            transports=[structs.AuthenticatorTransport(name) for name in passkey.transports],
        )
        for passkey in passkeys
    ]


def _user_handle(user: User) -> bytes:
    """Return the name by which authenticators know the account; it reveals nothing about the user."""
    return bytes.fromhex(sealing.compute_keyed_digest(str(user.pk), "passkey user"))


def _check_count(user: User) -> None:
    if list_passkeys(user).count() >= MAX_PASSKEYS:
        raise BadInput("passkeys", f"are limited to {MAX_PASSKEYS} per user. Remove one first.")


def _check_name(name: str) -> str:
    named = " ".join(name.split())
    if not 1 <= len(named) <= MAX_NAME:
        raise BadInput("name", f"must have 1 to {MAX_NAME} characters, such as the name of the device.")
    return named


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Return the bytes of base64url text without padding. Raises `ValueError`."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
