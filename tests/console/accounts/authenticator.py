"""An authenticator in software: it answers as a browser does, and can also answer wrongly."""

import base64
import hashlib
import json
import secrets

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def encode(raw):
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Authenticator:
    """Holds one passkey. origin: of the page that asks; verifies: it asks for a PIN or a fingerprint."""

    def __init__(self, origin="http://localhost", host="localhost", verifies=True, counts=True):
        self.origin, self.host, self.verifies, self.counts = origin, host, verifies, counts
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id, self.handle, self.count = secrets.token_bytes(32), b"", 0

    def register(self, options, discoverable=True):
        """The answer to registration options, as the browser's JSON."""
        self.handle = decode(options["user"]["id"])
        numbers = self.key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)}
        attested = bytes(16) + len(self.id).to_bytes(2) + self.id + cbor2.dumps(cose)
        statement = {"fmt": "none", "attStmt": {}, "authData": self._data(ATTESTED) + attested}
        response = {
            "clientDataJSON": self._client("webauthn.create", options),
            "attestationObject": encode(cbor2.dumps(statement)),
            "transports": ["internal", "hybrid"],
        }
        return self._answer(response, {"credProps": {"rk": discoverable}})

    def prove(self, options, handle=None):
        """The answer to login options, as the browser's JSON."""
        self.count += self.counts
        data, client = self._data(), self._client("webauthn.get", options)
        signature = self.key.sign(data + hashlib.sha256(decode(client)).digest(), ec.ECDSA(SHA256()))
        response = {
            "clientDataJSON": client,
            "authenticatorData": encode(data),
            "signature": encode(signature),
            "userHandle": encode(self.handle if handle is None else handle),
        }
        return self._answer(response, {})

    def _data(self, flags=0):
        flags |= PRESENT | (VERIFIED if self.verifies else 0)
        return hashlib.sha256(self.host.encode()).digest() + bytes([flags]) + self.count.to_bytes(4)

    def _client(self, kind, options):
        document = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return encode(json.dumps(document).encode())

    def _answer(self, response, extensions):
        document = {"id": encode(self.id), "rawId": encode(self.id), "type": "public-key", "response": response}
        return json.dumps({**document, "clientExtensionResults": extensions})
