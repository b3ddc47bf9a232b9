"""The shipped run of the scenario `manager`: the worker-rate loop of one container."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from controllers.simulation import manager
from controllers.simulation.scenario import Floats, ScenarioOutcome
from controllers.worker_rate.law import LAW
from queues.points import TOTAL
from queues.topology import Capacity, NodeSpec, QueueSpec, Topology
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

QUEUE, NODE, HOST = "orders", "n1", "jobs@twin"
SLOTS = 10_000  # the pool of the model is unlimited
REQUIREMENTS = ("upper_limit", "max_wait_seconds")


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the loop with the limits that the scenario requires; it decides every second, as it ships."""
    inflow, size = manager.generate_events_per_second(settings, seed, trace), int(settings["events_per_worker"])
    plant = build_plant(size, 10 * settings["max_rate"])
    twin = Twin(plant, [LAW.name], parameters={LAW.name: {name: settings[name] for name in REQUIREMENTS}})
    container = plant.container(QUEUE, NODE)
    tally = manager.WorkerTally(np.zeros(len(inflow)), np.zeros(len(inflow)))
    for second, events in enumerate(inflow.tolist()):
        container.insert(events, plant.clock() + 0.5)
        tally.ran[second] = container.start_workers()
        container.remove(manager.compute_removed(container.waiting_events, int(tally.ran[second]), size))
        tally.waiting[second] = container.waiting_events
        twin.pass_time()
    tally.left = manager.count_workers(container.waiting_events, size)
    return manager.summarize(settings, inflow, tally)


def build_plant(events_per_worker: int, capacity_per_second: float) -> SimulatedPlant:
    """Return a plant with one container of a jobs queue."""
    queue = QueueSpec(QUEUE, "jobs", {NODE: TOTAL}, minimum_containers=1, events_per_worker=events_per_worker)
    nodes = {NODE: NodeSpec(NODE, "", Capacity(capacity_per_second))}
    return SimulatedPlant(Topology(1, nodes, {QUEUE: queue}), {HOST: SLOTS})


SHIPPED = ShippedRun(manager.SCENARIO, run)
