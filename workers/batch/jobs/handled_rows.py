"""Rows of handled events in the data folder (`workers.consumer.handlers.sql`, its default place), by the
time of the events. An application's own database, named by a URL, is its own to keep small.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from workers.models import Keep

FILE = "handled.sqlite3"
LOCK_SECONDS = 20.0
STEP_ROWS = 10_000
COLUMNS = {"queue", "id", "time"}
Place = tuple[str, str]  # queue and id: what the rows are ordered by
BEGINNING: Place = ("", "")


def has_older(data: Path, before: datetime) -> bool:
    """Whether any event is older than that."""
    if not (data / FILE).exists():
        return False
    with closing(_opened(data)) as database:
        return any(
            database.execute(f"SELECT 1 FROM {table} WHERE time < ? LIMIT 1", [_us(before)]).fetchone()
            for table in _tables(database)
        )


def deleted(data: Path, before: datetime) -> Iterator[int]:
    """Delete older events but those in a kept range: how many, after each of many short transactions. The
    next step is made when the next number is asked for.
    """
    if not (data / FILE).exists():
        return
    with closing(_opened(data)) as database:
        for table in _tables(database):
            after: Place | None = BEGINNING
            while after is not None:
                with database:
                    count, after = _step(database, table, after, before)
                yield count


def _step(
    database: sqlite3.Connection, table: str, after: Place, before: datetime
) -> tuple[int, Place | None]:
    """Of the next rows those that are due go; how many, and the last that was seen (None: it was the end)."""
    rows = database.execute(
        f"SELECT queue, id, time FROM {table} WHERE (queue, id) > (?, ?) ORDER BY queue, id LIMIT ?",
        [*after, STEP_ROWS],
    ).fetchall()
    kept = [(_us(since), _us(until), queue) for since, until, queue in _kept()]
    due = [row[:2] for row in rows if row[2] < _us(before) and not _is_kept(row, kept)]
    database.executemany(f"DELETE FROM {table} WHERE queue = ? AND id = ?", due)
    return len(due), rows[-1][:2] if len(rows) == STEP_ROWS else None


def _kept() -> list[tuple[datetime, datetime, str]]:
    return list(Keep.objects.values_list("since", "until", "queue"))


def _is_kept(row: tuple[str, str, int], ranges: Sequence[tuple[int, int, str]]) -> bool:
    queue, _, time_us = row
    return any(since <= time_us <= until and of in ("", queue) for since, until, of in ranges)


def _tables(database: sqlite3.Connection) -> list[str]:
    """Tables that the handler has made: another program's in the same file are left alone."""
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    return [table for table in quoted if _columns(database, table) >= COLUMNS]


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def _opened(data: Path) -> sqlite3.Connection:
    return sqlite3.connect(data / FILE, timeout=LOCK_SECONDS)


def _us(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
