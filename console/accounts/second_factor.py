"""Second factors of local accounts: one-time passwords (TOTP, RFC 6238), and the recovery codes.

`console.accounts.passkeys` has the other second factor. The shared key of an app is stored encrypted. A code is valid
once, and within 30 s of its time; after a wrong one the next is checked only after 1, 2, 4 … s. Ten recovery codes
replace a lost app or passkey, each once. With the setting `login.second_factor` at 1, administrators act as viewers
until they have a second factor.
"""

import base64
import secrets
from datetime import datetime

import segno
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from common.errors import BadInput
from console.models import Passkey, RecoveryCode, SecondFactor
from console.storage import sealing

KEY_BYTES = 20
RECOVERY_CODES = 10
PURPOSE = "recovery code"
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # no similar characters
CODE_LENGTH = 16  # 79 bits
MAX_CODE = 40


def is_required(user: User) -> bool:
    """Return whether the user's password alone doesn't log in: the user has an app or a passkey."""
    return find_confirmed(user) is not None or Passkey.objects.filter(user=user).exists()


def find_confirmed(user: User) -> SecondFactor | None:
    """Return the confirmed app; None if there is none."""
    found: SecondFactor | None = SecondFactor.objects.filter(user=user, confirmed=True).first()
    return found


def find_pending(user: User) -> SecondFactor | None:
    """Return the device that is being set up."""
    found: SecondFactor | None = SecondFactor.objects.filter(user=user, confirmed=False).first()
    return found


@transaction.atomic
def begin(user: User) -> SecondFactor:
    """Create a key, to be confirmed by a first code. Raises `BadInput` if there is a confirmed one."""
    if find_confirmed(user):
        raise BadInput("code", "is not needed: an authenticator app is already set up. Remove it first.")
    SecondFactor.objects.filter(user=user).delete()
    made = SecondFactor(user=user, name="app", confirmed=False)
    made.keep_key(secrets.token_bytes(KEY_BYTES))
    made.save()
    return made


@transaction.atomic
def confirm(user: User, code: str) -> list[str]:
    """Enable the second factor with a first code; return the recovery codes, shown once. Raises `BadInput`."""
    made = SecondFactor.objects.select_for_update().filter(user=user, confirmed=False).first()
    if made is None:
        raise BadInput("code", "is not expected: no setup is in progress. Start again.")
    if not made.verify_token(_normalize_code(code)):
        raise BadInput("code", ("is not the app's current code. Wait for the next code, and check the app's clock."))
    made.confirmed = True
    made.save(update_fields=["confirmed"])
    return _new_recovery_codes(user)


def is_throttled(user: User) -> bool:
    """Return whether codes are not checked for now, after wrong ones."""
    held = SecondFactor.objects.filter(user=user, confirmed=True).first()
    return held is not None and not held.verify_is_allowed()[0]


@transaction.atomic
def is_right(user: User, code: str, now: datetime) -> bool:
    """Return whether the code is the app's current code or an unused recovery code, which is then used up.

    False if the user has no app: `RecoveryCodes` checks the recovery codes of these users.
    """
    # The row is locked: the second of two requests with the same code is rejected.
    held = SecondFactor.objects.select_for_update().filter(user=user, confirmed=True).first()
    plain = _normalize_code(code)
    if held is not None and (held.throttling_failure_timestamp or now) > now:
        # From before the clock was set back: the wait starts now.
        held.throttling_failure_timestamp = now
        held.save(update_fields=["throttling_failure_timestamp"])
    if held is None or not held.verify_is_allowed()[0]:
        return False
    if plain.isdecimal():
        return bool(held.verify_token(plain))
    if _use_recovery_code(user, plain, now):
        return True
    held.throttle_increment(commit=True)
    return False


class RecoveryCodes(BaseBackend):
    """Authenticates users without an app by a recovery code. A wrong code counts as a failed login."""

    def authenticate(  # type: ignore[override] # Django calls only backends that take all credentials
        self, request: HttpRequest | None, username: str, recovery_code: str
    ) -> User | None:
        user = User.objects.filter(username=username, is_active=True).first()
        if user is None or find_confirmed(user) is not None:
            return None
        return user if _use_recovery_code(user, _normalize_code(recovery_code), timezone.now()) else None


def _use_recovery_code(user: User, code: str, now: datetime) -> bool:
    digest = sealing.compute_keyed_digest(f"{user.pk} {code}", PURPOSE)
    return bool(RecoveryCode.objects.filter(user=user, digest=digest, used_at=None).update(used_at=now))


@transaction.atomic
def remove_app(user: User) -> bool:
    """Remove the authenticator app; return False if there was none."""
    is_removed = bool(SecondFactor.objects.filter(user=user).delete()[0])
    remove_unneeded_codes(user)
    return is_removed


@transaction.atomic
def remove_all(user: User) -> bool:
    """Remove the app, all passkeys, and the recovery codes; return False if there was no second factor."""
    has_one = is_required(user)
    Passkey.objects.filter(user=user).delete()
    remove_app(user)
    return has_one


def remove_unneeded_codes(user: User) -> None:
    """Remove the recovery codes of a user who has no second factor any more."""
    if not is_required(user):
        RecoveryCode.objects.filter(user=user).delete()


def create_missing_codes(user: User) -> list[str]:
    """Return new recovery codes, which are shown once, if the user has none yet; otherwise an empty list."""
    return [] if RecoveryCode.objects.filter(user=user).exists() else _new_recovery_codes(user)


def format_device_secret(device: SecondFactor) -> str:
    """Return the key for manual entry in an app, in groups of four."""
    text = base64.b32encode(device.bin_key).decode().rstrip("=")
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def render_qr_code(device: SecondFactor) -> str:
    """Return the QR code of the device as inline SVG."""
    code = segno.make(device.config_url, error="m", micro=False)
    return code.svg_inline(scale=4, border=4, dark="#000", light="#fff", title="QR code for the authenticator app")


def count_unused_codes(user: User) -> int:
    """Return the number of unused recovery codes."""
    return RecoveryCode.objects.filter(user=user, used_at=None).count()


def _new_recovery_codes(user: User) -> list[str]:
    RecoveryCode.objects.filter(user=user).delete()
    codes = ["".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH)) for _ in range(RECOVERY_CODES)]
    digests = [sealing.compute_keyed_digest(f"{user.pk} {code}", PURPOSE) for code in codes]
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=digest) for digest in digests)
    return ["-".join(code[at : at + 4] for at in range(0, CODE_LENGTH, 4)) for code in codes]


def _normalize_code(code: str) -> str:
    """Remove separators between groups. The length of typed text is limited before any int()."""
    text = "".join(code.lower().split()).replace("-", "")[:MAX_CODE]
    return text if text.isascii() else ""
