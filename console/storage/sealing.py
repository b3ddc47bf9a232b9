"""Secrets that must be read again (one-time password keys, answers to repeated forms), stored encrypted.

AES-256-GCM with a key derived from SECRET_KEY and the purpose. With a copy of the database but not SECRET_KEY, nobody
can read them or move one to another row.
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
    """The stored value was sealed with another SECRET_KEY or for another purpose, or was changed."""


def seal(plain: bytes, purpose: str, owner: str = "") -> str:
    """Return the encrypted text. It is bound to the owner (a row's name): with another one it can't be opened."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return base64.b64encode(nonce + _build_cipher(purpose).encrypt(nonce, plain, owner.encode())).decode()


def unseal(sealed: str, purpose: str, owner: str = "") -> bytes:
    """Return the sealed text. Raises `UnsealableError`."""
    try:
        raw = base64.b64decode(sealed, validate=True)
        return _build_cipher(purpose).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], owner.encode())
    except (InvalidTag, ValueError) as error:
        raise UnsealableError(f"{purpose} can't be read with this SECRET_KEY.") from error


def compute_keyed_digest(secret: str, purpose: str) -> str:
    """Return a digest that requires SECRET_KEY, for short secrets that are compared, never read."""
    return hashlib.blake2b(secret.encode(), key=_derive_key(f"digest of {purpose}"), digest_size=32).hexdigest()


def _build_cipher(purpose: str) -> AESGCM:
    return AESGCM(_derive_key(purpose))


def _derive_key(purpose: str) -> bytes:
    derived = HKDF(SHA256(), 32, salt=None, info=f"weir {purpose}".encode())
    return derived.derive(settings.SECRET_KEY.encode())
