"""The lab's scenario `queues`: a day of queues on nodes, balanced every 15 minutes (Houtman, 4.1.2.2).

| configuration | nodes | queues, by their maximum rate [events/s] |
|---|---|---|
| 1 | 8 | six at 10, five at 100, one at 1800 |
| 2 | 6 | the same: too much for all to be below BUSY at the peak |
| 3 | 50 | 200 at 100 |
| 4 | 50 | 150 at 100, one at 5000 |

All queues follow one day-long sine in phase (or a trace; or with `step` a jump in the middle of the day, between two
decisions), each minute with its own `noise`. BUSY is 350, TOOBUSY 450 events/s. At the start, a queue has two equal
containers on two random nodes. A decision of any law uses the mean of the last four measurements (section 4.1.1.1).

Metrics: minutes in which a node was TOOBUSY, summed over nodes; points moved and moves for balance (those that empty a
released node are counted separately, as `points_moved_scaling`); mean containers and nodes used; and the longest time
for which some node was TOOBUSY.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from common.parameter import Parameter
from controllers.baselines.rebalancing import GreedyBand, Thesis
from controllers.rebalancing.allocation import Allocation, IndexedMove, ObservedNode, ObservedQueue
from controllers.rebalancing.law import Rebalancing, RebalancingParameters
from controllers.rebalancing.node_scaling import NodeScaling, NodeScalingObservation, NodeScalingParameters
from controllers.simulation import scenario
from queues.nodes.node_state import IDLE, NORMAL, OFFLINE
from queues.points import TOTAL

BUSY, TOOBUSY = 350.0, 450.0
MINUTES, DECISION_MINUTES, MEASUREMENTS = 24 * 60, 15, 4
MINIMUM_CONTAINERS, MINIMUM_POINTS = 2, 50
JUMP_MINUTE = MINUTES // 2 + DECISION_MINUTES // 2
SMALL = [10.0] * 6 + [100.0] * 5 + [1800.0]
CONFIGURATIONS: Mapping[int, tuple[int, Sequence[float]]] = {
    1: (8, SMALL),
    2: (6, SMALL),
    3: (50, [100.0] * 200),
    4: (50, [100.0] * 150 + [5000.0]),
}
THESIS_SHARES = {"random-one": 0.0, "random-25": 0.25, "random-40": 0.4}
SETTINGS = (
    Parameter(
        "configuration",
        "1 to 4",
        "Configuration of nodes and queues in section 4.1.2.2 of the thesis.",
        1,
        1,
        4,
        "integer",
    ),
    Parameter("noise", "share of the rate", "Standard deviation of the rate per minute.", 0.0, 0, 1),
    Parameter(
        "step",
        "share of the maximum rate",
        "Replaces the sine with a step: at midday, rates rise by this share, up to the maximum.",
        0.0,
        0,
        1,
    ),
)


class Balancer(Protocol):
    def decide(self, plant: Allocation, chance: np.random.Generator) -> tuple[list[IndexedMove], list[IndexedMove]]: ...


class OurLaws:
    def __init__(self, busy: float, toobusy: float) -> None:
        # The lab empties nodes within a decision, and so all unneeded ones.
        self.rebalancing, self.scaling = Rebalancing(), NodeScaling(release_at_once=None)
        self.balance_parameters = RebalancingParameters(
            busy=busy, toobusy=toobusy, minimum_containers=MINIMUM_CONTAINERS
        )
        # A quarter of an hour is quiet enough, because it is the time between decisions.
        self.scaling_parameters = NodeScalingParameters(
            busy=busy, toobusy=toobusy, minimum_containers=MINIMUM_CONTAINERS, quiet_decisions=1
        )
        self.state = self.rebalancing.start(self.balance_parameters)
        self.scaling_state = self.scaling.start(self.scaling_parameters)
        self.load_before: float | None = None

    def decide(self, plant: Allocation, chance: np.random.Generator) -> tuple[list[IndexedMove], list[IndexedMove]]:
        """Balance the current nodes first; release nodes only if that is possible entirely."""
        load = float(plant.loads.sum())
        forecast = 1.0 if not self.load_before or not load else max(1.0, 2 - self.load_before / load)
        self.load_before = load
        seen = observe_plant(plant, forecast)
        self.scaling_state, scaling = self.scaling.decide(self.scaling_parameters, self.scaling_state, seen)
        action = scaling.action or {"use": [], "release": []}
        names = {name: index for index, name in enumerate(plant.nodes)}
        released = [names[name] for name in action["release"]]
        while released:
            drained = plant.drained.copy()
            drained[released] = True
            seen = observe_plant(replace(plant, drained=drained))
            state, decision = self.rebalancing.decide(self.balance_parameters, self.state, seen)
            # Otherwise, the others would become BUSY.
            if decision.limited_by is None:
                self.state = state
                return [], index_moves(plant, decision.action)
            released = released[: len(released) // 2]
        wanted = plant.idle.copy()
        wanted[[names[name] for name in action["use"]]] = False
        plant = replace(plant, idle=wanted)
        self.state, decision = self.rebalancing.decide(self.balance_parameters, self.state, observe_plant(plant))
        return index_moves(plant, decision.action), []


def observe_plant(plant: Allocation, forecast: float = 1.0) -> NodeScalingObservation:
    """Return the plant as both laws observe it."""
    return NodeScalingObservation(
        nodes=[
            ObservedNode(
                name=name,
                capacity=float(plant.capacity[index]),
                drained=bool(plant.drained[index]),
                state=OFFLINE if plant.offline[index] else IDLE if plant.idle[index] else NORMAL,
            )
            for index, name in enumerate(plant.nodes)
        ],
        queues=[
            ObservedQueue(
                name=name,
                rate=float(plant.rate[index]),
                containers={plant.nodes[node]: points for node, points in plant.points[index].items()},
                minimum_containers=plant.minimum[index],
            )
            for index, name in enumerate(plant.queues)
        ],
        forecast=forecast,
    )


def index_moves(plant: Allocation, action: Mapping[str, Any] | None) -> list[IndexedMove]:
    nodes = {name: index for index, name in enumerate(plant.nodes)}
    queues = {name: index for index, name in enumerate(plant.queues)}
    moves = [] if action is None else action["moves"]
    return [IndexedMove(queues[m["queue"]], nodes[m["from"]], nodes[m["to"]], m["points"]) for m in moves]


def start(configuration: int, chance: np.random.Generator) -> Allocation:
    """Return the plant at midnight: two equal containers per queue, on two random nodes."""
    count, rates = CONFIGURATIONS[configuration]
    half = TOTAL // MINIMUM_CONTAINERS
    points = tuple({int(node): half for node in chance.choice(count, MINIMUM_CONTAINERS, replace=False)} for _ in rates)
    none = np.zeros(count, dtype=bool)
    return mark_idle_nodes(
        Allocation(
            nodes=tuple(f"n{index + 1}" for index in range(count)),
            capacity=np.ones(count),
            drained=none,
            offline=none,
            idle=none,
            queues=tuple(f"q{index + 1}" for index in range(len(rates))),
            rate=np.array(rates, dtype=float),
            minimum=(MINIMUM_CONTAINERS,) * len(rates),
            points=points,
        )
    )


def mark_idle_nodes(plant: Allocation) -> Allocation:
    return replace(plant, idle=np.array([not held for held in plant.at_node]))


def run(law: str, settings: Mapping[str, Any], seed: int, trace: scenario.Floats | None) -> scenario.ScenarioOutcome:
    """Run one law for a day. The random start and noise are the same for all laws of a seed."""
    plant = start(int(settings["configuration"]), scenario.create_random_generator(seed, "start"))
    rates = generate_rates(plant, settings, seed, trace)
    who: Balancer = GreedyBand() if law == "greedy-band" else OurLaws(BUSY, TOOBUSY)
    if law in THESIS_SHARES:
        who = Thesis(THESIS_SHARES[law], BUSY, TOOBUSY, MINIMUM_POINTS)
    return summarize(rates, simulate(who, plant, rates, scenario.create_random_generator(seed, law)))


def generate_rates(
    plant: Allocation, settings: Mapping[str, Any], seed: int, trace: scenario.Floats | None
) -> scenario.Floats:
    """Return the rate of each queue in each minute."""
    if trace is not None:
        profile = scenario.resample(trace, MINUTES)
    elif settings["step"]:
        profile = scenario.build_jump(MINUTES, JUMP_MINUTE, settings["step"])
    else:
        profile = scenario.compute_day_sine(MINUTES)
    shape = profile[:, None] * plant.rate[None, :]
    return scenario.add_noise(shape, settings["noise"], scenario.create_random_generator(seed, "noise"))


@dataclass
class PlantTally:
    """The record of a run: the load of each node, the containers, and the nodes in use by minute, and all moves."""

    loads: scenario.Floats
    containers: scenario.Floats
    used: scenario.Floats
    points_moved: int = 0
    moves: int = 0
    points_moved_scaling: int = 0
    moves_scaling: int = 0

    @classmethod
    def start(cls, minutes: int, nodes: int) -> "PlantTally":
        return cls(np.zeros((minutes, nodes)), np.zeros(minutes), np.zeros(minutes))


def simulate(who: Balancer, plant: Allocation, rates: scenario.Floats, chance: np.random.Generator) -> PlantTally:
    """Let a balancer decide every quarter of an hour."""
    tally = PlantTally.start(len(rates), len(plant.nodes))
    for minute in range(0, len(rates), DECISION_MINUTES):
        until = minute + DECISION_MINUTES
        # The mean of the last four measurements, at the start the first.
        before = rates[max(0, minute - MEASUREMENTS) : minute]
        plant = replace(plant, rate=np.asarray(before.mean(axis=0) if len(before) else rates[0]))
        balance, scaling = who.decide(plant, chance)
        tally.points_moved += sum(move.points for move in balance)
        tally.moves += len(balance)
        tally.points_moved_scaling += sum(move.points for move in scaling)
        tally.moves_scaling += len(scaling)
        plant = mark_idle_nodes(plant.apply([*balance, *scaling]))
        tally.loads[minute:until] = rates[minute:until] @ compute_node_shares(plant)
        tally.containers[minute:until] = sum(len(held) for held in plant.points)
        tally.used[minute:until] = (~plant.idle).sum()
    return tally


def summarize(rates: scenario.Floats, tally: PlantTally) -> scenario.ScenarioOutcome:
    loads, used, over = tally.loads, tally.used, tally.loads >= TOOBUSY
    metrics = {
        "toobusy_node_minutes": int(over.sum()),
        "points_moved": tally.points_moved,
        "moves": tally.moves,
        "containers_mean": round(float(tally.containers.mean()), 3),
        "nodes_used_mean": round(float(used.mean()), 3),
        "minutes_to_clear": max(
            (len(list(run)) for late, run in groupby(over.max(axis=1).tolist()) if late), default=0
        ),
        "points_moved_scaling": tally.points_moved_scaling,
        "moves_scaling": tally.moves_scaling,
        "busy_node_minutes": int((loads >= BUSY).sum()),
        "worst_per_second": round(float(loads.max()), 3),
    }
    series = {
        "arrivals_per_second": rates.sum(axis=1),
        "worst_node_per_second": loads.max(axis=1),
        "mean_used_node_per_second": loads.sum(axis=1) / np.maximum(used, 1),
        "toobusy_nodes": over.sum(axis=1).astype(float),
        "nodes_used": used,
        "containers": tally.containers,
    }
    if loads.shape[1] <= 10:
        series |= {f"n{node + 1}_per_second": loads[:, node] for node in range(loads.shape[1])}
    return scenario.ScenarioOutcome(metrics, series)


def compute_node_shares(plant: Allocation) -> scenario.Floats:
    """Return the share of each queue that goes to each node: queues by nodes."""
    shares = np.zeros((len(plant.queues), len(plant.nodes)))
    for queue, held in enumerate(plant.points):
        for node, points in held.items():
            shares[queue, node] = points / TOTAL
    return shares


SCENARIO = scenario.Scenario(
    "queues",
    "A day of queues on nodes, rebalanced every 15 minutes (thesis, section 4.1.2.2).",
    ("rebalancing", *THESIS_SHARES, "greedy-band"),
    SETTINGS,
    ("toobusy_node_minutes", "points_moved", "moves", "containers_mean", "nodes_used_mean", "minutes_to_clear"),
    run,
    {"rebalancing": ("rebalancing", {"goal": "below-busy"}), "greedy-band": ("rebalancing", {"goal": "band"})},
)
