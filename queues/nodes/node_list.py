"""A list of nodes in the format of `WEIR_NODES`.

Without Django: the launcher reads it before it starts anything.
"""

from common import checks
from common import environment as variables
from common.errors import BadInput
from queues.control.address import is_of_one_server

TAKES = "name=redis://host:port/0 pairs, separated by spaces"


def parse_nodes(text: str) -> dict[str, str]:
    """Parse `n1=redis://… n2=redis://…` to {name: url}.

    Raises `BadInput` that says which part is wrong, and never quotes it: an address may contain a password.
    """
    nodes: dict[str, str] = {}
    for place, part in enumerate(text.split(), 1):
        name, _, url = part.partition("=")
        if not checks.QUEUE_NAME.match(name) or not is_of_one_server(url):
            raise BadInput(variables.NODES.name, f"must be {TAKES}; part {place} is invalid.")
        if name in nodes:
            raise BadInput(variables.NODES.name, f"names {name} twice; give each node a different name.")
        nodes[name] = url
    return nodes
