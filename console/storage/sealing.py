"""Secrets that have to be read again (one-time password keys, answers to repeated forms) are kept
encrypted: AES-256-GCM under a key that follows from SECRET_KEY and from the purpose.

Whoever has a copy of the database but not SECRET_KEY reads none of them, and can't put one in another's
place.
"""

import base64
import hashlib
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

NONCE_BYTES = 12


class UnsealableError(ValueError):
    """What was kept was sealed under another SECRET_KEY or for something else, or was changed."""


def seal(plain: bytes, purpose: str, owner: str = "") -> str:
    """Encrypted, as text. The owner (a row's name) is bound to it: under another it can't be opened."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return base64.b64encode(nonce + _cipher(purpose).encrypt(nonce, plain, owner.encode())).decode()


def unseal(sealed: str, purpose: str, owner: str = "") -> bytes:
    """What was sealed. Raises UnsealableError."""
    try:
        raw = base64.b64decode(sealed, validate=True)
        return _cipher(purpose).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], owner.encode())
    except (InvalidTag, ValueError) as error:
        raise UnsealableError(f"{purpose} can't be read under this SECRET_KEY.") from error


def compute_keyed_digest(secret: str, purpose: str) -> str:
    """A digest that only who has SECRET_KEY can compute, for short secrets that are compared, never read."""
    return hashlib.blake2b(secret.encode(), key=_key(f"digest of {purpose}"), digest_size=32).hexdigest()


def _cipher(purpose: str) -> AESGCM:
    return AESGCM(_key(purpose))


def _key(purpose: str) -> bytes:
    derived = HKDF(SHA256(), 32, salt=None, info=f"weir {purpose}".encode())
    return derived.derive(settings.SECRET_KEY.encode())
