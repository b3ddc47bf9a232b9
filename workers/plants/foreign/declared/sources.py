"""Servers that give one number: Prometheus, a database, and Redis.

The addresses of a database and of Redis come from the environment: the person who sets it decides which login is used.
That login should have only the right to read. An address appears in no message, because it contains a password.

**SQL.** The database, SQLite or PostgreSQL, is only read. The transaction is read-only and takes one statement. It ends
after SQL_SECONDS, by the database's own limit, and by closing the connection if the database exceeds it. Only a short
value is transferred: SQLite makes no value longer than MAX_BYTES. PostgreSQL is asked for the beginning of the value as
text, of a query within the query, of which it takes a single value.

**Redis or Valkey**, by a command that only reads and has a bounded cost (`+@read`):

| command | the number |
|---|---|
| LLEN, SCARD, ZCARD, HLEN, XLEN key | number of entries; 0 if the key does not exist |
| ZCOUNT key from to | members with scores between the two |
| EXISTS key | 1 or 0 |
| GET key; HGET key field; ZSCORE key member | the stored number; unknown if there is none |

**Prometheus**: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import math
import os
import shlex
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import redis

from common.documents import decode_text
from common.errors import BadInput, describe_connection_error, get_first_line
from common.parsing import parse_measured_number
from queues.control.replies import expect_bytes
from workers.plants.foreign import redis_client
from workers.plants.foreign.answer_limit import answer_seconds
from workers.plants.foreign.client import PlantClient
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

UNAVAILABLE = 503
# A note about the query, in `infos` since 2.54. Before (2.48 to 2.53) it is among the warnings.
NOTE = "PromQL info:"
SQL_SECONDS = 2.0
UNREADABLE = (
    "contains an invalid address. Percent-encode / : @ ? # % and spaces in the password as %2F %3A %40 %3F"
    " %23 %25 and %20."
)
MAX_BYTES = 1_000_000
_SQLITE_STEPS = 1_000  # virtual machine instructions between two checks of the clock
_SQLITE_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
MAX_NUMBER = 100
# command → number of words after it
COMMANDS: Mapping[str, int] = {
    "LLEN": 1,
    "SCARD": 1,
    "ZCARD": 1,
    "HLEN": 1,
    "XLEN": 1,
    "ZCOUNT": 3,
    "EXISTS": 1,
    "GET": 1,
    "HGET": 2,
    "ZSCORE": 2,
}


class PartialAnswer(InvalidPlantResponse):
    """A part of what is queried did not answer, such as a Thanos store that is away.

    value: of the rest; it is shown with the reason, and nothing is decided on it.
    """

    def __init__(self, message: str, value: float | None) -> None:
        super().__init__(message)
        self.value = value


class PrometheusClient:
    """The client of one server."""

    def __init__(self, client: PlantClient, path: str = "") -> None:
        self._client, self._path = client, f"{path.strip('/')}/" if path.strip("/") else ""

    def query_value(self, query: str) -> float | None:
        """Return the value of a scalar, or of the only series; None if there is none, or it is not a number.

        Raise `PlantUnavailable`, `PartialAnswer` with the value of the parts that answered, and `InvalidPlantResponse`
        for more than one series and for invalid PromQL.
        """
        # Weir stops waiting at that time, so the server stops, too. It takes no fractions of a unit.
        timeout = f"{round(1_000 * answer_seconds())}ms"
        status, document = self._client.ask("GET", f"{self._path}api/v1/query", query=query, timeout=timeout)
        if not isinstance(document, dict) or document.get("status") != "success":
            said = document.get("error") if isinstance(document, dict) else None
            message = f"{self._client.name} returned {status}: {str(said or 'no reason given')[:300]}"
            raise PlantUnavailable(message) if status == UNAVAILABLE else InvalidPlantResponse(message)
        value = self._parse_single_value(query, document.get("data"))
        warnings = document.get("warnings") or []
        texts = [str(warning) for warning in (warnings if isinstance(warnings, list) else [warnings])]
        missing = [text for text in texts if not text.lstrip().startswith(NOTE)]
        if missing:
            raise PartialAnswer(f"{self._client.name} returned a partial result: {missing[0][:300]}", value)
        return value

    def _parse_single_value(self, query: str, data: Any) -> float | None:
        name, shown = self._client.name, query[:80]
        try:
            kind, result = data["resultType"], data["result"]
            if kind == "scalar":
                return _parse_number(result[1])
            if kind != "vector":
                raise InvalidPlantResponse(f"{name}: {shown} returned a {kind} instead of a single number.")
            if len(result) > 1:
                raise InvalidPlantResponse(
                    f"{name}: {shown} returned {len(result)} series. Combine them with sum() or max()."
                )
            return _parse_number(result[0]["value"][1]) if result else None
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidPlantResponse(
                f"{name} returned a response that is not from Prometheus ({error!r})."
            ) from error


def _parse_number(text: object) -> float | None:
    """Prometheus writes numbers as texts, with NaN and +Inf among them."""
    value = parse_measured_number(text)
    return value if math.isfinite(value) else None


def query_single_value(name: str, address: str, query: str, seconds: float = SQL_SECONDS) -> object:
    """Return the only value of the only row, or None if there is no row.

    Raise `PlantUnavailable` and `InvalidPlantResponse`, whose messages have `name`.
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


def read_command(text: str, where: str) -> tuple[str, ...]:
    """Return the words of a command; a word with spaces is quoted. Raise `BadInput`."""
    try:
        name, *rest = shlex.split(text)
    except ValueError as error:
        raise BadInput(where, f"is not a valid command ({str(error).rstrip('.').lower()})") from None
    if (count := COMMANDS.get(name.upper())) is None:
        raise BadInput(where, f"must start with one of {', '.join(COMMANDS)}, not {name[:40]!r}")
    if len(rest) != count:
        words = "one word" if count == 1 else f"{count} words"
        raise BadInput(where, f"must have {words} after {name.upper()}, not {len(rest)}")
    return (name.upper(), *rest)


def read_single_value(name: str, address: str, command: Sequence[str]) -> object:
    """Return the server's answer, or None if the value does not exist.

    Raise `PlantUnavailable` and `InvalidPlantResponse`, whose messages have `name`.
    """
    # One connection per reading: sensors are few, and a server that moved is found again.
    with redis_client.open_client(name, address) as server:
        try:
            return _answer(name, server, command)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise PlantUnavailable(
                f"{name}: the request to the server failed ({redis_client.describe_error(error)})."
            ) from None
        except redis.RedisError as error:
            raise InvalidPlantResponse(f"{name}: {redis_client.describe_error(error)}.") from None


def _answer(name: str, server: redis.Redis, command: Sequence[str]) -> Any:
    """Return the answer. A value that is not a number may be long, so only the length of a number is requested."""
    kind, *rest = command
    if kind == "GET":
        text = expect_bytes(server).getrange(rest[0], 0, MAX_NUMBER)
        return decode_text(text, "replace") or None
    if kind == "HGET" and server.hstrlen(rest[0], rest[1]) > MAX_NUMBER:
        raise InvalidPlantResponse(f"{name}: {rest[0]} {rest[1]} does not contain a number.")
    untyped: Any = server
    text = untyped.execute_command(*command)
    return decode_text(text, "replace") if isinstance(text, bytes) else text
