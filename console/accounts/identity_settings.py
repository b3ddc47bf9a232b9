"""The OpenID Connect provider as the environment names it, checked when the settings are read."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

NEEDED = ("WEIR_OIDC_CLIENT_ID", "WEIR_OIDC_CLIENT_SECRET", "WEIR_OIDC_ROLES")
ROLES = ("viewer", "operator", "administrator")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def read(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """None without WEIR_OIDC_ISSUER. Raises ValueError saying which variable takes what."""
    issuer = environment.get("WEIR_OIDC_ISSUER", "").rstrip("/")
    if not issuer:
        return None
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ValueError("WEIR_OIDC_ISSUER takes an address that begins with https://.")
    if missing := [each for each in NEEDED if not environment.get(each)]:
        raise ValueError(f"{', '.join(missing)} must be set where WEIR_OIDC_ISSUER is.")
    return {
        "issuer": issuer,
        "client_id": environment["WEIR_OIDC_CLIENT_ID"],
        "client_secret": environment["WEIR_OIDC_CLIENT_SECRET"],
        "groups_claim": environment.get("WEIR_OIDC_GROUPS", "groups"),
        "scopes": environment.get("WEIR_OIDC_SCOPES", "openid profile email"),
        "roles": _roles(environment["WEIR_OIDC_ROLES"]),
    }


def _roles(text: str) -> dict[str, str]:
    pairs = [each.rpartition("=") for each in text.split()]
    if not pairs or any(not group or role not in ROLES for group, _, role in pairs):
        raise ValueError(
            f"WEIR_OIDC_ROLES takes group=role pairs such as ops=operator, of {', '.join(ROLES)}."
        )
    return {group: role for group, _, role in pairs}
