"""Where the sql handler may keep rows when a person types it, and how a worker then connects there.

| form | takes |
|---|---|
| `sqlite:///path` | `handled.sqlite3` in the data folder, or a file `.sqlite3` below its folder `handled` |
| `postgresql://user@host:port/name` | no password, no parameters, one host, on PostgreSQL's port or another |
| | that the policy of typed addresses (`workers.host.egress`) lets through |

What has neither form was written by the host itself, in its files or its database, or stands in a variable of
its environment: that is not judged, since it may be anything that the host likes.
"""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from queues.errors import BadInput, Forbidden
from workers.host import egress

FIELD = "handler_options.url"
PORT = 5432
SCHEMES = {"postgres": PORT, "postgresql": PORT}
FOLDER, FILE = "handled", "handled.sqlite3"
CONNECT_SECONDS = 10
UNREADABLE = (
    "PostgreSQL can't read the address; write what is no letter or digit in its password as in any URL:"
    " @ as %40, % as %25, / as %2F, [ as %5B."
)
SERVER = (
    "takes postgresql://user@host:port/name without password and parameters; an address with more stands in"
    " a variable that url_environment names."
)
FILES = (
    f"takes an SQLite file {FILE} in the data folder, or one ending in .sqlite3 below its folder {FOLDER}."
)


def check_typed(url: object, data: Path) -> None:
    """Raise BadInput unless a person may type it."""
    text = url if isinstance(url, str) else ""
    if text.startswith("sqlite:"):
        _check_file(text, data)
    else:
        server_of(text)


def _check_file(url: str, data: Path) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    try:
        meant, home = path.resolve(), data.resolve()
    except (OSError, RuntimeError, ValueError):
        raise Forbidden(FIELD, FILES) from None
    is_below = home / FOLDER in meant.parents and meant.suffix == ".sqlite3"
    if not path.is_absolute() or not (meant == home / FILE or is_below):
        raise Forbidden(FIELD, FILES)


def server_of(url: str) -> tuple[str, int]:
    """The host and port of an address that a person may type. Raises BadInput for any other."""
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
    """A connection to what the host itself has set. Raises psycopg.OperationalError, in which no password is:
    PostgreSQL quotes what it can't read, and takes what follows an @ in a password for the host.
    """
    try:
        host = str(conninfo_to_dict(url).get("host", ""))
    except (psycopg.ProgrammingError, UnicodeDecodeError):
        raise psycopg.OperationalError(UNREADABLE) from None
    if "@" in host[1:]:  # one that begins with it is a socket of this machine
        raise psycopg.OperationalError(UNREADABLE)
    return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)


def connect(url: str, addresses_of: Callable[..., list[str]] = egress.addresses_of) -> psycopg.Connection:
    """A connection for a url that stands in a queue's options: one that a person may have typed goes to an
    address that was checked just now, whatever its name means later. Raises AddressRefused, psycopg.Error.
    """
    try:
        host, port = server_of(url)
    except BadInput:
        return open_own(url)
    failed: psycopg.OperationalError | None = None
    for address in addresses_of(host, port, ports=frozenset({PORT})):
        try:
            return psycopg.connect(
                url, autocommit=True, connect_timeout=CONNECT_SECONDS, host=host, port=port, hostaddr=address
            )
        except psycopg.OperationalError as error:
            failed = error
    raise failed or psycopg.OperationalError(f"{host} has no address")
