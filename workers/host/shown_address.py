"""The part of an address that is shown to readers who may not change it.

A password, a path, or a query may be a key, as in webhook addresses of chats.
"""

from urllib.parse import urlsplit

HIDDEN = "…"


def mask_address(url: str) -> str:
    """Return scheme, host, and port, with HIDDEN for the rest; for an invalid address only HIDDEN."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return HIDDEN
    if not parts.scheme:
        return HIDDEN
    host = parts.hostname or ""
    server = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"
    return f"{server}/{HIDDEN}" if parts.path.strip("/") or parts.query or parts.fragment else server
