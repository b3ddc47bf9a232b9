"""The address of the console's page (`--host`), how this machine reaches it, and its names for others.

An announced address must answer.
"""

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

LOOPBACK = "127.0.0.1"
# Listens on every address of the machine; it is no address itself.
WILDCARDS = {"0.0.0.0": LOOPBACK, "::": "::1"}


@dataclass(frozen=True)
class PageAddress:
    """host: an address or a name of this machine, or a wildcard."""

    host: str
    port: int

    @property
    def probed(self) -> str:
        """Return the address by which this machine reaches the page."""
        return f"http://{_bracket_host(WILDCARDS.get(self.host, self.host))}:{self.port}"

    @property
    def announced(self) -> str:
        """Return the address for people."""
        name = "localhost" if self.host == LOOPBACK else self.host
        name = socket.gethostname() if self.host in WILDCARDS else name
        return f"http://{_bracket_host(name)}:{self.port}/"

    def list_names(self) -> list[str]:
        """Return the permitted host names, beside those of the loopback address."""
        hosts = [self.host] if self.host not in WILDCARDS else [*_list_host_names(), *_list_addresses()]
        return list(dict.fromkeys(map(_bracket_host, hosts)))

    def is_free(self) -> bool:
        """Return whether the page can listen there: the address is this machine's, and the port is free."""
        try:
            ((family, kind, _, _, address), *_) = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError:
            return False
        return True


def _list_host_names() -> Iterator[str]:
    yield socket.gethostname()
    yield socket.getfqdn()


def _list_addresses() -> Iterator[str]:
    for rows in psutil.net_if_addrs().values():
        for row in rows:
            # A link-local address includes the interface's name, which no browser sends.
            if row.family in (socket.AF_INET, socket.AF_INET6) and "%" not in row.address:
                yield row.address


def _bracket_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
