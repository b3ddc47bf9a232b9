"""What stands at an address of a broker, before it is registered: nothing is changed there."""

import time
from collections.abc import Callable
from dataclasses import replace

from workers.documents.plants import FoundPlant
from workers.plants.foreign.celery_app.port.plant import LISTEN, CeleryPlant
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
        what = f"A Celery app: {queues} queues, {len(workers)} workers with {processes} processes."
        return found_of(what, topology, plant.missing())
    finally:
        plant.close()
