"""Creation of the handler that a queue's `handler` names."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from common.errors import BadInput
from workers.consumer.handlers.emulate import Emulate
from workers.consumer.handlers.handler import Handler, Place
from workers.consumer.handlers.noop import Noop
from workers.consumer.handlers.options import Options
from workers.consumer.handlers.parquet import Parquet
from workers.consumer.handlers.python import Python
from workers.consumer.handlers.sql import Sql
from workers.consumer.handlers.webhook import Webhook

HANDLERS: dict[str, Callable[[Place, Options], Handler]] = {
    "emulate": Emulate,
    "noop": Noop,
    "parquet": Parquet,
    "sql": Sql,
    "webhook": Webhook,
}
PYTHON = "python:"


def build(name: str, options: Mapping[str, Any], place: Place) -> Handler:
    """Return a handler with validated options.

    Raises BadInput naming `handler` or `handler_options.…`; nothing is opened yet.
    """
    if name.startswith(PYTHON):
        return Python(place, Options("python", options), name.removeprefix(PYTHON))
    if name not in HANDLERS:
        known = ", ".join([*sorted(HANDLERS), "python:dotted.path"])
        raise BadInput("handler", f"must be one of {known}, not {name!r}.")
    return HANDLERS[name](place, Options(name, options))


def get_handler(queue: str, name: str, options: Mapping[str, Any], data: Path) -> Handler:
    """Return a handler that is cached for the life of the process, for its connections.

    Changed options create a new one.
    """
    return _load_handler(queue, name, json.dumps(options, sort_keys=True), data)


@lru_cache(maxsize=64)
def _load_handler(queue: str, name: str, options: str, data: Path) -> Handler:
    return build(name, json.loads(options), Place(queue, data))
