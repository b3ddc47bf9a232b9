"""The handlers that a queue's `handler` may name, and the settings that people may enter for them.

Every subclass of `Handler` in a module of `workers.consumer.handlers` is a handler, under its name in lower case.
"""

import importlib
import json
import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from common.errors import BadInput
from workers.consumer import handlers
from workers.consumer.handler import Handler, Options, Place
from workers.consumer.handlers import sql
from workers.consumer.handlers.python import Python
from workers.host import environment
from workers.host.egress import HIDDEN, mask_address

PLAIN = frozenset({"table", "takes", "per", "distribution", "compression", "destination"})  # texts that are no secret


def check(handler: str, options: object, data: Path) -> None:
    """Raise BadInput naming `handler` or `handler_options.…` for settings that only the host may make.

    Nothing is imported, opened, or connected to.
    """
    if handler.startswith(PYTHON):
        environment.check_handler_path(handler.removeprefix(PYTHON), "handler")
    if handler == "sql" and isinstance(options, Mapping) and "url" in options:
        sql.check_typed(options["url"], data)


def remove_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for the audit log, with only the host of addresses and the names of secrets."""
    shown: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            shown[name] = dict.fromkeys(value, HIDDEN)
        elif not isinstance(value, str) or name in PLAIN or name.endswith("_environment"):
            shown[name] = HIDDEN if isinstance(value, list) else value
        else:
            shown[name] = mask_address(value) if name == "url" else HIDDEN
    return shown


def find_handlers() -> dict[str, type[Handler]]:
    prefix = f"{handlers.__name__}."
    modules = [importlib.import_module(found.name) for found in pkgutil.iter_modules(handlers.__path__, prefix)]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    own = (kind for kind in kinds if issubclass(kind, Handler) and kind.__module__.startswith(prefix))
    return {kind.__name__.lower(): kind for kind in own if kind is not Python}


PYTHON = "python:"
HANDLERS = find_handlers()


def build(name: str, options: Mapping[str, Any], place: Place) -> Handler:
    """Return a handler with validated options, not yet opened. Raises BadInput naming `handler` or its option."""
    if name.startswith(PYTHON):
        return Python(place, Options("python", options), name.removeprefix(PYTHON))
    if name not in HANDLERS:
        known = ", ".join([*sorted(HANDLERS), "python:dotted.path"])
        raise BadInput("handler", f"must be one of {known}, not {name!r}.")
    return HANDLERS[name](place, Options(name, options))


def get_handler(queue: str, name: str, options: Mapping[str, Any], data: Path) -> Handler:
    """Return a handler, cached with its connections for the life of the process, and anew for changed options."""
    return _load_handler(queue, name, json.dumps(options, sort_keys=True), data)


@lru_cache(maxsize=64)
def _load_handler(queue: str, name: str, options: str, data: Path) -> Handler:
    return build(name, json.loads(options), Place(queue, data))
