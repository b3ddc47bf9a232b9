"""OpenID Connect providers as Keycloak, Auth0 and Entra ID answer: their keys, algorithms and groups."""

import base64
import json
import time
from typing import Any

import jwt
import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from django.core.exceptions import SuspiciousOperation
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from console.accounts import identity_provider, identity_settings
from console.accounts.identity_provider import Backend

ISSUER = "https://id.shop.example/realms/shop"
ENVIRONMENT = {
    "WEIR_OIDC_ISSUER": ISSUER,
    "WEIR_OIDC_CLIENT_ID": "weir",
    "WEIR_OIDC_CLIENT_SECRET": "a secret of 32 bytes or more, so that HS256 takes it",
    "WEIR_OIDC_ROLES": "ops=operator",
}
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
EC_KEYS = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
}
ED_KEY = ed25519.Ed25519PrivateKey.generate()
RSA_ALGORITHMS = [f"{family}{bits}" for family in ("RS", "PS") for bits in (256, 384, 512)]
PRIVATE: dict[str, Any] = {**dict.fromkeys(RSA_ALGORITHMS, RSA_KEY), **EC_KEYS, "EdDSA": ED_KEY}


def public(algorithm: str, **members: Any) -> dict[str, Any]:
    """The public key of an algorithm as it stands in the provider's set of keys."""
    kind: Any = RSAAlgorithm if algorithm in RSA_ALGORITHMS else ECAlgorithm
    kind = OKPAlgorithm if algorithm == "EdDSA" else kind
    made = {**json.loads(kind.to_jwk(PRIVATE[algorithm].public_key())), **members}
    if "key_ops" not in members:
        made.pop("key_ops", None)
    return {name: value for name, value in made.items() if value is not None}


def token(algorithm: str, kid: str | None = "k1", key: Any = None, **claims: Any) -> str:
    now = int(time.time())
    told = {"iss": ISSUER, "aud": "weir", "sub": "s", "iat": now, "exp": now + 60, "nonce": "n", **claims}
    headers = {"kid": kid} if kid else {}
    return jwt.encode(told, PRIVATE.get(algorithm, "") if key is None else key, algorithm, headers=headers)


@pytest.fixture
def provider(settings, monkeypatch):
    """What the provider describes and which keys it has; the test changes them."""
    settings.WEIR_OIDC = identity_settings.read(ENVIRONMENT)
    described: dict[str, Any] = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/certs", "keys": []}

    def get(address: str, **_: Any) -> requests.Response:
        assert address == described["jwks_uri"]
        answer = requests.Response()
        answer.status_code = 200
        answer._content = json.dumps({"keys": described["keys"]}).encode()
        return answer

    monkeypatch.setattr(identity_provider, "discover", lambda: described)
    monkeypatch.setattr(identity_provider.requests, "get", get)
    return described


def accepted(text: str) -> dict[str, Any]:
    return Backend().verify_token(text, nonce="n")


OFFERED = "id_token_signing_alg_values_supported"


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_every_asymmetric_algorithm_that_is_offered_is_accepted(algorithm, provider):
    provider[OFFERED] = ["RS256", "HS256", "none", *PRIVATE]
    provider["keys"] = [public("RS256", kid="other", alg="RS256"), public(algorithm, kid="k1", use="sig")]
    assert accepted(token(algorithm))["sub"] == "s"
    provider["keys"] = [public(algorithm, kid="k1", alg=algorithm, key_ops=["verify"])]
    assert accepted(token(algorithm))["sub"] == "s"


def test_an_algorithm_that_is_not_offered_is_refused(provider):
    provider[OFFERED] = ["RS256", "ES256"]
    provider["keys"] = [public("ES384", kid="k1"), public("PS256", kid="k2")]
    for text in (token("ES384"), token("PS256", "k2")):
        with pytest.raises(SuspiciousOperation, match="not offered by the provider"):
            accepted(text)


def hmac_with_public_key(text: bytes) -> str:
    """A token whose HMAC key is the provider's public key: what an attacker can make."""
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "k1"}).encode()).rstrip(b"=")
    body = token("RS256").split(".")[1].encode()
    mac = jwt.get_algorithm_by_name("HS256")
    mark = mac.sign(head + b"." + body, text)
    return b".".join([head, body, base64.urlsafe_b64encode(mark).rstrip(b"=")]).decode()


def test_no_confusion_of_algorithms_makes_a_token_that_counts(provider):
    provider[OFFERED] = ["RS256", "PS256", "ES256", "HS256", "none"]
    provider["keys"] = [
        public("RS256", kid="k1", alg="RS256"),
        public("ES256", kid="k2"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k3"},
    ]
    pem = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    secret = ENVIRONMENT["WEIR_OIDC_CLIENT_SECRET"]
    attacks = [
        hmac_with_public_key(pem),
        token("HS256", key=secret),
        token("HS256", "k3", key="secret" * 8),
        token("none", key=""),
        token("PS256", "k1"),  # the key is for RS256 alone
        token("RS256", "k2"),  # named with a key of another kind
        token("ES256", "k2", key=ec.generate_private_key(ec.SECP256R1())),
    ]
    for text in attacks:
        with pytest.raises((SuspiciousOperation, jwt.PyJWTError)):
            accepted(text)


def test_a_key_that_was_changed_is_found_at_the_next_login(provider):
    provider["keys"] = [public("RS256", kid="k1")]
    accepted(token("RS256"))
    provider[OFFERED] = ["RS256", "ES256"]
    provider["keys"] = [public("ES256", kid="k2")]
    assert accepted(token("ES256", "k2"))["sub"] == "s"
    with pytest.raises(SuspiciousOperation, match="not have exactly one key"):
        accepted(token("RS256"))


def test_the_nonce_must_be_that_of_this_login(provider):
    provider["keys"] = [public("RS256", kid="k1")]
    for nonce in ("of another login", None, ""):
        with pytest.raises(SuspiciousOperation, match="another login"):
            Backend().verify_token(token("RS256", nonce=nonce), nonce="n" if nonce is None else None)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ('"Domain Admins"=administrator ops=operator', {"Domain Admins": "administrator", "ops": "operator"}),
        ("'Domain Admins=administrator' ops=operator", {"Domain Admins": "administrator", "ops": "operator"}),
        ("Domain%20Admins=administrator ops=operator", {"Domain Admins": "administrator", "ops": "operator"}),
        ('"CN=Domain Admins,OU=Shop"=viewer', {"CN=Domain Admins,OU=Shop": "viewer"}),
        (r"SHOP\ops=operator", {r"SHOP\ops": "operator"}),
        ("100%=viewer", {"100%": "viewer"}),
        ("/shop/ops#1=operator\n\tadmins=administrator", {"/shop/ops#1": "operator", "admins": "administrator"}),
    ],
)
def test_a_group_is_written_with_blanks_and_signs(text, roles):
    assert identity_settings.read({**ENVIRONMENT, "WEIR_OIDC_ROLES": text})["roles"] == roles


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Domain Admins=administrator", "Quote a group that contains spaces"),
        ('"Domain Admins=administrator', "unclosed"),
        ("=operator", "group=role pairs"),
        ("%=king", "king"),
        ("ops=operator ops=viewer", "two roles"),
        (" ", "at least one"),
    ],
)
def test_roles_that_can_not_be_read_say_how_they_are_written(text, why):
    with pytest.raises(ValueError, match=why) as caught:
        identity_settings.read({**ENVIRONMENT, "WEIR_OIDC_ROLES": text})
    assert "WEIR_OIDC_ROLES" in str(caught.value)
