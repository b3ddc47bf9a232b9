"""The client of a connection: the peer itself, or, behind a trusted proxy, the client that the proxy names.

`X-Forwarded-For` is trusted only as far as the proxies in WEIR_TRUSTED_PROXIES wrote it: read from the right, the first
address that is none of them is the client; addresses further left may be forged. Without trusted proxies the header has
no effect.
"""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port

from console.connections.client_addresses import Network, is_within, parse_networks, read_address
from console.web.asgi_types import Application, Receive, Scope, Send

LOOPBACK = parse_networks("127.0.0.0/8 ::1")
FOR, PROTO = b"x-forwarded-for", b"x-forwarded-proto"
VIA_PROXY = "weir.via_trusted_proxy"  # in the scope of a connection
# Headers that proxies add. Anybody may send them, but a request with one may have passed a proxy.
FORWARDING = ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via")
SECURE = {"http": "https", "websocket": "wss"}


class TrustedProxies:
    """Sets a connection's client and scheme before other code uses them."""

    def __init__(self, application: Application, networks: Iterable[Network]) -> None:
        self.application, self.networks = application, tuple(networks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.application(self.rewrite_scope(scope) if scope["type"] in SECURE else scope, receive, send)

    def rewrite_scope(self, scope: Scope) -> dict[str, Any]:
        """Return the scope with proxies taken into account."""
        peer = scope.get("client")
        if not peer:
            return scope
        if "%" in peer[0]:  # the interface of a link-local address, which databases reject
            peer = (peer[0].partition("%")[0], *peer[1:])
            scope = {**scope, "client": peer}
        if not is_within(peer[0], self.networks):
            return scope
        hops = ",".join(_list_header_values(scope, FOR)).split(",")
        result = {**scope, "client": (self._find_client(peer[0], hops), peer[1]), VIA_PROXY: True}
        if [value.strip().lower() for value in _list_header_values(scope, PROTO)][-1:] == ["https"]:
            result["scheme"] = SECURE[scope["type"]]
        return result

    def _find_client(self, peer: str, hops: list[str]) -> str:
        """Return the right-most hop that is no trusted proxy; an unreadable one ends the search."""
        client = peer
        for hop in reversed(hops):
            address = read_address(hop)
            if address is None:
                return client
            client = str(address)
            if not is_within(client, self.networks):
                return client
        return client


def _list_header_values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin1") for name, value in scope["headers"] if name.lower() == header]


def is_via_trusted_proxy(request: HttpRequest) -> bool:
    """Return whether a trusted proxy sent the request, so that the headers it sets may be believed."""
    return bool(getattr(request, "scope", {}).get(VIA_PROXY))


def is_direct_from_this_host(request: HttpRequest) -> bool:
    """Return whether the request certainly comes from this host itself, and not through a proxy on this host.

    The peer and the requested name are loopback, no proxy is configured, and no proxy header is present.
    """
    if settings.WEIR_TRUSTED_PROXIES or any(name in request.headers for name in FORWARDING):
        return False
    host = split_domain_port(request.headers.get("Host", ""))[0].strip("[]")
    peer = request.META.get("REMOTE_ADDR") or ""
    return is_within(peer, LOOPBACK) and (host == "localhost" or is_within(host, LOOPBACK))
