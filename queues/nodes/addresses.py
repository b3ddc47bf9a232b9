"""The login of this process at the nodes, where users are known by role (`queues.nodes.server_roles`).

A node's URL in the topology then names no user, since every reader of the topology could act as that user. Each process
has its own login in WEIR_NODE_LOGIN (user:password), which is in no document.
"""

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from common import checks
from common import environment as variables
from common.errors import BadInput
from queues.control.address import is_of_one_server


def add_login(url: str, environment: Mapping[str, str] = variables.PROCESS) -> str:
    """Return the URL with this process's login. A URL that has its own login stays as it is."""
    login = variables.NODE_LOGIN.get_text(environment)
    parts = urlsplit(url)
    if not login or "@" in parts.netloc:
        return url
    user, _, password = login.partition(":")
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}").geturl()


# A list of nodes in the format of `WEIR_NODES`.
#
# Without Django: the launcher reads it before it starts anything.

TAKES = "name=redis://host:port/0 pairs, separated by spaces"


def parse_nodes(text: str) -> dict[str, str]:
    """Parse `n1=redis://… n2=redis://…` to {name: url}.

    Raises `BadInput` that says which part is wrong, and never quotes it: an address may contain a password.
    """
    nodes: dict[str, str] = {}
    for place, part in enumerate(text.split(), 1):
        name, _, url = part.partition("=")
        if not checks.QUEUE_NAME.match(name) or not is_of_one_server(url):
            raise BadInput(variables.NODES.name, f"must be {TAKES}. Part {place} is invalid.")
        if name in nodes:
            raise BadInput(variables.NODES.name, f"names {name} twice. Give each node a different name.")
        nodes[name] = url
    return nodes
