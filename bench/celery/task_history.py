"""The task history with ten million tasks: how long searches take, its size on disk, and how fast it records."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from bench.plant.running_plant import clean_environment, manage
from bench.postgres_server import run_postgres

TASKS = 10_000_000
# Searches: seconds at the 95th percentile, by database. Sizes: bytes per task.
MAX_SECONDS = {"sqlite": 2.0, "postgresql": 1.0}
MAX_BYTES = 300.0
MODULE = "bench.celery.task_history_rows"


def run(seconds: float, count: int = TASKS) -> dict[str, Any]:
    """Databases of their own, made and gone again; `seconds` is what the contract gives, not needed."""
    figures: dict[str, float] = {}
    with _open_sqlite() as sqlite, _open_postgres() as postgres:
        call_rows(sqlite, f"fill({count})")
        if postgres is not None:
            call_rows(postgres, f"copy_blocks({sqlite['WEIR_DATA'] + '/weir.sqlite3'!r})")
            figures |= _measure("postgresql", postgres)
        figures |= _measure("sqlite", sqlite)
    limits = {name: limit for name in figures if (limit := _find_limit(name)) is not None}
    return {
        "figures": figures,
        "peers": {f"limit_{name}": limit for name, limit in limits.items()},
        "ratio": {name: figures[name] / limit for name, limit in limits.items()},
    }


def _find_limit(name: str) -> float | None:
    vendor, kind, *_ = name.split("_")
    return {"p95": MAX_SECONDS[vendor], "bytes": MAX_BYTES}.get(kind)


@contextmanager
def _open_sqlite() -> Iterator[dict[str, str]]:
    """Give the environment of an empty database."""
    with tempfile.TemporaryDirectory(prefix="weir-tasks-") as folder:
        yield _prepare(folder, f"sqlite:///{folder}/weir.sqlite3")


@contextmanager
def _open_postgres() -> Iterator[dict[str, str] | None]:
    """Do the same with a server of its own; None if PostgreSQL is not installed."""
    with tempfile.TemporaryDirectory(prefix="weir-tasks-") as folder, run_postgres() as url:
        yield None if url is None else _prepare(folder, url)


def _prepare(folder: str, database: str) -> dict[str, str]:
    own = {"WEIR_DATA": folder, "DATABASE_URL": database, "REDIS_URL": "redis://127.0.0.1:1/0"}
    environment = {**clean_environment(), **own}
    manage(environment, "migrate", "--verbosity=0", "--no-input")
    return environment


def _measure(vendor: str, environment: dict[str, str]) -> dict[str, float]:
    """Return the figures with all tasks in the database, and with all in the archive."""
    figures: dict[str, float] = {}
    for place in ("database", "archive"):
        measured = orjson.loads(call_rows(environment, "measure()"))
        for kind, times in measured["seconds"].items():
            figures |= {f"{vendor}_{share}_{kind}_in_{place}": seconds for share, seconds in times.items()}
        figures[f"{vendor}_bytes_in_{place}"] = measured["bytes_per_task"][place]
        if place == "database":
            call_rows(environment, "archive_all()")
    recorded = orjson.loads(call_rows(environment, "record_tasks()"))
    return {**figures, **{f"{vendor}_{name}": figure for name, figure in recorded.items()}}


def call_rows(environment: dict[str, str], call: str) -> str:
    """Return what functions of `task_history_rows` print, in a process with that environment."""
    return manage(environment, "shell", "-v", "0", "-c", f"from {MODULE} import *; {call}")
