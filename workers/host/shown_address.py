"""What those may see of an address who may not change it: in a password, a path or a query there may be a
key, as in the addresses that chats give out.
"""

from urllib.parse import urlsplit

HIDDEN = "…"


def mask_address(url: str) -> str:
    """Scheme, host and port, and HIDDEN for whatever is behind them; of what is no address HIDDEN alone."""
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
