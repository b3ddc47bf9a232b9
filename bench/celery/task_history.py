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
    """A database of its own for each vendor, made and gone again; `seconds` is what the contract gives, not needed."""
    figures: dict[str, float] = {}
    limits: dict[str, float] = {}
    for vendor, limit in MAX_SECONDS.items():
        with _open_database(vendor) as environment:
            if environment is None:
                continue
            for place, figure in _measure(environment, count).items():
                figures[f"{vendor}_{place}"] = figure
                if place.startswith("p95"):
                    limits[f"{vendor}_{place}"] = limit
                if place.startswith("bytes"):
                    limits[f"{vendor}_{place}"] = MAX_BYTES
    return {
        "figures": figures,
        "peers": {f"limit_{name}": limit for name, limit in limits.items()},
        "ratio": {name: figures[name] / limit for name, limit in limits.items()},
    }


@contextmanager
def _open_database(vendor: str) -> Iterator[dict[str, str] | None]:
    """Give the environment of an empty database; None if PostgreSQL is not installed."""
    with tempfile.TemporaryDirectory(prefix="weir-tasks-") as folder, run_postgres(vendor == "postgresql") as url:
        if vendor == "postgresql" and url is None:
            yield None
            return
        environment = {
            **clean_environment(),
            "WEIR_DATA": folder,
            "DATABASE_URL": url or f"sqlite:///{folder}/weir.sqlite3",
            "REDIS_URL": "redis://127.0.0.1:1/0",
        }
        manage(environment, "migrate", "--verbosity=0", "--no-input")
        yield environment


def _measure(environment: dict[str, str], count: int) -> dict[str, float]:
    """Return the figures with all tasks in the database, and with all in the archive."""
    figures: dict[str, float] = {}
    _call(environment, f"fill({count})")
    recorded = orjson.loads(_call(environment, "record_tasks()"))
    for place in ("database", "archive"):
        measured = orjson.loads(_call(environment, "measure()"))
        for kind, times in measured["seconds"].items():
            figures |= {f"{share}_{kind}_in_{place}": seconds for share, seconds in times.items()}
        figures[f"bytes_in_{place}"] = measured["bytes_per_task"][place]
        if place == "database":
            _call(environment, "archive_all()")
    return {**figures, **recorded}


def _call(environment: dict[str, str], call: str) -> str:
    return manage(environment, "shell", "-v", "0", "-c", f"from {MODULE} import *; {call}")
