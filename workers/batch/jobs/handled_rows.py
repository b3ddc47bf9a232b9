"""Rows of handled events in the data folder (`workers.consumer.handlers.sql`, its default place), by the
time of the events. An application's own database, named by a URL, is its own to keep small.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from workers.models import Keep

FILE = "handled.sqlite3"
LOCK_SECONDS = 20.0
STEP_ROWS = 10_000
COLUMNS = {"queue", "id", "time"}
Place = tuple[str, str]  # queue and id: what the rows are ordered by
Row = Sequence[Any]  # queue, id, time (µs), and its size (bytes) where that is asked for
BEGINNING: Place = ("", "")
HOUR_US, DAY_HOURS = 3_600 * 1_000_000, 24
LONG_AGO_US = -(2**63)


@dataclass
class RowSizes:
    """What rows take, in bytes: by the hour (since 1970) those that may go, and those in a kept range. It is
    their content that counts: the pages of a file that rows have left are used again, and not given back.
    """

    hours: Counter[int] = field(default_factory=Counter)
    retained_bytes: int = 0

    def excess_before_us(self, most_bytes: int, now: datetime) -> int:
        """Before which time rows have to go, the oldest hours first, so that the rest fits; LONG_AGO_US where
        it does. Of today and of the newest day, if that is older, nothing goes.
        """
        over = sum(self.hours.values()) + self.retained_bytes - most_bytes
        newest = min(us(now) // HOUR_US, max(self.hours, default=0))
        before_us = LONG_AGO_US
        for hour in sorted(self.hours):
            if over <= 0 or hour >= newest // DAY_HOURS * DAY_HOURS:
                break
            over -= self.hours[hour]
            before_us = (hour + 1) * HOUR_US
        return before_us


def exists(data: Path) -> bool:
    return (data / FILE).exists()


def file_bytes(data: Path) -> int:
    """What the file takes; what SQLite keeps beside it comes and goes, and is small."""
    return (data / FILE).stat().st_size


def measure_rows(data: Path, sizes: RowSizes) -> Iterator[int]:
    """Add to the sizes what the rows take: how many were seen, after each of many short reads."""
    with closing(_open_database(data)) as database:
        for table in _tables(database):
            size = _size_of(_columns(database, table))
            after: Place | None = BEGINNING
            while after is not None:
                rows, after = _next_rows(database, table, after, f"queue, id, time, {size}")
                _add(rows, sizes)
                yield len(rows)


def delete_rows(
    data: Path, before_us: int, guarded: Callable[[], AbstractContextManager[None]]
) -> Iterator[int]:
    """Delete older events but those in a kept range: how many, after each of many short transactions, each
    under the guard. The file's lock is waited for before: under the guard nobody should have to wait.
    """
    with closing(_open_database(data)) as database:
        for table in _tables(database):
            after: Place | None = BEGINNING
            while after is not None:
                database.execute("BEGIN IMMEDIATE")
                with guarded(), database:
                    count, after = _step(database, table, after, before_us)
                yield count


def _add(rows: Sequence[Row], sizes: RowSizes) -> None:
    kept = _list_kept_ranges()
    for row in rows:
        if _is_kept(row, kept):
            sizes.retained_bytes += row[3]
        else:
            sizes.hours[row[2] // HOUR_US] += row[3]


def _step(database: sqlite3.Connection, table: str, after: Place, before_us: int) -> tuple[int, Place | None]:
    """Of the next rows those that are due go; how many, and the last that was seen (None: it was the end)."""
    rows, last = _next_rows(database, table, after, "queue, id, time")
    kept = _list_kept_ranges()
    due = [row[:2] for row in rows if row[2] < before_us and not _is_kept(row, kept)]
    database.executemany(f"DELETE FROM {table} WHERE queue = ? AND id = ?", due)
    return len(due), last


def _next_rows(
    database: sqlite3.Connection, table: str, after: Place, columns: str
) -> tuple[list[Row], Place | None]:
    """Some thousands of rows behind a place, and the last one's (None: it was the end)."""
    rows = database.execute(
        f"SELECT {columns} FROM {table} WHERE (queue, id) > (?, ?) ORDER BY queue, id LIMIT ?",
        [*after, STEP_ROWS],
    ).fetchall()
    return rows, rows[-1][:2] if len(rows) == STEP_ROWS else None


def _list_kept_ranges() -> list[tuple[int, int, str]]:
    ranges = Keep.objects.values_list("since", "until", "queue")
    return [(us(since), us(until), queue) for since, until, queue in ranges]


def _is_kept(row: Row, ranges: Sequence[tuple[int, int, str]]) -> bool:
    queue, time_us = row[0], row[2]
    return any(since <= time_us <= until and of in ("", queue) for since, until, of in ranges)


def _tables(database: sqlite3.Connection) -> list[str]:
    """Tables that the handler has made: another program's in the same file are left alone."""
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = [_quote_name(name) for (name,) in names.fetchall()]
    return [table for table in tables if _columns(database, table) >= COLUMNS]


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def _size_of(columns: Iterable[str]) -> str:
    """The bytes of these columns of a row, in SQL; a number counts as many as it has digits."""
    return " + ".join(f"coalesce(length(CAST({_quote_name(name)} AS BLOB)), 0)" for name in sorted(columns))


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _open_database(data: Path) -> sqlite3.Connection:
    return sqlite3.connect(data / FILE, timeout=LOCK_SECONDS)


def us(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
