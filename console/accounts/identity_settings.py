"""The OpenID Connect provider as the environment names it, checked when the settings are read."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from queues import environment as variables

NEEDED = (variables.OIDC_CLIENT_ID, variables.OIDC_CLIENT_SECRET, variables.OIDC_ROLES)
ROLES = ("viewer", "operator", "administrator")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def read(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """None without WEIR_OIDC_ISSUER. Raises ValueError saying which variable takes what."""
    issuer = variables.OIDC_ISSUER.text(environment).rstrip("/")
    if not issuer:
        return None
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ValueError("WEIR_OIDC_ISSUER takes an address that begins with https://.")
    if missing := [each.name for each in NEEDED if not each.is_set(environment)]:
        raise ValueError(f"{', '.join(missing)} must be set where WEIR_OIDC_ISSUER is.")
    return {
        "issuer": issuer,
        "client_id": variables.OIDC_CLIENT_ID.text(environment),
        "client_secret": variables.OIDC_CLIENT_SECRET.text(environment),
        "groups_claim": variables.OIDC_GROUPS.text(environment),
        "scopes": variables.OIDC_SCOPES.text(environment),
        "roles": _roles(variables.OIDC_ROLES.text(environment)),
    }


def _roles(text: str) -> dict[str, str]:
    pairs = [each.rpartition("=") for each in text.split()]
    if not pairs or any(not group or role not in ROLES for group, _, role in pairs):
        raise ValueError(
            f"WEIR_OIDC_ROLES takes group=role pairs such as ops=operator, of {', '.join(ROLES)}."
        )
    return {group: role for group, _, role in pairs}
