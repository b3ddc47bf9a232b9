"""What one tick of a loop costs: observe, decide, guard, record with its lease's number, apply, confirm.

A database and a control server of its own; forty managers tick once a round, each in its own transaction,
on one snapshot that a plant in memory gives. The peer is the time a tick may take so that all of them, on one
core, keep their interval.
"""

import tempfile
from typing import Any

import orjson

from bench.console.ledger import manage
from bench.plant.running_plant import clean_environment
from bench.queues.node_servers import node_servers

INTERVAL_SECONDS = 2.0


def run(seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="weir-tick-") as folder, node_servers(("control",)) as servers:
        environment = {
            **clean_environment(),
            "WEIR_DATA": folder,
            "DATABASE_URL": f"sqlite:///{folder}/weir.sqlite3",
            "REDIS_URL": servers["control"],
        }
        manage(environment, "migrate", "--verbosity=0", "--no-input")
        code = f"from bench.laws.ticking_loops import measure; measure({seconds})"
        found = orjson.loads(manage(environment, "shell", "-v", "0", "-c", code))
    limit = INTERVAL_SECONDS / found["loops"]
    return {
        "figures": found,
        "peers": {"limit_tick_seconds": limit},
        "ratio": {"tick_seconds": found["tick_seconds"] / limit},
    }
