"""What a tick of all loops costs: observe, decide, guard, record with their leases' numbers, apply, confirm.

A database and a control server of its own; managers of containers tick together on one snapshot that a plant in memory
gives: a hundred of them, and five thousand (200 nodes, 25 queues each). Their limits are 50 ms and 1 s. Several
processes tick the 5,000 managers (WEIR_TICK_PROCESSES). Workers are not sent through a broker.
"""

import tempfile
from typing import Any

import orjson

from bench.plant.running_plant import clean_environment, manage
from bench.queues.node_servers import node_servers

SIZES = {"loops_100": (25, 4, 0.05), "loops_5000": (25, 200, 1.0)}  # queues, nodes, the limit
KINDS = ("idle_seconds", "acting_seconds")


def run(seconds: float) -> dict[str, Any]:
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    for name, (queues, nodes, limit_seconds) in SIZES.items():
        found = _measure(queues, nodes, seconds / len(SIZES))
        for kind in KINDS:
            figures[f"{name}_{kind}"] = found[kind]
            peers[f"limit_{name}_{kind}"] = limit_seconds
    ratio = {name: seconds / peers[f"limit_{name}"] for name, seconds in figures.items()}
    return {"figures": figures, "peers": peers, "ratio": ratio}


def _measure(queues: int, nodes: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="weir-tick-") as folder, node_servers(("control",)) as servers:
        environment = {
            **clean_environment(),
            "WEIR_DATA": folder,
            "DATABASE_URL": f"sqlite:///{folder}/weir.sqlite3",
            "REDIS_URL": servers["control"],
        }
        manage(environment, "migrate", "--verbosity=0", "--no-input")
        code = f"from bench.laws.ticking_loops import measure; measure({queues}, {nodes}, {seconds})"
        found: dict[str, float] = orjson.loads(manage(environment, "shell", "-v", "0", "-c", code))
    return found
