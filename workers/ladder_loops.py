"""A remedy ladder for each queue. It advises until a person trusts it: its upper rungs cost delay, events."""

from queues.topology import Topology
from workers.models import Loop
from workers.schedule import LADDER_TICK_SECONDS

LAW = "ladder"
MADE = {"law": LAW, "interval_seconds": float(LADDER_TICK_SECONDS), "mode": Loop.Mode.ADVISE}


def ensure_ladder_loops(topology: Topology) -> list[Loop]:
    """One for each queue; that of a vanished one is retired, not deleted, and comes back with it."""
    wanted = {f"{LAW}/{queue}": {"queue": queue} for queue in topology.queues}
    known = {loop.name: loop for loop in Loop.objects.filter(law=LAW)}
    for name, target in wanted.items():
        if name not in known:
            Loop.objects.get_or_create(name=name, defaults={**MADE, "target": target})
        elif known[name].target != target:
            Loop.objects.filter(pk=known[name].pk).update(target=target)
    for name, loop in known.items():
        if name not in wanted and "retired_at" not in loop.target:
            target = {**loop.target, "retired_at": f"revision {topology.revision}"}
            Loop.objects.filter(pk=loop.pk).update(target=target)
    return list(Loop.objects.filter(name__in=wanted))
