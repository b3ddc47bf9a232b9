"""A handler that stores every event as a row, once: SQLite by default, PostgreSQL by URL.

Options: `url` (`sqlite:///path` or `postgresql://…`; default: `handled.sqlite3` in the data folder), `url_environment`
(the name of a variable with the URL, for one with a password), `table` (default `handled`). A missing table is created.
A worker's blocks are inserted with one transaction, `INSERT … ON CONFLICT (queue, id) DO NOTHING`: the inserted rows
are the effects, the others the duplicates.

Pages and the API accept only some forms of `url`:

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
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from common import checks
from common import environment as variables
from common.errors import BadInput, Forbidden
from workers.consumer.handler import Delivery, Handler, Options, Outcome, Place, fail_all_blocks
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
    "may lead to any host. Write the host in the address, or move the address to a variable that url_environment names."
)
UNREADABLE = (
    "PostgreSQL cannot parse the address. Encode special characters of its password as in any URL:"
    " @ as %40, % as %25, / as %2F, [ as %5B."
)
SERVER = (
    "must be postgresql://user@host:port/name without a password or parameters. Move any other address to a"
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
    """Connect to an address from the environment. Raises psycopg.OperationalError, which quotes no password."""
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


COLUMNS = ("time", "type", "source", "key", "value", "attributes")
WAIT_FOR_LOCK_SECONDS = 20.0
CANCEL_SECONDS = 5.0


class Store(Protocol):
    """A database that stores rows (id, time in µs, type, source, key, value, attributes) once per id."""

    def insert(self, queue: str, columns: list[list[Any]]) -> int:
        """Insert everything or (when it raises) nothing; return how many rows were new."""

    def close(self) -> None:
        """Close the connection; the next insert opens another."""


class SqliteStore:
    """A SQLite store with WAL and synchronous commits.

    Data that is acknowledged afterwards must survive a power failure. `time` is µs since 1970 UTC. There is one
    connection per worker process, which is never shared over a fork (it is opened at the first insert).
    """

    def __init__(self, path: Path, table: str) -> None:
        self._path, self._table = path, table
        self._connection: sqlite3.Connection | None = None

    def insert(self, queue: str, columns: list[list[Any]]) -> int:
        database = self._connection = self._connection or self._open()
        insert = f"INSERT INTO {self._table} VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, id) DO NOTHING"
        with database:
            # The write lock is taken at once: a transaction that starts with a read could find itself
            # outdated and fail.
            database.execute("BEGIN IMMEDIATE")
            before = database.total_changes
            database.executemany(insert, zip([queue] * len(columns[0]), *columns, strict=True))
            return database.total_changes - before

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self._path, timeout=WAIT_FOR_LOCK_SECONDS, isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} (queue TEXT NOT NULL, id TEXT NOT NULL, "
            "time INTEGER NOT NULL, type TEXT, source TEXT, key TEXT, value REAL, attributes TEXT, "
            "PRIMARY KEY (queue, id)) WITHOUT ROWID"
        )
        return database


# JSON that jsonb rejects: a NUL, and numbers too small or too long for a numeric.
REFUSED_BY_JSONB = re.compile(r"\\u0000|e-\d{4}|(?<!\d)\d{9999}", re.IGNORECASE)


def _as_jsonb(attributes: str | None) -> str | None:
    """Return attributes that jsonb accepts: U+FFFD for a NUL, and numbers as a float represents them.

    One rejected event would block all of its block.
    """
    if attributes is None or REFUSED_BY_JSONB.search(attributes) is None:
        return attributes
    try:
        return json.dumps(checks.make_storable(json.loads(attributes)))
    except ValueError:
        return attributes  # invalid JSON: the database reports it


class PostgresStore:
    """A PostgreSQL store with one statement per worker: the columns are sent as arrays.

    `time` is timestamptz. A lost connection is opened again at the next call.
    """

    def __init__(self, table: str, connect: Callable[[], psycopg.Connection]) -> None:
        self._table, self._connect = table, connect
        self._connection: psycopg.Connection | None = None

    def insert(self, queue: str, columns: list[list[Any]]) -> int:
        with self._close_when_busy():
            database = self._open_connection()
            with database.transaction(), closing(database.cursor()) as cursor:
                cursor.execute(
                    f"INSERT INTO {self._table} SELECT %s, r.id, to_timestamp(r.us / 1e6), "
                    "r.type, r.source, r.key, r.value, r.attributes::jsonb "
                    "FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], "
                    "%s::float8[], %s::text[]) AS r(id, us, type, source, key, value, attributes) "
                    "ON CONFLICT (queue, id) DO NOTHING",
                    [queue, *columns[:-1], list(map(_as_jsonb, columns[-1]))],
                )
                return cursor.rowcount

    def close(self) -> None:
        database, self._connection = self._connection, None
        if database is None:
            return
        try:
            # The server notices a closed connection only after its statement ends, so a lock that is held for
            # long would accumulate one such statement per try.
            with suppress(psycopg.Error):
                database.cancel_safe(timeout=CANCEL_SECONDS)
        finally:
            database.close()

    @contextmanager
    def _close_when_busy(self) -> Iterator[None]:
        """Close the connection where the call leaves a statement running.

        A call that a time limit ends leaves its statement running in an open transaction, and psycopg refuses every
        other statement on that connection.
        """
        try:
            yield
        except BaseException:
            if self._connection and self._connection.info.transaction_status != TransactionStatus.IDLE:
                self.close()
            raise

    def _open_connection(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
            try:
                self._create(self._connection)
            except BaseException:
                self.close()  # an open connection has its table
                raise
        return self._connection

    def _create(self, database: psycopg.Connection) -> None:
        # The lock: two workers that create a table at the same instant fail even with IF NOT EXISTS.
        with database.transaction():
            database.execute("SELECT pg_advisory_xact_lock(hashtext('weir:handled'))")
            database.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (queue text NOT NULL, id text NOT NULL, "
                "time timestamptz NOT NULL, type text, source text, key text, value double precision, "
                "attributes jsonb, PRIMARY KEY (queue, id))"
            )


def store_at(url: str, table: str, *, is_hosts_own: bool = False) -> Store:
    """Return the store of a URL. Raises BadInput for an unsupported scheme.

    is_hosts_own: the URL is from the environment, so it is neither checked nor quoted.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/"):
        return SqliteStore(Path(rest[1:]), table)
    if scheme in ("postgresql", "postgres"):
        return PostgresStore(table, partial(open_own if is_hosts_own else connect, url))
    message = "must be sqlite:///path or postgresql://…"
    if is_hosts_own:
        raise BadInput("handler_options.url_environment", f"names a variable that {message}.")
    raise BadInput("handler_options.url", f"{message}, not a URL that starts with {scheme[:20]!r}.")


class Sql(Handler):
    """The handler; see the module."""

    def __init__(self, place: Place, options: Options, environment: Mapping[str, str] = variables.PROCESS) -> None:
        self.queue = place.queue
        table = options.get_text("table", "handled")
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", table):
            raise BadInput("handler_options.table", f"must be lowercase letters, digits, and _, not {table!r}.")
        url = options.get_text("url", f"sqlite:///{place.data / 'handled.sqlite3'}")
        own = self._from_environment(options.get_text("url_environment", ""), environment)
        options.finish()
        self._store = store_at(own or url, table, is_hosts_own=bool(own))

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        columns: list[list[Any]] = [[] for _ in range(1 + len(COLUMNS))]
        for delivery in deliveries:
            for column, values in zip(columns, self._read_values(delivery), strict=True):
                column.extend(values)
        try:
            inserted = self._store.insert(self.queue, columns)
        except (psycopg.Error, sqlite3.Error, OSError) as error:
            return fail_all_blocks(len(deliveries), error)
        return Outcome(effects=inserted, duplicates=len(columns[0]) - inserted)

    def close(self) -> None:
        self._store.close()

    @staticmethod
    def _read_values(delivery: Delivery) -> list[list[Any]]:
        batch = delivery.batch
        time_us = batch.column("time").cast("int64").to_pylist()
        return [
            delivery.get_event_ids().to_pylist(),
            time_us,
            *(batch.column(name).to_pylist() for name in COLUMNS[1:]),
        ]

    @staticmethod
    def _from_environment(name: str, environment: Mapping[str, str]) -> str:
        if name:
            egress.check_secret_name(name, "handler_options.url_environment")
        secret = variables.read_secret(name, environment)
        if name and not secret:
            message = f"names {name}, which is not set in the worker's environment. Set it or remove the option."
            raise BadInput("handler_options.url_environment", message)
        return secret
