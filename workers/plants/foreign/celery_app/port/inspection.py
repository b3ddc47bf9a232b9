"""The inspection of a broker address before it is registered: nothing is changed there."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from common.stored_document import replace_fields
from controllers.framework.reason import format_count, format_names
from workers.documents.plants import FoundPlant
from workers.plants.foreign.celery_app.port.plant import ASK, LISTEN, CeleryPlant
from workers.plants.foreign.kind import PlantAddress, describe_topology

# A worker sends a heartbeat every two seconds, so by this time it has been heard.
LISTEN_SECONDS = 3.0


def inspect(
    address: PlantAddress, make: Callable[[PlantAddress], CeleryPlant], sleep: Callable[[float], None] = time.sleep
) -> FoundPlant:
    """Return the queues and pools, and whether remote control and events answer.

    Raise what `topology` raises.
    """
    plant = make(replace(address, options={**address.options, "events": LISTEN}))
    try:
        plant.get_topology()
        sleep(LISTEN_SECONDS)
        topology = plant.get_topology()
        workers = [operator for operator in topology.operators.values() if operator.kind == "operator"]
        queues = len(topology.operators) - len(workers)
        processes = sum(worker.parallelism for worker in workers)
        app = f"{format_count(queues, 'queue')}, {format_count(len(workers), 'worker')}"
        what = f"A Celery app: {app} with {processes} process{'' if processes == 1 else 'es'}."
        silent = plant.list_workers_without_events()
        if not silent or address.get_option("events", ASK) != ASK:
            return describe_topology(what, topology, plant.list_missing())
        return replace_fields(
            describe_topology(what, topology, plant.list_missing(without_events=())), said=[_describe_silent(silent)]
        )
    finally:
        plant.close()


def _describe_silent(silent: Sequence[str]) -> str:
    """Return what will happen to workers that send no events of tasks."""
    return (
        f"Workers that send no task events yet: {format_names(silent)}. When the app is added, Weir enables"
        " their task events until it disconnects (option events)."
    )
