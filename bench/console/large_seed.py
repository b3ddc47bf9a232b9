"""The large plant of the benches in a database: 200 nodes, 100 queues of 10 containers each, their loops."""

from django.conf import settings
from django.utils import timezone

from bench.console.large_plant import NODES, PASSWORD
from console.connections.control_server import control
from console.embedded.seeding import seed_administrator, seed_groups, seed_nodes
from queues import projection
from queues.models import Container, Node, Queue
from queues.points import share
from workers.control.loops import ensure_loops
from workers.control.parts.kind import PlantInventory
from workers.models import LedgerEntry, Loop

QUEUES, CONTAINERS_PER_QUEUE, OF_WHICH_PIPELINE = 100, 10, 20
REASON = (
    "120 events wait, and 42.1 come per second: 162.1 when a worker runs, not enough for 5,000; 120 don't "
    "fill a worker, and would by the next look have waited longer than so many may. 1 worker starts."
)


def seed() -> None:
    """Everything; each loop has taken one decision. Run with the settings of the plant that is made."""
    seed_groups()
    seed_administrator(settings.WEIR_DATA, PASSWORD)
    seed_nodes(dict.fromkeys(NODES, "redis://127.0.0.1:1/0"))
    for number in range(QUEUES):
        _seed_queue(number)
    present = PlantInventory(projection.project(control()), control())
    ensure_loops(present, ("rebalancing", "node_scaling"))
    loops = ensure_loops(present, ("worker_rate",))
    now = timezone.now()
    LedgerEntry.objects.bulk_create(LedgerEntry(loop=loop, at=now, **_decision()) for loop in loops)
    Loop.objects.filter(pk__in=[loop.pk for loop in loops]).update(ticked_at=now, decided_at=now)


def _seed_queue(number: int) -> None:
    kind = "pipeline" if number < OF_WHICH_PIPELINE else "jobs"
    queue = Queue.objects.create(name=f"queue{number:02}", kind=kind, handler="emulate")
    apart = len(NODES) // CONTAINERS_PER_QUEUE
    held = [NODES[(number * 2 + place * apart) % len(NODES)] for place in range(CONTAINERS_PER_QUEUE)]
    points = share(held)
    nodes = Node.objects.in_bulk(held, field_name="name")
    Container.objects.bulk_create(Container(queue=queue, node=nodes[name], points=points[name]) for name in held)


def _decision() -> dict[str, object]:
    return {
        "mode": "auto",
        "parameters": {"upper_limit": 1000},
        "observation": {"queue_length": 120},
        "action": {"start": 1},
        "raw": 1.0,
        "guarded": 1.0,
        "applied": True,
        "verdict": "effective",
        "reason": REASON,
    }
