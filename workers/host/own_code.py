"""Code of the host that people may name: `python:dotted.path` as a queue's handler or a task's job.

Naming a path imports its module, and a worker calls the object, so a person who may name any path may run anything.
Pages and the API accept only what WEIR_HANDLERS lists, or what is below that. The host's own files and commands are not
restricted.
"""

from common import environment as variables
from common.errors import Forbidden


def list_handler_prefixes() -> list[str]:
    """Return the listed prefixes of the environment: packages, modules, or whole paths."""
    return variables.HANDLERS.get_text().replace(",", " ").split()


def check_path(path: str, field: str) -> None:
    """Raise Forbidden naming the field, before anything is imported, unless the host allows the path."""
    allowed = list_handler_prefixes()
    if not any(path == prefix or path.startswith(f"{prefix}.") for prefix in allowed):
        listed = ", ".join(allowed) or "none"
        name = variables.HANDLERS.name
        raise Forbidden(field, f"python:{path[:80]} is not listed in {name} ({listed}); add it there to allow it.")
