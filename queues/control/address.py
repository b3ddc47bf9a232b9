"""The forms of REDIS_URL: one server, or the sentinels that know the current primary.

    redis://user:password@host:6379/0
    sentinel://user:password@host1:26379,host2:26379,host3:26379/NAME/0

The second form names sentinels, in any order, and the name under which they monitor the control server. User and
password apply to both: `queues.nodes.server_roles` gives a role the same ones at servers and sentinels.
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from common import environment as variables
from common.errors import BadInput

SENTINEL = "sentinel"
SINGLE = ("redis", "rediss", "unix")
SENTINEL_PORT = 26379
# One that does not answer is skipped: the others know as much.
SENTINEL_SECONDS = 0.5
MAX_DATABASE = 15
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
ONE_SERVER = "redis://user:password@host:6379/0"
FORM = "sentinel://user:password@host1:26379,host2:26379/NAME/0"


@dataclass(frozen=True)
class Sentinels:
    """The sentinels of a replicated control server. `hosts`: (host, port) each; `name`: their name for it."""

    hosts: tuple[tuple[str, int], ...]
    name: str
    database: int = 0
    user: str | None = None
    password: str | None = None

    @property
    def login(self) -> dict[str, Any]:
        """Return the login as redis-py takes it; empty if there is none."""
        given = {"username": self.user, "password": self.password}
        return {name: value for name, value in given.items() if value}

    @property
    def sentinel_options(self) -> dict[str, Any]:
        """Return the options with which redis-py connects to a sentinel."""
        timeouts = {"socket_timeout": SENTINEL_SECONDS, "socket_connect_timeout": SENTINEL_SECONDS}
        return {**self.login, **timeouts, "retry": None}

    @property
    def broker_url(self) -> str:
        """Return the URL for kombu's sentinel transport: one address per sentinel."""
        login = ""
        if self.password:
            login = f"{quote(self.user or '', safe='')}:{quote(self.password, safe='')}@"
        places = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return ";".join(f"sentinel://{login}{place}/{self.database}" for place in places)


def split_url(url: str) -> tuple[str, str, str]:
    """Return (scheme, login and hosts, rest); ("", "", url) if it is not a URL.

    `urllib` accepts one host, and rejects several of which one is an IPv6 address.
    """
    match = _PARTS.fullmatch(url)
    return (match[1].lower(), match[2], match[3]) if match else ("", "", url)


def is_of_one_server(url: str) -> bool:
    """Return whether it is the address of one server.

    A login ends at the first /, ? or #. If a password contains one of these, its beginning is taken for host and port,
    and quoted by the code that fails to parse them.
    """
    scheme, _, rest = split_url(url)
    if scheme not in SINGLE or (scheme != "unix" and "@" in rest):
        return False
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def parse_sentinels(url: str) -> Sentinels | None:
    """Return the sentinels of an address; None if it names a server itself.

    Raises `BadInput` that names REDIS_URL; the address is never quoted, as it may contain a password.
    """
    scheme, netloc, rest = split_url(url)
    if scheme in SINGLE and not is_of_one_server(url):
        raise _build_refusal(f"must have the form {ONE_SERVER}. In a password, write / as %2F, ? as %3F, and # as %23.")
    if scheme in SINGLE:
        return None
    if scheme != SENTINEL:
        raise _build_refusal(f"must start with redis://, rediss://, or unix://, or have the form {FORM}.")
    login, _, places = netloc.rpartition("@")
    user, _, password = login.partition(":")
    name, database = _parse_primary_name(urlsplit(rest))
    return Sentinels(_parse_hosts(places), name, database, unquote(user) or None, unquote(password) or None)


def _parse_hosts(places: str) -> tuple[tuple[str, int], ...]:
    hosts: list[tuple[str, int]] = []
    for place, part in enumerate(places.split(","), 1):
        match = HOST.fullmatch(part)
        port = int(match[2] or SENTINEL_PORT) if match else 0
        if match is None or not 0 < port < 2**16:
            raise _build_refusal(f"must list sentinels as host:port, separated by commas. Sentinel {place} is invalid.")
        if (match[1].strip("[]"), port) in hosts:
            raise _build_refusal(f"lists sentinel {place} twice. List each sentinel once.")
        hosts.append((match[1].strip("[]"), port))
    return tuple(hosts)


def _parse_primary_name(parts: SplitResult) -> tuple[str, int]:
    """Return the name that the sentinels monitor, and the number of the database."""
    name, _, database = parts.path.lstrip("/").partition("/")
    if not _NAME.fullmatch(name):
        raise _build_refusal(f"must include the name of the monitored primary after the hosts: {FORM}.")
    if database and not (database.isascii() and database.isdigit() and int(database[:9]) <= MAX_DATABASE):
        raise _build_refusal(f"must include a database number from 0 to {MAX_DATABASE} after the name {name}.")
    if parts.query or parts.fragment:
        raise _build_refusal("must not contain a query (?) or a fragment (#).")
    return name, int(database or 0)


def _build_refusal(message: str) -> BadInput:
    return BadInput(variables.REDIS_URL.name, message)
