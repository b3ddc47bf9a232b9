"""The database of a simulation: an SQLite file on a RAM disk, with a connection for each simulated thread.

Each statement lets other threads run before and after it. A statement that finds the database locked waits on virtual
time, as long as the settings say. A crashed process's connection is rolled back and closed.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import OperationalError, connections

from bench.simulation import context
from bench.simulation.calls import CRASH_AFTER, CRASH_BEFORE, CallFaults
from bench.simulation.scheduler import Scheduler

USUAL_SECONDS, RETRY_SECONDS, LOCK_SECONDS = 0.0002, 0.02, 20.0
HOST, COMMIT = "database", "COMMIT"


class DatabaseFault:
    """Faults of the database. calls: those that hit the process at a statement."""

    def __init__(self, calls: CallFaults) -> None:
        self.away_until = 0.0
        self.calls = calls


class ThreadConnections:
    """The values that Django stores for each thread: one for each simulated thread, and one for the real thread."""

    def __init__(self) -> None:
        object.__setattr__(self, "_outside", {})

    def _get_values(self) -> dict[str, Any]:
        thread = context.scheduler().current if context.is_running() else None
        if thread is None:
            values: dict[str, Any] = object.__getattribute__(self, "_outside")
            return values
        return thread.memory

    def __getattr__(self, name: str) -> Any:
        try:
            return self._get_values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._get_values()[name] = value

    def __delattr__(self, name: str) -> None:
        del self._get_values()[name]


class WithoutMigrations:
    """The value of `MIGRATION_MODULES` that creates all tables from the models at once."""

    def __contains__(self, app: str) -> bool:
        return True

    def __getitem__(self, app: str) -> None:
        return None


def prepare_template(folder: Path) -> Path:
    """Create an empty database in the folder, and return its path."""
    template = folder / "template.sqlite3"
    connections["default"].settings_dict["NAME"] = str(template)
    settings: Any = django_settings
    settings.MIGRATION_MODULES = WithoutMigrations()
    call_command("migrate", run_syncdb=True, verbosity=0, interactive=False)
    return template


def seal(template: Path) -> None:
    """Close the template, so that it is one file."""
    connections["default"].close()
    with closing(sqlite3.connect(template)) as opened:
        opened.execute("PRAGMA journal_mode=WAL")
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def install(fault: DatabaseFault, seed: int) -> None:
    """Let each simulated thread have its own connection, whose statements are points to switch at."""
    chance = random.Random(f"{seed} database")
    connections._connections = ThreadConnections()  # type: ignore[attr-defined]
    create = type(connections).create_connection

    def create_connection(handler: Any, alias: str) -> Any:
        made: Any = create(handler, alias)
        made.execute_wrappers.append(lambda *arguments: _execute(fault, chance, *arguments))
        commit = made._commit

        def commit_and_pause() -> Any:
            return _execute(fault, chance, lambda *arguments: commit(), COMMIT, None, False, None)

        made._commit = commit_and_pause
        if context.is_running() and (thread := context.scheduler().current) is not None:
            thread.on_end.append(lambda: _close(made))
        return made

    connections.create_connection = create_connection.__get__(connections)  # type: ignore[method-assign]


def open_copy(template: Path, folder: Path) -> None:
    """Use a new copy of the template from now on."""
    connections["default"].close()
    database = folder / "simulation.sqlite3"
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(template, database)
    settings: Any = connections.settings["default"]
    settings["NAME"] = str(database)
    settings["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 0,
        "init_command": "PRAGMA synchronous=OFF",
        "check_same_thread": False,
    }
    connections["default"].settings_dict.update(settings)


def _execute(
    fault: DatabaseFault,
    chance: random.Random,
    execute: Callable[..., Any],
    sql: str,
    params: Any,
    many: bool,
    details: Any,
) -> Any:
    scheduler: Scheduler | None = context.scheduler() if context.is_running() else None
    if scheduler is None or scheduler.current is None:
        return execute(sql, params, many, details)
    call_fault = fault.calls.meet_statement(sql, HOST)
    if call_fault is not None and call_fault.kind == CRASH_BEFORE:
        fault.calls.crash_now()
    scheduler.pause(chance.expovariate(1 / USUAL_SECONDS))
    if scheduler.now < fault.away_until:
        raise OperationalError("the database is away")
    gives_up_at = scheduler.now + LOCK_SECONDS
    while True:
        try:
            result = execute(sql, params, many, details)
        except OperationalError as error:
            if "locked" not in str(error) or scheduler.now >= gives_up_at:
                raise
            scheduler.pause(RETRY_SECONDS * (0.5 + chance.random()))
        else:
            break
    if call_fault is not None and call_fault.kind == CRASH_AFTER:
        fault.calls.crash_now()
    return result


def _close(made: Any) -> None:
    with suppress(Exception):
        if made.connection is not None:
            made.connection.close()
