"""The shipped run of the scenario `balance`: the shares of an application's replicas.

The dispatcher divides the events of a second by the shares that are in force at its start, and assigns a piece to each
replica. A replica reports the batch of a piece, with its response time, when the batch has finished.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from common.errors import BadInput
from controllers.flow.balance import LAW
from controllers.simulation import balance
from controllers.simulation.scenario import Floats, ScenarioOutcome
from queues.points import TOTAL
from queues.topology import NodeSpec, QueueSpec, Topology
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declaration import MAX_REPLICAS
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

QUEUE, NODE, APPLICATION = "telemetry", "n1", "performance"
DECLARATION = """
name: {name}
queues: [{queue}]
sink: alert
replicas: {replicas}
patterns:
  - name: any
    pattern: SEQ(A)
    define: {{A: 'type == "A"'}}
    key: source
    within_seconds: 1
    emits: any
"""


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the loop with and without the hog. Raise `BadInput` for more replicas than an application can have."""
    if settings["replicas"] > MAX_REPLICAS:
        raise BadInput("--set replicas", f"must be at most {MAX_REPLICAS} with --shipped, the limit of an application")
    events = balance.generate_arrivals(settings, seed, trace)
    delay = int(settings["delay"])
    responses, received = simulate(events, balance.generate_capacities(settings, seed), delay)
    calm, _ = simulate(events, balance.generate_capacities({**settings, "hog": 0.0}, seed), delay)
    return balance.summarize(events, responses, received, calm)


def simulate(events: Floats, capacities: Floats, delay: int = 0) -> tuple[Floats, Floats]:
    """Return (response seconds, events received) per second and replica.

    capacities: events per second, by second. delay: seconds until new shares take effect.
    """
    plant = build_plant(replicas=capacities.shape[1])
    application, container = plant.applications[APPLICATION], plant.container(QUEUE, NODE)
    names, replicas = application.declared.replicas, balance.SimulatedReplicas(capacities.shape[1])
    twin = Twin(plant, [LAW.name])
    responses, received = np.zeros(capacities.shape), np.zeros(capacities.shape)
    ordered: deque[Controls] = deque([plant.get_controls(APPLICATION)] * delay)  # not in effect yet, oldest first
    running: list[tuple[float, str, float, float, float]] = []  # batches: end, replica, events, seconds, response
    for second, arriving in enumerate(events.tolist()):
        ordered.append(plant.get_controls(APPLICATION))
        controls, began = ordered.popleft(), plant.clock()
        container.insert(arriving, began)
        container.remove(arriving)
        application.dispatch(arriving, controls)
        shares = controls.compute_shares(names)
        received[second] = [arriving * shares[name] for name in names]
        responses[second] = replicas.process(received[second], capacities[second])
        for name, given, capacity, response in zip(
            names, received[second], capacities[second], responses[second], strict=True
        ):
            application.assign(name, float(given), controls)
            end = began + balance.BATCH_SECONDS / 2 + float(response)
            running.append((end, name, float(given), float(given / capacity), float(response)))
        ended = sorted(batch for batch in running if batch[0] < began + 1.0)
        running = [batch for batch in running if batch[0] >= began + 1.0]
        for end, name, done, seconds, response in ended:
            plant.clock.now = end
            application.finish_replica_batch(name, done, seconds, response)
        plant.clock.now = began
        application.finish_batch(balance.OVERHEAD_SECONDS)
        twin.pass_time()
    return responses, received


def build_plant(replicas: int) -> SimulatedPlant:
    """Return a plant with one application that has this number of replicas."""
    nodes = {NODE: NodeSpec(NODE, "")}
    queue = QueueSpec(QUEUE, "pipeline", {NODE: TOTAL}, minimum_containers=1)
    plant = SimulatedPlant(Topology(1, nodes, {QUEUE: queue}))
    plant.add_application(DECLARATION.format(name=APPLICATION, queue=QUEUE, replicas=replicas))
    return plant


SHIPPED = ShippedRun(balance.SCENARIO, run)
