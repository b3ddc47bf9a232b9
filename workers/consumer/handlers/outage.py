"""Failures of a handler's dependency: a database, a disk, a folder.

No event is to blame, so none is separated. For PostgreSQL's errors, the class decides (the first two digits of
SQLSTATE): connection, login, database, table, column, permission, a server that is read-only, full, locked, or shutting
down. All other errors may be about the events.
"""

import sqlite3

import psycopg

from workers.consumer.handlers.effects import Failure, Outcome

AWAY = frozenset({"08", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58"})
ABOUT_EVENTS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.ProgrammingError)


def is_away(error: Exception) -> bool:
    """Return whether an error is of a dependency and not of the input."""
    if isinstance(error, psycopg.Error):
        if error.sqlstate:
            return error.sqlstate[:2] in AWAY
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    if isinstance(error, sqlite3.DatabaseError):
        return not isinstance(error, ABOUT_EVENTS)
    return isinstance(error, OSError)


def fail_all_blocks(blocks: int, error: Exception) -> Outcome:
    """Return the outcome of a call in which each block failed.

    Raises the error where the events may be to blame.
    """
    if not is_away(error):
        raise error
    text = f"{type(error).__name__}: {error}"
    return Outcome(failures=tuple(Failure(place, text, transient=True) for place in range(blocks)))
