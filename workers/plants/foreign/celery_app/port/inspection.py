"""What stands at an address of a broker, before it is registered: nothing is changed there."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from controllers.framework.reason import counted, listed
from queues.stored_document import changed
from workers.documents.plants import FoundPlant
from workers.plants.foreign.celery_app.port.plant import ASK, LISTEN, CeleryPlant
from workers.plants.foreign.kind import PlantAddress, found_of

# A worker sends a heartbeat each two seconds: after this it has been heard.
LISTEN_SECONDS = 3.0


def inspect(
    address: PlantAddress,
    make: Callable[[PlantAddress], CeleryPlant],
    sleep: Callable[[float], None] = time.sleep,
) -> FoundPlant:
    """Its queues and pools, and whether remote control and events answer. Raises what `topology` raises."""
    plant = make(replace(address, options={**address.options, "events": LISTEN}))
    try:
        plant.topology()
        sleep(LISTEN_SECONDS)
        topology = plant.topology()
        workers = [each for each in topology.operators.values() if each.kind == "operator"]
        queues = len(topology.operators) - len(workers)
        processes = sum(each.parallelism for each in workers)
        app = f"{counted(queues, 'queue')}, {counted(len(workers), 'worker')}"
        what = f"A Celery app: {app} with {processes} process{'' if processes == 1 else 'es'}."
        silent = plant.without_events()
        if not silent or address.option("events", ASK) != ASK:
            return found_of(what, topology, plant.missing())
        return changed(found_of(what, topology, plant.missing(without_events=())), said=[_asked(silent)])
    finally:
        plant.close()


def _asked(silent: Sequence[str]) -> str:
    """What becomes of workers that send no events of tasks."""
    return (
        f"Events of tasks come only where they are asked for, so far not from {listed(silent)}: once the app"
        " is added Weir asks for them, and asks to end them when it leaves (option events)."
    )
