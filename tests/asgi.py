"""Requests to an ASGI application, as a server hands them on."""

from typing import Any


def scope_of(method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
    """headers: an underscore in a name stands for a dash."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
    }
