"""What a tick of all loops costs: observe, decide, guard, record with their leases' numbers, apply, confirm.

A database and a control server of its own; managers of containers tick together on one snapshot that a plant in memory
gives: a hundred of them, and five thousand (200 nodes, 25 queues each). Several processes tick the 5,000 managers:
WEIR_TICK_PROCESSES on SQLite, and four on PostgreSQL, where it is installed. The database and the processes share the
machine's cores. Workers are not sent through a broker.
"""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.plant import postgresql
from bench.plant.running_plant import clean_environment, manage
from bench.queues.node_servers import node_servers

KINDS = ("idle_seconds", "acting_seconds")
POSTGRESQL_PROCESSES = 4


@dataclass(frozen=True)
class TickScale:
    """Loops that tick together: queues × nodes, and the limit of a tick."""

    name: str
    queues: int
    nodes: int
    limit_seconds: float
    on_postgresql: bool = False


SCALES = (
    TickScale("loops_100", 25, 4, 0.05),
    TickScale("loops_5000", 25, 200, 1.2),
    TickScale("loops_5000_postgresql", 25, 200, 0.8, on_postgresql=True),
)


def run(seconds: float) -> dict[str, Any]:
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    scales = [scale for scale in SCALES if not scale.on_postgresql or postgresql.can_run()]
    for scale in scales:
        measured = _measure(scale, seconds / len(scales))
        for kind in KINDS:
            figures[f"{scale.name}_{kind}"] = measured[kind]
            peers[f"limit_{scale.name}_{kind}"] = scale.limit_seconds
    ratio = {name: seconds / peers[f"limit_{name}"] for name, seconds in figures.items()}
    return {"figures": figures, "peers": peers, "ratio": ratio}


def _measure(scale: TickScale, seconds: float) -> dict[str, float]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-tick-")))
        servers = stack.enter_context(node_servers(("control",)))
        environment = {
            **clean_environment(),
            "WEIR_DATA": str(folder),
            "DATABASE_URL": f"sqlite:///{folder}/weir.sqlite3",
            "REDIS_URL": servers["control"],
        }
        if scale.on_postgresql:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-postgresql-")))
            environment["DATABASE_URL"] = stack.enter_context(postgresql.postgresql_server(data))
            environment["WEIR_TICK_PROCESSES"] = str(POSTGRESQL_PROCESSES)
        manage(environment, "migrate", "--verbosity=0", "--no-input")
        code = f"from bench.laws.ticking_loops import measure; measure({scale.queues}, {scale.nodes}, {seconds})"
        measured: dict[str, float] = orjson.loads(manage(environment, "shell", "-v", "0", "-c", code))
    return measured
