"""Where the console's page listens (`--host`), how this machine reaches it there, and by which names others
do: an address that is announced must answer.
"""

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

LOOPBACK = "127.0.0.1"
# Listens on every address of the machine; itself it is nobody's address.
WILDCARDS = {"0.0.0.0": LOOPBACK, "::": "::1"}


@dataclass(frozen=True)
class PageAddress:
    """host: an address or a name of this machine, or a wildcard."""

    host: str
    port: int

    @property
    def probed(self) -> str:
        """The address by which this machine asks the page."""
        return f"http://{_bracket_host(WILDCARDS.get(self.host, self.host))}:{self.port}"

    @property
    def announced(self) -> str:
        """The address for people."""
        name = "localhost" if self.host == LOOPBACK else self.host
        name = socket.gethostname() if self.host in WILDCARDS else name
        return f"http://{_bracket_host(name)}:{self.port}/"

    def names(self) -> list[str]:
        """The host names that may be asked for, beside those of the loopback address."""
        hosts = [self.host] if self.host not in WILDCARDS else [*_names(), *_addresses()]
        return list(dict.fromkeys(map(_bracket_host, hosts)))

    def is_free(self) -> bool:
        """Whether the page can listen there: the address is this machine's, and nobody has the port."""
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


def _names() -> Iterator[str]:
    yield socket.gethostname()
    yield socket.getfqdn()


def _addresses() -> Iterator[str]:
    for rows in psutil.net_if_addrs().values():
        for row in rows:
            # One of a link alone bears the link's name, which no browser sends.
            if row.family in (socket.AF_INET, socket.AF_INET6) and "%" not in row.address:
                yield row.address


def _bracket_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
