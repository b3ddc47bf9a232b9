"""Who is at the other end: the peer itself, or, behind a proxy of ours, whom that proxy says it serves.

`X-Forwarded-For` is believed only as far as the proxies named in WEIR_TRUSTED_PROXIES wrote it: read from
the right, the first address that is none of them is the client; what stands further left anybody may have
made up. Without trusted proxies the header changes nothing.
"""

import ipaddress
from collections.abc import Iterable
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FOR, PROTO = b"x-forwarded-for", b"x-forwarded-proto"
SECURE = {"http": "https", "websocket": "wss"}


def networks_of(text: str) -> tuple[Network, ...]:
    """The networks of WEIR_TRUSTED_PROXIES, separated by spaces or commas. Raises ValueError for another."""
    return tuple(ipaddress.ip_network(each) for each in text.replace(",", " ").split())


class TrustedProxies:
    """Sets a connection's client and scheme before anything asks for them."""

    def __init__(self, application: Any, networks: Iterable[Network]) -> None:
        self.application, self.networks = application, tuple(networks)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await self.application(self.seen(scope) if scope["type"] in SECURE else scope, receive, send)

    def seen(self, scope: dict[str, Any]) -> dict[str, Any]:
        """The scope as it is with proxies taken into account."""
        peer = scope.get("client")
        if not peer:
            return scope
        if "%" in peer[0]:  # the interface of a link-local address, which no database takes for an address
            peer = (peer[0].partition("%")[0], *peer[1:])
            scope = {**scope, "client": peer}
        if not self._is_trusted(_address(peer[0])):
            return scope
        hops = ",".join(_values(scope, FOR)).split(",")
        result = {**scope, "client": (self._client(peer[0], hops), peer[1])}
        if [each.strip().lower() for each in _values(scope, PROTO)][-1:] == ["https"]:
            result["scheme"] = SECURE[scope["type"]]
        return result

    def _client(self, peer: str, hops: list[str]) -> str:
        """The right-most hop that is no proxy of ours; what can't be read ends the search."""
        client = peer
        for hop in reversed(hops):
            address = _address(hop)
            if address is None:
                return client
            client = str(address)
            if not self._is_trusted(address):
                return client
        return client

    def _is_trusted(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self.networks)


def _values(scope: dict[str, Any], header: bytes) -> list[str]:
    return [value.decode("latin1") for name, value in scope["headers"] if name.lower() == header]


def _address(text: str) -> Address | None:
    """The address of a hop, with or without a port; IPv4 in IPv6 as IPv4. None for anything else."""
    text = text.strip().partition("%")[0]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def address_of(request: Any) -> str | None:
    """Whom a request is from, for django-axes: its own way may read headers."""
    found: str | None = request.META.get("REMOTE_ADDR")
    return found
