"""The login of this process at the nodes, where users are known by role (`queues.nodes.server_roles`).

A node's URL in the topology then names no user, since every reader of the topology could act as that user. Each process
has its own login in WEIR_NODE_LOGIN (user:password), which is in no document.
"""

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from common import environment as variables


def add_login(url: str, environment: Mapping[str, str] = variables.PROCESS) -> str:
    """Return the URL with this process's login. A URL that has its own login stays as it is."""
    login = variables.NODE_LOGIN.get_text(environment)
    parts = urlsplit(url)
    if not login or "@" in parts.netloc:
        return url
    user, _, password = login.partition(":")
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}").geturl()
