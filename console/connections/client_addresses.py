"""Client addresses: parsing, trusted proxies, and counting.

A provider gives each IPv6 customer at least one /64, so every limit counts that network as one address.
"""

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
COUNTED_PREFIX = 64  # bits


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks in `text`, separated by spaces or commas. Raises `ValueError`."""
    return tuple(ipaddress.ip_network(word) for word in text.replace(",", " ").split())


def read_address(text: str) -> Address | None:
    """Return the address in `text`, without its port or interface, or None. IPv4 in IPv6 is read as IPv4."""
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


def is_within(text: str, networks: Iterable[Network]) -> bool:
    """Return whether `text` is an address of one of the networks."""
    address = read_address(text)
    return address is not None and any(address in network for network in networks)


def normalize_address(text: str | None) -> str:
    """Return the address that limits count `text` as: IPv4 as it is, of IPv6 the first address of its /64.

    Return "" for an unreadable address, which limits can't count.
    """
    address = read_address(text or "")
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, COUNTED_PREFIX), strict=False).network_address)
    return "" if address is None else str(address)
