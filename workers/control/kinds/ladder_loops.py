"""A remedy ladder for each queue. It advises until a person trusts it: its upper rungs cost delay, events."""

from queues.topology import Topology
from workers.control import loops as target_loops
from workers.control.schedule import LADDER_TICK_SECONDS
from workers.models import Loop

LAW = "ladder"
MADE = {"law": LAW, "interval_seconds": float(LADDER_TICK_SECONDS), "mode": Loop.Mode.ADVISE}


def ensure_ladder_loops(topology: Topology) -> list[Loop]:
    """One for each queue; that of a vanished one is retired, not deleted, and comes back with it."""
    wanted = {f"{LAW}/{queue}": {**MADE, "target": {"queue": queue}} for queue in topology.queues}
    return target_loops.ensure((LAW,), wanted, f"revision {topology.revision}")
