"""The login of this process at the nodes, where they know users by role (`queues.nodes.server_roles`).

A node's URL in the topology then names no user: everybody who reads the topology would be that user. Each
process brings its own, in WEIR_NODE_LOGIN (user:password), and it stands in no document.
"""

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from queues import environment as variables


def add_login(url: str, environment: Mapping[str, str] = variables.PROCESS) -> str:
    """The URL with this process's login; one that brings its own stays as it is."""
    login = variables.NODE_LOGIN.text(environment)
    parts = urlsplit(url)
    if not login or "@" in parts.netloc:
        return url
    user, _, password = login.partition(":")
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}").geturl()
