"""The addresses that people may enter for the sql handler, and how a worker connects to them.

| form | takes |
|---|---|
| `sqlite:///path` | `handled.sqlite3` in the data folder, or a file `.sqlite3` below its folder `handled` |
| `postgresql://user@host:port/name` | no password, no parameters, one host, on PostgreSQL's port or another |
| | that the policy of typed addresses (`workers.host.egress`) allows; no login of the host is sent |

The host's own files and database may use more forms. The egress policy checks each of them, with every server that it
names, at every connection; a socket of this machine counts as loopback. An address in an environment variable
(`url_environment`) belongs to the host and is not checked.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from common.errors import BadInput, Forbidden
from workers.host import egress

FIELD = "handler_options.url"
PORT = 5432
SCHEMES = {"postgres": PORT, "postgresql": PORT}
# libpq adds values from its environment: PGPASSWORD, PGPASSFILE, ~/.pgpass, a service, a ticket, a
# certificate. They belong to the host, and a server that a person chose must not receive them.
NO_LOGIN_OF_THE_HOST: dict[str, Any] = {
    "password": "",
    "passfile": "/nonexistent",
    "require_auth": "none",
    "gssencmode": "disable",
    "sslcertmode": "disable",
}
FOLDER, FILE = "handled", "handled.sqlite3"
CONNECT_SECONDS = 10
SOCKETS = ("/", "@")
LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
# libpq options that add hosts which are not in the address.
NAMES_HOSTS = frozenset({"service", "servicefile", "oauth_issuer"})
HIDES_HOSTS = (
    "may lead to any host; write the host in the address, or move the address to a variable that url_environment names."
)
UNREADABLE = (
    "PostgreSQL cannot parse the address; encode special characters of its password as in any URL:"
    " @ as %40, % as %25, / as %2F, [ as %5B."
)
SERVER = (
    "must be postgresql://user@host:port/name without a password or parameters; move any other address to a"
    " variable that url_environment names."
)
FILES = f"must be the SQLite file {FILE} in the data folder, or a .sqlite3 file below its folder {FOLDER}."


def check_typed(url: object, data: Path) -> None:
    """Raise BadInput unless a person may enter it."""
    text = url if isinstance(url, str) else ""
    if text.startswith("sqlite:"):
        _check_file(text, data)
    else:
        parse_server(text)


def _check_file(url: str, data: Path) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    try:
        meant, home = path.resolve(), data.resolve()
    except (OSError, RuntimeError, ValueError):
        raise Forbidden(FIELD, FILES) from None
    is_below = home / FOLDER in meant.parents and meant.suffix == ".sqlite3"
    if not path.is_absolute() or not (meant == home / FILE or is_below):
        raise Forbidden(FIELD, FILES)


def parse_server(url: str) -> tuple[str, int]:
    """Return host and port of an address that a person may enter. Raises BadInput for any other."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadInput(FIELD, SERVER) from None
    user, _, place = parts.netloc.rpartition("@")
    if set("?#\\") & set(url) or set(":%@") & set(user) or set("%,") & set(place):
        raise Forbidden(FIELD, SERVER)
    if not re.fullmatch(r"/?[\w.-]*", parts.path):
        raise Forbidden(FIELD, SERVER)
    parsed = egress.check_url(f"{parts.scheme}://{place}", FIELD, SCHEMES)
    return parsed.host, parsed.port or PORT


def open_own(url: str) -> psycopg.Connection:
    """Connect to an address from the environment.

    Raises psycopg.OperationalError, which quotes no password.
    """
    _parse_parameters(url)
    return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)


def connect(url: str, addresses_of: Callable[..., list[str]] = egress.resolve_allowed_addresses) -> psycopg.Connection:
    """Connect to a URL of a queue's options, at addresses that the egress policy allows now.

    The policy and the meaning of names may have changed since the URL was written. libpq receives only addresses, so a
    name cannot lead elsewhere. A refused or unknown host does not prevent attempts with the URL's other hosts. Raises
    AddressRefused and psycopg.Error.
    """
    parameters = _parse_parameters(url)
    if elsewhere := sorted(NAMES_HOSTS & parameters.keys()):
        raise egress.AddressRefused(f"The option {elsewhere[0]} of the address {HIDES_HOSTS}")
    allowed: list[tuple[str, int, str]] = []
    refused: list[egress.AddressRefused] = []
    for host, hostaddr, port in _list_servers(parameters):
        try:
            if not hostaddr and (not host or host.startswith(SOCKETS)):
                _check_socket(host)
                allowed.append((host, port, ""))
            else:
                resolved = addresses_of(hostaddr or host, port, ports=frozenset({PORT}))
                allowed += [(host or address, port, address) for address in resolved]
        except egress.AddressRefused as error:
            refused.append(error)
    if not allowed:
        raise refused[0] if refused else psycopg.OperationalError(UNREADABLE)
    hosts, ports, addresses = zip(*allowed, strict=True)
    return psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS,
        host=",".join(hosts),
        port=",".join(map(str, ports)),
        hostaddr=",".join(addresses),
        **(NO_LOGIN_OF_THE_HOST if _may_be_typed(url) else {}),
    )


def _may_be_typed(url: str) -> bool:
    """Return whether the URL has the form that a person may enter."""
    try:
        parse_server(url)
    except BadInput:
        return False
    return True


def _parse_parameters(url: str) -> dict[str, str]:
    """Return libpq's parameters. Raises OperationalError instead of an error that quotes the password.

    PostgreSQL treats the text after an @ in a password as the host.
    """
    try:
        parameters = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (psycopg.ProgrammingError, UnicodeDecodeError):
        raise psycopg.OperationalError(UNREADABLE) from None
    if "@" in parameters.get("host", "")[1:]:  # an abstract socket of this machine starts with it
        raise psycopg.OperationalError(UNREADABLE)
    return parameters


def _list_servers(parameters: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """Return host, hostaddr, and port of each server: libpq accepts lists, and one port for all of them."""
    hosts, addresses, ports = (parameters.get(key, "").split(",") for key in ("host", "hostaddr", "port"))
    count = max(len(hosts), len(addresses))
    ports = ports * count if len(ports) == 1 else ports
    if any(len(values) not in (count, 1) for values in (hosts, addresses, ports)):
        raise psycopg.OperationalError(UNREADABLE)
    hosts, addresses = (values if len(values) == count else values * count for values in (hosts, addresses))
    try:
        return [(host, address, int(port or PORT)) for host, address, port in zip(hosts, addresses, ports, strict=True)]
    except ValueError:
        raise psycopg.OperationalError(UNREADABLE) from None


def _check_socket(host: str) -> None:
    """Raise AddressRefused for a socket of this machine unless the policy allows loopback."""
    if why := egress.explain_refusal(LOOPBACK):
        raise egress.AddressRefused(f"The socket {host or '(default)'} {why}")
