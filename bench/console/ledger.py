"""How long the ledger's page takes over a million entries, by filter; and what exporting them all takes."""

import tempfile
from typing import Any

import orjson

from bench.plant.running_plant import clean_environment, manage

# A streamed export holds a page of rows, however many there are.
LIMITS = {"slowest_filter_seconds": 0.3, "export_grows_bytes": 64 * 2**20}


def run(seconds: float) -> dict[str, Any]:
    """A database of its own, made and gone again; `seconds` is what the contract gives, and not needed."""
    with tempfile.TemporaryDirectory(prefix="weir-ledger-") as folder:
        environment = {
            **clean_environment(),
            "WEIR_DATA": folder,
            "DATABASE_URL": f"sqlite:///{folder}/weir.sqlite3",
            "REDIS_URL": "redis://127.0.0.1:1/0",
        }
        for command in (("migrate", "--verbosity=0", "--no-input"), ("collectstatic", "--verbosity=0", "--no-input")):
            manage(environment, *command)
        manage(environment, "shell", "-v", "0", "-c", "from bench.console.ledger_rows import seed; seed()")
        told = manage(environment, "shell", "-v", "0", "-c", "from bench.console.ledger_rows import measure; measure()")
    result = orjson.loads(told)
    slowest = max(result["seconds"].values())
    told_too = ("bytes_per_entry", "export_entries_per_second", "export_grows_bytes")
    figures = {
        "slowest_filter_seconds": slowest,
        "slowest_filter_processor_seconds": max(result["processor_seconds"].values()),
        **{name: result[name] for name in told_too},
    }
    return {
        "figures": {**figures, **{f"seconds_{name}": value for name, value in result["seconds"].items()}},
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items()},
    }
