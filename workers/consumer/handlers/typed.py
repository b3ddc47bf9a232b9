"""Handler settings that people may enter on pages and through the API.

They are fewer than in the host's own files.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.consumer.handlers import sql_address
from workers.host import environment
from workers.host.egress import HIDDEN, mask_address

PYTHON = "python:"
PLAIN = frozenset({"table", "takes", "per", "distribution", "compression"})  # texts that are no secret


def check(handler: str, options: Any, data: Path) -> None:
    """Raise BadInput naming `handler` or `handler_options.…` for settings that only the host may make.

    Nothing is imported, opened, or connected to.
    """
    if handler.startswith(PYTHON):
        environment.check_handler_path(handler.removeprefix(PYTHON), "handler")
    if handler == "sql" and isinstance(options, Mapping) and "url" in options:
        sql_address.check_typed(options["url"], data)


def remove_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for the audit log, with only the host of addresses and the names of secrets."""
    return {name: _mask_option(name, value) for name, value in options.items()}


def _mask_option(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if not isinstance(value, str) or name in PLAIN or name.endswith("_environment"):
        return HIDDEN if isinstance(value, list) else value
    return mask_address(value) if name == "url" else HIDDEN
