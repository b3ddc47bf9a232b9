"""The grants of the workers' database role, enforced in every test on any database.

Workers, loops, observer and alerter use a role that reads and writes some tables only
(`console.storage.worker_tables`). SQLite has no roles: here a statement of their code is refused as PostgreSQL would
refuse it, so that each test of theirs shows a missing grant.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from django.db import ProgrammingError
from django.db.backends.signals import connection_created

from console.storage import worker_tables

ROOT = Path(__file__).resolve().parents[1]
# What runs with the role: two packages, and what observer and alerter call in the console.
PACKAGES = (f"{ROOT}/queues/", f"{ROOT}/workers/")
CONSOLE = f"{ROOT}/console/"
CALLED = tuple(f"{CONSOLE}{module}" for module in ("audit/watch.py", "incidents/keeper.py", "timeline/rollouts.py"))
TABLE = r'"?(\w+)"?'
WRITTEN = re.compile(rf"\s*(?:INSERT (?:OR \w+ )?INTO|UPDATE|DELETE FROM) {TABLE}", re.IGNORECASE)
READ = re.compile(rf"\b(?:FROM|JOIN) {TABLE}", re.IGNORECASE)
# A lock takes the right to update; with OF, on the first table alone.
LOCKED = re.compile(r"FOR (?:NO KEY )?UPDATE", re.IGNORECASE)
Execute = Callable[[str, Any, bool, dict[str, Any]], Any]


def enforce() -> None:
    """Have every connection that is opened from now on refuse what the role may not do."""
    connection_created.connect(_guard_connection, dispatch_uid=__name__)


def _guard_connection(connection: Any, **_: Any) -> None:
    if check_statement not in connection.execute_wrappers:
        connection.execute_wrappers.append(check_statement)


def check_statement(execute: Execute, statement: str, values: Any, many: bool, context: dict[str, Any]) -> Any:
    """Execute it. Raise ProgrammingError for a statement of workers that their role may not make."""
    if (refused := refused_table(statement)) and _runs_as_worker():
        raise ProgrammingError(f"permission denied for table {refused} (tests/worker_role.py)")
    return execute(statement, values, many, context)


def refused_table(statement: str) -> str:
    """Return the first table that the statement needs and the role doesn't have, "" where it has all."""
    declared = worker_tables.list_table_access()
    changed = WRITTEN.match(statement)
    written = [changed.group(1)] if changed else []
    read = READ.findall(statement)
    if LOCKED.search(statement):
        written += read[:1] if " OF " in statement else read
    for table in written:
        if declared.get(table, worker_tables.WRITTEN) != worker_tables.WRITTEN:
            return table
    return next((table for table in read if declared.get(table) == worker_tables.HIDDEN), "")


def _runs_as_worker() -> bool:
    """Return whether a package of the workers makes the statement, or a module they call in the console.

    The console calls the packages, too, and they call it back: what is below its own code is its statement.
    """
    frame: FrameType | None = sys._getframe(2)
    is_of_console = False
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(CALLED) or (name.startswith(PACKAGES) and not is_of_console):
            return True
        is_of_console = is_of_console or name.startswith(CONSOLE)
        frame = frame.f_back
    return False
