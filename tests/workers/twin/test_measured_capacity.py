"""A node with half of its declared capacity on the simulated plant: its measured capacity keeps it from being BUSY."""

import math

from controllers.rebalancing.law import LAW as REBALANCING
from queues.topology import Capacity, NodeSpec, QueueSpec, Topology
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

DECLARED, REAL, STEP_SECONDS = 500.0, 250.0, 15
HOURS, STEADY_HOURS = 8, 2
MEAN, SWING = 500.0, 200.0  # events/s of the whole plant
SHARES = {"alert": 0.5, "sms": 0.3, "order": 0.2}


def run(capacity: str) -> tuple[int, float]:
    """Return the seconds above BUSY of the slow node, and the points that were moved."""
    nodes = {name: NodeSpec(name, "", Capacity(DECLARED)) for name in ("n1", "n2", "n3")}
    queues = {name: QueueSpec(name, "jobs", {"n1": 334, "n2": 333, "n3": 333}) for name in SHARES}
    plant = SimulatedPlant(Topology(1, nodes, queues))
    for name, node in plant.nodes.items():
        node.real_per_second = REAL if name == "n1" else DECLARED
    twin = Twin(plant, [REBALANCING.name], parameters={REBALANCING.name: {"capacity": capacity}})
    busy = 0
    for step in range(HOURS * 3_600 // STEP_SECONDS):
        hours = step * STEP_SECONDS / 3_600 - STEADY_HOURS
        load = MEAN + SWING * math.sin(max(0.0, hours) / (HOURS - STEADY_HOURS) * 2 * math.pi)
        for name, share in SHARES.items():
            for node, points in plant.topology.queue(name).live_points.items():
                container = plant.container(name, node)
                container.insert(STEP_SECONDS * load * share * points / 1_000, plant.clock())
                container.remove(container.waiting_events)
        twin.pass_time(STEP_SECONDS)
        slow = plant.observe().nodes["n1"]
        busy += STEP_SECONDS * ((slow.utilisation or 0.0) >= slow.busy)
    return busy, sum(move.points for moves in plant.plans.made.values() for move in moves)


def test_the_measured_capacity_keeps_a_slow_node_from_being_busy():
    before, _ = run("declared")
    after, points = run("measured")
    assert before > 2 * 3_600
    assert after < 0.05 * before
    assert points < 300
