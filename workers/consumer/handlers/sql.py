"""A handler that stores every event as a row, once: SQLite by default, PostgreSQL by URL.

Options: `url` (`sqlite:///path` or `postgresql://…`; default: `handled.sqlite3` in the data folder), `url_environment`
(the name of a variable with the URL, for one with a password), `table` (default `handled`). Pages and the API accept
only some forms of `url` (`workers.consumer.handlers.sql_address`). A missing table is created. A worker's blocks are
inserted with one transaction, `INSERT … ON CONFLICT (queue, id) DO NOTHING`: the inserted rows are the effects, the
others the duplicates.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg.pq import TransactionStatus

from common import checks
from common import environment as variables
from common.errors import BadInput
from workers.consumer.handlers import sql_address
from workers.consumer.handlers.delivery import Delivery
from workers.consumer.handlers.effects import Outcome
from workers.consumer.handlers.handler import Place
from workers.consumer.handlers.options import Options
from workers.consumer.handlers.outage import fail_all_blocks
from workers.host import egress

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
        return PostgresStore(table, partial(sql_address.open_own if is_hosts_own else sql_address.connect, url))
    message = "must be sqlite:///path or postgresql://…"
    if is_hosts_own:
        raise BadInput("handler_options.url_environment", f"names a variable that {message}.")
    raise BadInput("handler_options.url", f"{message}, not a URL that starts with {scheme[:20]!r}.")


class Sql:
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
        """Close the database connection."""
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
            message = f"names {name}, which is not set in the worker's environment; set it or remove the option."
            raise BadInput("handler_options.url_environment", message)
        return secret
