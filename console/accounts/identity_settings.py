"""The OpenID Connect provider in the environment, validated when the settings are read."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from common import environment as variables

NEEDED = (variables.OIDC_CLIENT_ID, variables.OIDC_CLIENT_SECRET, variables.OIDC_ROLES)
ROLES = ("viewer", "operator", "administrator")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def read(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the provider's settings; None without WEIR_OIDC_ISSUER. Raises `ValueError` that names the variable."""
    issuer = variables.OIDC_ISSUER.get_text(environment).rstrip("/")
    if not issuer:
        return None
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ValueError("WEIR_OIDC_ISSUER must be an address that starts with https://.")
    if missing := [name.name for name in NEEDED if not name.is_set(environment)]:
        raise ValueError(f"{', '.join(missing)} must be set if WEIR_OIDC_ISSUER is set.")
    return {
        "issuer": issuer,
        "client_id": variables.OIDC_CLIENT_ID.get_text(environment),
        "client_secret": variables.OIDC_CLIENT_SECRET.get_text(environment),
        "groups_claim": variables.OIDC_GROUPS.get_text(environment),
        "scopes": variables.OIDC_SCOPES.get_text(environment),
        "roles": _parse_group_roles(variables.OIDC_ROLES.get_words(environment)),
    }


def _parse_group_roles(words: list[str]) -> dict[str, str]:
    """Return {group: role}. A group may be quoted or have %20 for a space, and may contain `=`."""
    roles: dict[str, str] = {}
    for word in words:
        group, _, role = word.rpartition("=")
        group = unquote(group)
        if not group or role not in ROLES:
            raise ValueError(
                f"WEIR_OIDC_ROLES must have group=role pairs with a role of {', '.join(ROLES)}, "
                f"not {word[:60]!r}. "
                'Example: ops=operator. Quote a group that contains spaces: "Domain Admins"=administrator.'
            )
        if roles.setdefault(group, role) != role:
            raise ValueError(f"WEIR_OIDC_ROLES gives the group {group[:60]!r} two roles. Give it one role.")
    if not roles:
        raise ValueError("WEIR_OIDC_ROLES must have at least one group=role pair, such as ops=operator.")
    return roles
