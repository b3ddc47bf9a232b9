"""Time limits of PostgreSQL for processes that run permanently.

Without them, a statement that waits for a lock blocks a thread of the web process, or the ticks of all loops, and a
process that was frozen within a transaction blocks all others.

A web process limits each statement, too. Workers, which have long jobs, the observer, and the alerter only have the
limits of locks and idle transactions; every other command of manage.py (migrate, backup, restore) has none.
"""

from collections.abc import Mapping
from typing import Any

from django.db import InterfaceError, OperationalError

from console.storage.database_address import POSTGRESQL

# SQLSTATE of a canceled statement, of an unavailable lock, and of a transaction that was idle.
OVER_TIME = frozenset({"57014", "55P03", "25P03"})
STATEMENT_LIMIT = "statement_timeout"
TOO_LONG = (
    "The database did not respond in time: it is overloaded, or another statement blocks this one. Try "
    "again. If it keeps happening, check pg_stat_activity for blocked statements."
)


AWAY = (
    "The database is not responding. Until it responds, no page can be shown and no loop runs. Current "
    "values stay in force for a while, and workers and the pipeline continue. No acknowledged event is "
    "lost. Check the database and its disk."
)
# SQLSTATE's classes of a failing connection, of insufficient resources, and of a server that stops or starts;
# SQLite's names of a file that is locked, missing, on a full disk, or on a broken one.
_AWAY_CLASSES = ("08", "53", "57P")
_AWAY_NAMES = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")


def hold_work_limits(database: dict[str, Any], limits_seconds: Mapping[str, int]) -> None:
    """Set limits as `hold_limits` does, except for statements, which may be long."""
    hold_limits(database, {name: seconds for name, seconds in limits_seconds.items() if name != STATEMENT_LIMIT})


def hold_limits(database: dict[str, Any], limits_seconds: Mapping[str, int]) -> None:
    """Set the limits of an entry of DATABASES, from its next connection on; 0 is no limit.

    `options` in DATABASE_URL take precedence.
    """
    if database["ENGINE"] != POSTGRESQL:
        return
    options = database["OPTIONS"]
    words = [f"-c {name}={seconds * 1000}" for name, seconds in limits_seconds.items() if seconds]
    if given := options.get("options"):
        words.append(given)
    if words:
        options["options"] = " ".join(words)


def is_over_time(error: BaseException | None) -> bool:
    """Return whether the database stopped something because of one of these limits."""
    return isinstance(error, OperationalError) and getattr(error.__cause__, "sqlstate", None) in OVER_TIME


def is_away(error: BaseException | None) -> bool:
    """Return whether the database was unavailable for any other reason."""
    if not isinstance(error, OperationalError | InterfaceError) or is_over_time(error):
        return False
    state = getattr(error.__cause__, "sqlstate", None)
    if name := getattr(error.__cause__, "sqlite_errorname", None):
        return str(name).startswith(_AWAY_NAMES)
    return state is None or str(state).startswith(_AWAY_CLASSES)
