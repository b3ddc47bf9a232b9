"""The address in DATABASE_URL: SQLite's file, a PostgreSQL server, or several of which one accepts writes.

    postgres://user:password@host1:5432,host2:5432/weir

Of several, libpq takes the first that accepts writes (`target_session_attrs=read-write`), each time it connects. Django
connects again for each request and task, so a promoted stand-by is found automatically.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import dj_database_url

from common import environment as variables
from common.errors import BadInput
from queues.control.address import HOST, split_url

POSTGRESQL = "django.db.backends.postgresql"
DEFAULT_PORT = "5432"
# A server that vanished is abandoned after these; without them a query on it waits a quarter of an hour.
PATIENCE: dict[str, Any] = {
    "connect_timeout": 3,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


def build_file_url(path: Path) -> str:
    """Return the address of SQLite's file, with `#`, `?`, and `%` in a folder's name escaped."""
    return f"sqlite:///{quote(str(path))}"


def parse_database_url(url: str) -> dict[str, Any]:
    """Return an entry of DATABASES. Raises `BadInput` that names DATABASE_URL; the address is never quoted."""
    hosts = split_url(url)[1].rpartition("@")[2].split(",")
    try:
        options: dict[str, Any] = dict(dj_database_url.parse(_keep_first_host(url, hosts)))
    except (dj_database_url.ParseError, dj_database_url.UnknownSchemeError, ValueError):
        raise _build_refusal("must be postgres://user:password@host:5432/name, or sqlite:///file.") from None
    if options["ENGINE"] != POSTGRESQL:
        if len(hosts) > 1:
            raise _build_refusal("must have one host, except for PostgreSQL.")
        return options
    given = options.get("OPTIONS", {})
    if len(hosts) > 1:
        options["HOST"], options["PORT"] = (",".join(place) for place in zip(*map(_place, hosts), strict=True))
        given = {"target_session_attrs": "read-write", **given}
    options["OPTIONS"] = {**PATIENCE, **given}
    return options


def _keep_first_host(url: str, hosts: list[str]) -> str:
    """Return the address with one host, which is all that the parser supports."""
    scheme, netloc, rest = split_url(url)
    login, at, _ = netloc.rpartition("@")
    return f"{scheme}://{login}{at}{hosts[0]}{rest}" if len(hosts) > 1 else url


def _place(host: str) -> tuple[str, str]:
    match = HOST.fullmatch(host)
    if match is None:
        raise _build_refusal("must name servers as host:port, separated by commas.")
    return match[1].strip("[]"), match[2] or DEFAULT_PORT


def _build_refusal(message: str) -> BadInput:
    return BadInput(variables.DATABASE_URL.name, message)
