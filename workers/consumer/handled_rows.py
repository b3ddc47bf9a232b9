"""Rows of handled events in the data folder, by event time.

That is the default place of `workers.consumer.handlers.sql`. A custom database, named by a URL, is not managed here.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
Place = tuple[str, str]  # queue and id: the order of the rows
Row = Sequence[Any]  # queue, id, time (µs), and the size (bytes) where requested
BEGINNING: Place = ("", "")
HOUR_US, DAY_HOURS = 3_600 * 1_000_000, 24
LONG_AGO_US = -(2**63)


@dataclass
class RowSizes:
    """Sizes of rows in bytes: by the hour (since 1970) where they may be deleted, and in kept ranges.

    Only their content counts: SQLite reuses the pages of deleted rows without shrinking the file.
    """

    hours: Counter[int] = field(default_factory=Counter)
    retained_bytes: int = 0

    def compute_cutoff_us(self, most_bytes: int, now: datetime) -> int:
        """Return the time before which rows must be deleted, the oldest hours first, so that the rest fits.

        The result is LONG_AGO_US where everything fits. Rows of today, or of the newest day if that is older, are never
        deleted.
        """
        over = sum(self.hours.values()) + self.retained_bytes - most_bytes
        newest = min(convert_to_microseconds(now) // HOUR_US, max(self.hours, default=0))
        before_us = LONG_AGO_US
        for hour in sorted(self.hours):
            if over <= 0 or hour >= newest // DAY_HOURS * DAY_HOURS:
                break
            over -= self.hours[hour]
            before_us = (hour + 1) * HOUR_US
        return before_us


def exists(data: Path) -> bool:
    return (data / FILE).exists()


def measure_file_bytes(data: Path) -> int:
    """Return the size of the file; SQLite's auxiliary files are temporary and small."""
    return (data / FILE).stat().st_size


def measure_rows(data: Path, sizes: RowSizes) -> Iterator[int]:
    """Add the sizes of the rows; yield how many were read after each of many short queries."""
    with closing(_open_database(data)) as database:
        for table in _list_tables(database):
            size = " + ".join(
                f"coalesce(length(CAST({_quote_name(name)} AS BLOB)), 0)"
                for name in sorted(_list_columns(database, table))
            )
            after: Place | None = BEGINNING
            while after is not None:
                rows, after = _read_next_rows(database, table, after, f"queue, id, time, {size}")
                _add(rows, sizes)
                yield len(rows)


def delete_rows(data: Path, before_us: int, guarded: Callable[[], AbstractContextManager[None]]) -> Iterator[int]:
    """Delete older events except those in a kept range; yield how many after each of many short transactions.

    Each transaction is under the guard. The file's lock is acquired before, because waiting under the guard would delay
    others.
    """
    with closing(_open_database(data)) as database:
        for table in _list_tables(database):
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
    """Delete the due rows among the next ones. Return their number, and the last row read (None: no more rows)."""
    rows, last = _read_next_rows(database, table, after, "queue, id, time")
    kept = _list_kept_ranges()
    due = [row[:2] for row in rows if row[2] < before_us and not _is_kept(row, kept)]
    database.executemany(f"DELETE FROM {table} WHERE queue = ? AND id = ?", due)
    return len(due), last


def _read_next_rows(
    database: sqlite3.Connection, table: str, after: Place, columns: str
) -> tuple[list[Row], Place | None]:
    """Return some thousands of rows after a position, and the last one's position (None: no more rows)."""
    rows = database.execute(
        f"SELECT {columns} FROM {table} WHERE (queue, id) > (?, ?) ORDER BY queue, id LIMIT ?", [*after, STEP_ROWS]
    ).fetchall()
    return rows, rows[-1][:2] if len(rows) == STEP_ROWS else None


def _list_kept_ranges() -> list[tuple[int, int, str]]:
    ranges = Keep.objects.values_list("since", "until", "queue")
    return [(convert_to_microseconds(since), convert_to_microseconds(until), queue) for since, until, queue in ranges]


def _is_kept(row: Row, ranges: Sequence[tuple[int, int, str]]) -> bool:
    queue, time_us = row[0], row[2]
    return any(since <= time_us <= until and of in ("", queue) for since, until, of in ranges)


def _list_tables(database: sqlite3.Connection) -> list[str]:
    """Return the tables that the handler created, without another program's tables in the same file."""
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = [_quote_name(name) for (name,) in names.fetchall()]
    return [table for table in tables if _list_columns(database, table) >= COLUMNS]


def _list_columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _open_database(data: Path) -> sqlite3.Connection:
    return sqlite3.connect(data / FILE, timeout=LOCK_SECONDS)


def convert_to_microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
