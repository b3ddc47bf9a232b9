"""The lab's scenario `churn`: a large plant whose nodes leave and join, balanced every five minutes.

`nodes` nodes hold `containers` containers, two per queue. The queues' rates follow Zipf's law with exponent
0.7, limited to what their containers can carry, times a day-long sine (or a trace) between `valley` and 1;
each minute has its own `noise`. At the peak the plant is filled to `fill` of the load that its nodes carry without
being BUSY. BUSY is 350, TOOBUSY 450 events/s.

Each hour, a share `leaving` of the nodes is drained and leaves half an hour later; a new node takes the place after
another half hour. A share `failing` stops at once, with its points, and is replaced in the same way. While a node is
unreachable, its queues' other containers carry its load, because the splitter routes around it.

A decision uses the mean of the last four measurements. The time of a decision is not simulated and differs from run to
run: `decision_seconds_worst` and `_mean`, in CPU time.

toobusy_node_minutes   minutes in which a node was TOOBUSY, summed over nodes
of_failures            those of a node that carried load for an unreachable one, before the next decision
points_moved           for balance and drained nodes; `points_restored` are created again, not moved
moved_share            points moved per hour, as a share of all points
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from common.parameter import Parameter
from controllers.baselines.rebalancing import GreedyBand
from controllers.rebalancing.allocation import Allocation, Flags
from controllers.rebalancing.node_scaling import find_restoring_moves
from controllers.simulation.queues import (
    BUSY,
    MEASUREMENTS,
    TOOBUSY,
    Balancer,
    OurLaws,
    compute_node_shares,
    mark_idle_nodes,
)
from controllers.simulation.scenario import (
    Floats,
    Scenario,
    ScenarioOutcome,
    SimulationCost,
    SimulationSize,
    add_noise,
    create_random_generator,
    resample,
)
from queues.points import TOTAL

DECISION_MINUTES, DAY_MINUTES, HOUR_MINUTES = 5, 24 * 60, 60
NOTICE_MINUTES, ABSENT_MINUTES = 30, 30
# A node that was unreachable at two decisions in a row is lost, as in the law `node_scaling`.
LOST_MINUTES = 2 * DECISION_MINUTES
ZIPF_EXPONENT, HOLDERS = 0.7, 2
# Maximum rate of a queue, as a share of what its containers' nodes carry without being BUSY.
GREATEST_QUEUE = 0.7
SETTINGS = (
    Parameter("nodes", "nodes", "Maximum number of nodes.", 1_000, 4, 10_000, "integer"),
    Parameter("containers", "containers", "Containers of all queues, two per queue.", 5_000, 4, 100_000, "integer"),
    Parameter("hours", "h", "Duration of the run; the peak is in the middle.", 6, 1, 168, "integer"),
    Parameter("fill", "share of BUSY", "Load of the plant at the peak.", 0.8, 0.01, 1),
    Parameter("valley", "share of the peak", "Load half a day before the peak.", 0.5, 0, 1),
    Parameter("noise", "share of the rate", "Standard deviation of the rate per minute.", 0.05, 0, 1),
    Parameter("leaving", "share per hour", "Nodes that are drained and replaced.", 0.02, 0, 1),
    Parameter("failing", "share per hour", "Nodes that stop without a drain and are replaced.", 0.002, 0, 1),
)


@dataclass
class NodeChurn:
    """The presence of nodes: the minute until which each drains, or is absent."""

    drains_until: Floats
    away_until: Floats
    away_since: Floats

    @classmethod
    def start_with(cls, nodes: int) -> "NodeChurn":
        return cls(np.full(nodes, np.inf), np.full(nodes, -np.inf), np.full(nodes, np.inf))

    def step(self, minute: int, settings: Mapping[str, Any], chance: np.random.Generator) -> None:
        self._leave(self.drains_until <= minute, minute)
        self.away_since[self.away_until <= minute] = np.inf
        there = np.flatnonzero(np.isinf(self.drains_until) & (self.away_until <= minute))
        share = DECISION_MINUTES / HOUR_MINUTES
        drained = chance.random(len(there)) < settings["leaving"] * share
        failed = chance.random(len(there)) < settings["failing"] * share
        self.drains_until[there[drained & ~failed]] = minute + NOTICE_MINUTES
        self._leave(np.isin(np.arange(len(self.away_until)), there[failed]), minute)

    def _leave(self, who: Flags, minute: int) -> None:
        self.drains_until[who] = np.inf
        self.away_until[who] = minute + ABSENT_MINUTES
        self.away_since[who] = minute

    def apply_absences(self, plant: Allocation, minute: int) -> Allocation:
        return mark_idle_nodes(replace(plant, drained=np.isfinite(self.drains_until), offline=self.away_until > minute))

    def list_abandoned_nodes(self, minute: int) -> frozenset[int]:
        return frozenset(np.flatnonzero(minute - self.away_since >= LOST_MINUTES).tolist())


@dataclass
class ChurnTally:
    """The record of a run: moves, TOOBUSY node-minutes, the time of decisions, and nodes in use."""

    moved: int = 0
    restored: int = 0
    moves: int = 0
    toobusy: int = 0
    of_failures: int = 0
    worst: list[Floats] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    used: list[int] = field(default_factory=list)

    def count_moves(self, points: Sequence[int], restored: bool = False) -> None:
        if restored:
            self.restored += sum(points)
        else:
            self.moved += sum(points)
            self.moves += len(points)

    def count_loads(self, plant: Allocation, loads: Floats, heirs: Flags) -> None:
        """Count minutes of loads, by minute and node. heirs: the nodes that carry load for an unreachable one."""
        self.toobusy += int((loads >= TOOBUSY).sum())
        self.of_failures += int((loads >= TOOBUSY)[:, heirs].sum())
        self.used.append(int((~plant.idle & ~plant.offline).sum()))
        self.worst.append(loads.max(axis=1))

    def summarize(self, settings: Mapping[str, Any]) -> ScenarioOutcome:
        points = int(settings["containers"]) // HOLDERS * TOTAL
        metrics = {
            "toobusy_node_minutes": self.toobusy,
            "of_failures": self.of_failures,
            "points_moved": self.moved,
            "moved_share": round(self.moved / points / float(settings["hours"]), 6),
            "moves": self.moves,
            "points_restored": self.restored,
            "nodes_used_mean": round(float(np.mean(self.used)), 3),
            "decision_seconds_worst": round(max(self.seconds), 3),
            "decision_seconds_mean": round(float(np.mean(self.seconds)), 3),
        }
        return ScenarioOutcome(metrics, {"worst_node_per_second": np.concatenate(self.worst)})


def place_initially(settings: Mapping[str, Any], seed: int) -> Allocation:
    nodes, queues = int(settings["nodes"]), int(settings["containers"]) // HOLDERS
    chance = create_random_generator(seed, "start")
    weights = 1 / np.arange(1, queues + 1) ** ZIPF_EXPONENT
    rates = weights / weights.sum() * nodes * BUSY * settings["fill"]
    none = np.zeros(nodes, dtype=bool)
    held = (chance.choice(nodes, HOLDERS, replace=False).tolist() for _ in range(queues))
    return Allocation(
        nodes=tuple(f"n{index + 1}" for index in range(nodes)),
        capacity=np.ones(nodes),
        drained=none,
        offline=none,
        idle=none,
        queues=tuple(f"q{index + 1}" for index in range(queues)),
        rate=np.minimum(rates, HOLDERS * BUSY * GREATEST_QUEUE),
        minimum=(HOLDERS,) * queues,
        points=tuple(dict.fromkeys(pair, TOTAL // HOLDERS) for pair in held),
    )


def build_load_profile(settings: Mapping[str, Any], trace: Floats | None) -> Floats:
    """Return the load per minute as a share of the peak, which is in the middle."""
    minutes = int(settings["hours"]) * HOUR_MINUTES
    if trace is not None:
        return resample(trace, minutes)
    from_peak = (np.arange(minutes) - minutes / 2) / DAY_MINUTES
    return np.asarray(settings["valley"] + (1 - settings["valley"]) * (1 + np.cos(2 * np.pi * from_peak)) / 2)


def generate_rates(plant: Allocation, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> Floats:
    """Return the rate of each queue in each minute."""
    shape = build_load_profile(settings, trace)[:, None] * plant.rate[None, :]
    return add_noise(shape, settings["noise"], create_random_generator(seed, "noise"))


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run one law. Membership and arrivals are the same for all laws of a seed."""
    plant = place_initially(settings, seed)
    rates = generate_rates(plant, settings, seed, trace)
    who: Balancer = GreedyBand() if law == "greedy-band" else OurLaws(BUSY, TOOBUSY)
    there, tally = NodeChurn.start_with(len(plant.nodes)), ChurnTally()
    members, chance = create_random_generator(seed, "members"), create_random_generator(seed, law)
    for minute in range(0, len(rates), DECISION_MINUTES):
        mean = rates[max(0, minute - MEASUREMENTS) : max(1, minute)].mean(axis=0)
        plant = there.apply_absences(replace(plant, rate=mean), minute)
        # Points of lost nodes are restored elsewhere, whatever the law.
        gone = there.list_abandoned_nodes(minute)
        restored = find_restoring_moves(plant, gone) if gone else []
        tally.count_moves([move.points for move in restored], restored=True)
        plant = mark_idle_nodes(plant.apply(restored))
        began = time.process_time()
        moves = [move for part in who.decide(plant, chance) for move in part]
        tally.seconds.append(time.process_time() - began)
        tally.count_moves([move.points for move in moves])
        plant = mark_idle_nodes(plant.apply(moves))
        there.step(minute, settings, members)
        # The minutes until the next decision, with the nodes that have left since.
        now = there.apply_absences(plant, minute)
        shares, heirs = compute_diverted_shares(now)
        tally.count_loads(now, rates[minute : minute + DECISION_MINUTES] @ shares, heirs)
    return tally.summarize(settings)


def compute_diverted_shares(plant: Allocation) -> tuple[Floats, Flags]:
    """Return the share of each queue that goes to each node, and the nodes that carry load for an unreachable one."""
    shares = compute_node_shares(plant)
    shares[:, plant.offline] = 0.0
    silent = 1 - shares.sum(axis=1)
    heirs = (shares[silent > 1e-9] > 0).any(axis=0)
    return shares / np.where(silent < 1, 1 - silent, 1.0)[:, None], heirs


def estimate_cost(settings: Mapping[str, Any]) -> SimulationCost:
    """Fitted to runs of 100 to 10,000 nodes and 5,000 to 100,000 containers."""
    nodes, queues, hours = settings["nodes"], settings["containers"] / HOLDERS, settings["hours"]
    cpu_seconds = hours * (4e-7 * nodes * queues + 3.2e-4 * queues)
    return SimulationCost(cpu_seconds, 24.0 * hours * HOUR_MINUTES * queues + 16.0 * nodes * queues)


SCENARIO = Scenario(
    "churn",
    "A plant of a thousand nodes that leave and join.",
    ("rebalancing", "greedy-band"),
    SETTINGS,
    ("toobusy_node_minutes", "of_failures", "points_moved", "moved_share", "decision_seconds_worst"),
    run,
    {"greedy-band": ("rebalancing", {"goal": "band"})},
    SimulationSize(("nodes", "containers", "hours"), "Reduce nodes, containers, or hours.", estimate_cost),
)
