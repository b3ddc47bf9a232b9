"""The destination of a queue's events, in a word or two and without secrets, for maps and lists."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

NOWHERE = "nowhere"


def get_sink_name(handler: str, options: Mapping[str, Any]) -> str:
    """Return `archive`, a table, a host, a function; for an unknown handler its own name."""
    if handler.startswith("python:"):
        return handler.rsplit(".", 1)[-1]
    if handler == "webhook":
        # Only the host: an address may have names and passwords.
        return urlsplit(str(options.get("url", ""))).hostname or "webhook"
    if handler == "sql":
        return f"table {options.get('table') or 'handled'}"
    return {"parquet": "archive", "emulate": NOWHERE, "noop": NOWHERE}.get(handler, handler)
