"""One number from a database that is only read: SQLite or PostgreSQL.

The transaction is read-only and takes one statement. It ends after SQL_SECONDS, by the database's own limit, and by
closing the connection if the database exceeds it. Only a short value is transferred: SQLite makes no value longer than
MAX_BYTES. PostgreSQL is asked for the beginning of the value as text, of a query within the query, of which it takes a
single value. The address comes from the environment: the person who sets it decides which login is used. That login
should have only the right to read.
"""

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from common.errors import describe_connection_error, get_first_line
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

SQL_SECONDS = 2.0
UNREADABLE = (
    "contains an invalid address; percent-encode / : @ ? # % and spaces in the password as %2F %3A %40 %3F"
    " %23 %25 and %20."
)
MAX_BYTES = 1_000_000
MAX_NUMBER = 100
_SQLITE_STEPS = 1_000  # virtual machine instructions between two checks of the clock
_SQLITE_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def query_single_value(name: str, address: str, query: str, seconds: float = SQL_SECONDS) -> Any:
    """Return the only value of the only row, or None if there is no row.

    `name` appears in error messages; the address never does, because it contains a password. Raise `PlantUnavailable`
    and `InvalidPlantResponse`.
    """
    scheme = address.partition("://")[0]
    if scheme == "sqlite":
        rows = _query_sqlite(name, address, query, seconds)
    elif scheme in ("postgres", "postgresql"):
        rows = _query_postgres(name, address, query, seconds)
    else:
        raise InvalidPlantResponse(f"{name} does not contain an address that starts with postgresql:// or sqlite://.")
    if not rows:
        return None
    if len(rows) > 1 or len(rows[0]) != 1:
        more = f"{len(rows)} rows" if len(rows) > 1 else f"a row of {len(rows[0])} values"
        raise InvalidPlantResponse(f"{name}: the query returned {more} instead of one value.")
    return rows[0][0]


def _query_sqlite(name: str, address: str, query: str, seconds: float) -> list[Any]:
    path = address.removeprefix("sqlite://").removeprefix("/")
    deadline = time.monotonic() + seconds
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=seconds)) as connection:
            connection.set_authorizer(
                lambda action, *_: sqlite3.SQLITE_OK if action in _SQLITE_ALLOWED else sqlite3.SQLITE_DENY
            )
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_NUMBER)
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _SQLITE_STEPS)
            return connection.execute(query).fetchmany(2)
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise PlantUnavailable(f"{name}: the query took more than {seconds:g} s.") from None
        raise InvalidPlantResponse(f"{name}: {error}.") from None
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise InvalidPlantResponse(f"{name}: {error}.") from None


def _query_postgres(name: str, address: str, query: str, seconds: float) -> list[Any]:
    milliseconds = round(1_000 * seconds)
    options = f"-c statement_timeout={milliseconds} -c default_transaction_read_only=on -c lock_timeout=500"
    late = PlantUnavailable(f"{name}: the query took more than {seconds:g} s.")
    ended = threading.Event()
    try:
        with (
            closing(_open_connection(name, address, options)) as connection,
            _close_after(connection, 1.5 * seconds, ended),
        ):
            connection.read_only = True
            # Prepared, so that the server refuses more than one statement. A comment ends with its line.
            only = f"SELECT left((\n{query}\n)::text, {MAX_NUMBER})"
            return connection.execute(only.encode(), prepare=True).fetchmany(2)
    except psycopg.errors.QueryCanceled:
        raise late from None
    except psycopg.OperationalError as error:
        if ended.is_set():
            raise late from None
        raise PlantUnavailable(
            f"{name}: the request to the database failed ({describe_connection_error(error)})."
        ) from None
    except psycopg.Error as error:
        raise InvalidPlantResponse(f"{name}: {get_first_line(error)}.") from None


def _open_connection(name: str, address: str, options: str) -> "psycopg.Connection[Any]":
    """Open a connection.

    Raise `InvalidPlantResponse` for an address of which a driver would take a part of the password for something else
    (a host, a port), or quote it.
    """
    login, _, place = address.partition("://")[2].partition("@")
    is_cut = place and "/" in login and "?" not in login  # by a slash in the password
    if is_cut or "@" in place.partition("?")[0]:
        raise InvalidPlantResponse(f"{name} {UNREADABLE}")
    try:
        return psycopg.connect(address, connect_timeout=2, options=options)
    except psycopg.ProgrammingError:
        raise InvalidPlantResponse(f"{name} {UNREADABLE}") from None


@contextmanager
def _close_after(connection: "psycopg.Connection[Any]", seconds: float, ended: threading.Event) -> Iterator[None]:
    """Close the connection after `seconds` and set `ended`: a database that hangs blocks no caller."""

    def shut() -> None:
        ended.set()
        try:
            with socket.socket(fileno=os.dup(connection.fileno())) as copy:
                copy.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.Error):
            pass  # it has ended by itself

    timer = threading.Timer(seconds, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
