"""The shipped run of the scenario `churn`: the loops that move points and take nodes into use.

A person has set node scaling to auto, and drains the nodes that are to leave. The plant has no history, so nothing is
forecast. Recovery doesn't run in the twin: node scaling restores the points of lost nodes.

`decision_seconds_worst` and `_mean` include the snapshot.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from controllers.rebalancing.allocation import Allocation
from controllers.rebalancing.law import LAW as REBALANCING
from controllers.rebalancing.node_scaling import LAW as NODE_SCALING
from controllers.simulation import churn
from controllers.simulation.churn import DECISION_MINUTES, ChurnTally, NodeChurn
from controllers.simulation.queues import mark_idle_nodes
from controllers.simulation.scenario import Floats, ScenarioOutcome, create_random_generator
from workers.models import Loop, Plan
from workers.placement.moves import replace_node
from workers.twin.catalog import ShippedRun
from workers.twin.queues import STEP_SECONDS, build_plant
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

STEPS = round(60 / STEP_SECONDS)


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the loops on the scenario's membership and arrivals."""
    allocation = churn.place_initially(settings, seed)
    rates = churn.generate_rates(allocation, settings, seed, trace)
    plant = build_plant(allocation)
    twin = Twin(plant, [REBALANCING.name, NODE_SCALING.name], modes={NODE_SCALING.name: Loop.Mode.AUTO})
    there, tally = NodeChurn.start_with(len(allocation.nodes)), ChurnTally()
    members = create_random_generator(seed, "members")
    # As the law, the loops decide before the first minute, which the random placement would overload.
    for minute in range(-DECISION_MINUTES, len(rates)):
        now_per_second = rates[max(0, minute)]
        if minute >= 0 and minute % DECISION_MINUTES == 0:
            there.step(minute, settings, members)
        loads, heirs = np.zeros(len(allocation.nodes)), np.zeros(len(allocation.nodes), dtype=bool)
        for _ in range(STEPS):
            now = there.apply_absences(read_points(plant, allocation), minute)
            apply_membership(plant, now)
            shares, diverted = churn.compute_diverted_shares(now)
            publish(plant, now, now_per_second[:, None] * shares)
            loads, heirs = loads + now_per_second @ shares / STEPS, heirs | diverted
            began = time.process_time()
            twin.pass_time(STEP_SECONDS)
            tally.seconds.append(time.process_time() - began)
        if minute >= 0:
            now = there.apply_absences(read_points(plant, allocation), minute)
            tally.count_loads(now, loads[None, :], heirs)
    for kind, made in plant.plans.made.items():
        tally.count_moves([move.points for move in made], restored=kind == Plan.Kind.RESTORE)
    return tally.summarize(settings)


def read_points(plant: SimulatedPlant, allocation: Allocation) -> Allocation:
    nodes = {name: index for index, name in enumerate(allocation.nodes)}
    points = (plant.topology.queue(name).live_points for name in allocation.queues)
    held = tuple({nodes[node]: amount for node, amount in by_node.items()} for by_node in points)
    return mark_idle_nodes(replace(allocation, points=held))


def apply_membership(plant: SimulatedPlant, now: Allocation) -> None:
    """Stop the heartbeats of absent nodes, and drain the nodes that are leaving."""
    for name, offline, drained in zip(now.nodes, now.offline.tolist(), now.drained.tolist(), strict=True):
        plant.nodes[name].silent = offline
        if plant.topology.nodes[name].drained != drained:
            plant.topology = replace_node(plant.topology, name, drained=drained)


def publish(plant: SimulatedPlant, now: Allocation, per_second: Floats) -> None:
    """Publish a step's events to the nodes that respond; workers remove them at once."""
    for queue, node in np.argwhere(per_second > 0).tolist():
        container = plant.container(now.queues[queue], now.nodes[node])
        container.insert(STEP_SECONDS * per_second[queue, node], plant.clock())
        container.remove(container.waiting_events)


SHIPPED = ShippedRun(churn.SCENARIO, run)
