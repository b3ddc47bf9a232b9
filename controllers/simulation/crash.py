"""The lab's scenario `crash`: a node stops, and its events are lost or diverted (B.1.3.2).

The run has three nodes and five queues, and takes twenty minutes, second by second. At `at` a node stops; at `restore`
it is back with its data. Both laws route by points; they differ in the detection and the response:

- rebalancing: a block that fails goes to another container at once (it is kept until it is acknowledged); the
  node is then out of the rotation, and is tried again each second; `node_scaling` restores the points of a
  node that stays OFFLINE for three beats to the others.
- thesis: the load balancer pulls each node's weights every five seconds; until a pull fails it continues to
  send, and these events are lost. Lost points are not restored (4.1.1.7).

Metrics: events lost (published, and stored nowhere); seconds from the crash until sent events arrive; and points that
were on the node and are now on the others.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from common.parameter import Parameter
from controllers.rebalancing.allocation import Allocation
from controllers.rebalancing.node_scaling import NodeScaling, NodeScalingParameters
from controllers.simulation.queues import index_moves, observe_plant
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome, create_random_generator, resample
from queues.points import share
from queues.publishing.splitter import Splitter

SECONDS, NODES = 1_200, 3
RATES = {"alert": 1_000.0, "order": 50.0, "sms": 80.0, "blogping": 120.0, "feedleecher": 150.0}
CAPACITY_PER_SECOND = 2_000.0
PULL_SECONDS, BEATS_LOST = 5, 3
BLOCK_EVENTS = 10
SETTINGS = (
    Parameter("node", "1 to 3", "Node that stops.", 2, 1, NODES, "integer"),
    Parameter("at", "s", "Time at which the node stops.", 300, 0, SECONDS - 1, "integer"),
    Parameter(
        "restore", "s", "Time at which the node returns; it stays down if the run ends first.", 900, 1, 1e6, "integer"
    ),
)


def build_initial_plant() -> Allocation:
    none = np.zeros(NODES, dtype=bool)
    names = tuple(f"n{index + 1}" for index in range(NODES))
    points = {names.index(name): points for name, points in share(names).items()}
    return Allocation(
        names,
        np.full(NODES, CAPACITY_PER_SECOND),
        none,
        none,
        none,
        tuple(RATES),
        np.array(list(RATES.values())),
        (2,) * len(RATES),
        (points,) * len(RATES),
    )


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run one law for twenty minutes; the instant of the pull is random."""
    plant = before = build_initial_plant()
    dead, at, until = int(settings["node"]) - 1, int(settings["at"]), int(settings["restore"])
    total = sum(RATES.values())
    rates = np.full(SECONDS, total) if trace is None else total * resample(trace, SECONDS)
    publisher, sent = _Publisher(plant, dead, resends=law != "thesis"), np.zeros(SECONDS)
    phase = int(create_random_generator(seed, law).integers(PULL_SECONDS))
    # There are three nodes for queues of two containers: none may be released while one may fail.
    scaling, parameters = NodeScaling(), NodeScalingParameters(lost_decisions=BEATS_LOST, minimum_containers=NODES)
    state = scaling.start(parameters)
    for second in range(SECONDS):
        is_down = at <= second < until
        if not publisher.resends:
            if second % PULL_SECONDS == phase:
                (publisher.exclude if is_down else publisher.admit)()
            sent[second] = publisher.publish(plant, rates[second], second, is_down)
            continue
        # The node is tried again each second, as by the client.
        publisher.admit()
        sent[second] = publisher.publish(plant, rates[second], second, is_down)
        offline = np.zeros(NODES, dtype=bool)
        offline[dead] = is_down
        state, decision = scaling.decide(parameters, state, observe_plant(replace(plant, offline=offline)))
        if decision.action is not None and decision.action["restore"]:
            plant = plant.apply(index_moves(plant, {"moves": decision.action["restore"]}))
            publisher.follow(plant)
    diverted, crashes = 0.0, at < min(until, SECONDS)
    if crashes and not publisher.resends:
        # A node that is excluded in the same second as its crash receives no attempts to publish.
        diverted = 0.0 if publisher.last_first_try is None else publisher.last_first_try - at
    elif crashes:
        # An event that is tried first at a dead node arrives elsewhere at once: only the first try counts.
        diverted = next((second - at for second in range(at, SECONDS) if sent[second]), 0.0)
    living = [
        sum(points for held in plant_state.points for node, points in held.items() if node != dead)
        for plant_state in (before, plant)
    ]
    metrics = {
        "events_lost": (publisher.published - publisher.stored) * BLOCK_EVENTS,
        "seconds_to_divert": round(float(diverted), 3),
        "points_restored": living[1] - living[0],
    }
    return ScenarioOutcome(metrics, {"tried_at_node_per_second": sent}, 1.0)


class _Publisher:
    def __init__(self, plant: Allocation, dead: int, resends: bool) -> None:
        self.dead, self.resends = dead, resends
        self.splitters: list[Splitter] = []
        self.follow(plant)
        self.published = self.stored = 0
        self.last_first_try: float | None = None

    def follow(self, plant: Allocation) -> None:
        """Route by new points; excluded nodes stay excluded."""
        points = [{str(node): amount for node, amount in held.items()} for held in plant.points]
        if not self.splitters:
            self.splitters = [Splitter(point) for point in points]
        for splitter, queue_points in zip(self.splitters, points, strict=True):
            splitter.set_points(queue_points)

    def exclude(self) -> None:
        for splitter in self.splitters:
            splitter.exclude(str(self.dead))

    def admit(self) -> None:
        for splitter in self.splitters:
            splitter.admit(str(self.dead))

    def publish(self, plant: Allocation, rate_per_second: float, second: int, down: bool) -> float:
        """Publish one second of blocks, by queue; return the events tried first at the node."""
        tried, all_queues = 0, float(plant.rate.sum())
        for queue, rate in enumerate(plant.rate):
            # Blocks add up over the seconds: the difference between those due until now and until before.
            per_second = rate_per_second * float(rate) / all_queues / BLOCK_EVENTS
            count = math.floor((second + 1) * per_second) - math.floor(second * per_second)
            for index in range(count):
                self.published += 1
                node = int(self.splitters[queue].pick_container())
                tried += node == self.dead
                if down and node == self.dead:
                    self.last_first_try = second + index / count
                    if not self.resends:
                        continue
                    # The block is kept until it is acknowledged: after a failure it goes to the next container.
                    self.exclude()
                    node = int(self.splitters[queue].pick_container())
                self.stored += node != self.dead or not down
        return float(tried * BLOCK_EVENTS)


SCENARIO = Scenario(
    "crash",
    "A node stops and returns (thesis, appendix B.1.3.2).",
    ("rebalancing", "thesis"),
    SETTINGS,
    ("events_lost", "seconds_to_divert", "points_restored"),
    run,
)
