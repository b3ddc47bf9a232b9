"""Websockets are only accepted from our own pages: browsers send cookies with requests of any page."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from console.accounts.access import parse_bearer_secret


class SameOrigin:
    """Rejects a handshake whose Origin is not the requested host; without an Origin a token is required."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}
        if is_ours(headers):
            await self.application(scope, receive, send)
        else:
            await refuse(scope, receive, send)


def is_ours(headers: dict[str, str]) -> bool:
    host = headers.get("host", "")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    origin = headers.get("origin")
    if origin is None:
        # Not a browser, so no cookie was attached without the user's intention; a token identifies the
        # caller.
        return parse_bearer_secret(headers.get("authorization")) is not None
    try:
        parts = urlsplit(origin)
    except ValueError:  # such as http://[
        return False
    # A page over http may have been modified on the way: if our cookies require https, so does an origin.
    schemes = ("https",) if settings.SESSION_COOKIE_SECURE else ("http", "https")
    return parts.scheme in schemes and parts.netloc.lower() == host.lower()


async def refuse(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Deny the handshake: the server answers 403."""
    await receive()
    await send({"type": "websocket.close", "code": 4403})
