"""The lab's scenario `ladder`: ten minutes of overload, its losses and delays, and the time to recover.

A plant of 1000 events/s (workers badly placed at first: `MISPLACED` of it) is offered 600 events/s, then
`overload_percent` % of 1000, then 600 again. A fifth of the events are orders, which are never shed. Effects of the
levels: rebalancing restores the full 1000 after 15 s; workers add 100 events/s every 5 s up to 1400; two idle nodes add
300 each, 30 s after the request; throttled producers keep the events that aren't admitted and send them later, as far
as they have room (`HELD_EVENTS`); shedding drops what exceeds the capacity.

| law | |
|---|---|
| ladder | levels in order, each when the one below is exhausted; `cap` is the events', throttle the orders' |
| shed-only | drops everything that exceeds the capacity at once |
| none | everything waits |

levels              the highest level that was reached
lost_events        shed, including orders (`lost_orders`)
seconds_to_normal  from the end of the overload until nothing waits longer than a second, and nothing is held,
                   throttled, or shed; null if that does not happen within the run
shed_too_early     events shed while a lower level could still do more
shed_after_decisions  decisions after the overload's end until nothing was shed
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common.parameter import Parameter
from controllers.shedding.ladder import LAW as LADDER
from controllers.shedding.ladder import LEVELS, LadderObservation, LadderParameters, LadderState, allows
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome, resample

DECISION_SECONDS, START_SECONDS, OVERLOAD_SECONDS, SECONDS = 5, 300, 600, 3_600
END_SECONDS = START_SECONDS + OVERLOAD_SECONDS
BASE, QUIET, MISPLACED = 1_000.0, 0.6, 0.85
REBALANCE_SECONDS, NODE_SECONDS = 15, 30
WORKERS_STEP, MAX_WORKERS, NODE_ADDS, NODES_IDLE = 0.1, 1.4, 0.3, 2
ORDERS, HELD_EVENTS = 0.2, 60_000.0
SETTINGS = (
    Parameter("overload_percent", "% of 1000 events/s", "Offered load.", 300.0, 1, 1_000),
    Parameter("cap", "choice", "Highest remedy level for the queue of events.", "shed", kind="choice", choices=LEVELS),
)


@dataclass
class SimulatedLadder:
    """The effects of the levels so far; capacities in units of `BASE`."""

    placed: float = MISPLACED
    placing: int = 0
    workers: float = 1.0
    nodes: int = 0
    starting: list[int] = field(default_factory=list)

    def compute_capacity(self) -> float:
        """Return the capacity in events/s."""
        return BASE * self.placed * (self.workers + NODE_ADDS * self.nodes)

    def list_exhausted_levels(self, held_back: float) -> dict[str, bool]:
        return {
            "rebalance": self.placed >= 1.0,
            "workers": self.workers >= MAX_WORKERS - 1e-9,
            "nodes": self.nodes >= NODES_IDLE,
            "throttle": held_back >= HELD_EVENTS - 1e-6,
        }

    def simulate_second(self, levels: Collection[str], decides: bool) -> None:
        if "rebalance" in levels and self.placed < 1.0:
            self.placing += 1
            self.placed = 1.0 if self.placing >= REBALANCE_SECONDS else self.placed
        if "workers" in levels and decides:
            self.workers = min(MAX_WORKERS, self.workers + WORKERS_STEP)
        if "nodes" in levels and self.nodes + len(self.starting) < NODES_IDLE:
            self.starting.append(NODE_SECONDS)
        self.starting = [left - 1 for left in self.starting]
        self.nodes += sum(left <= 0 for left in self.starting)
        self.starting = [left for left in self.starting if left > 0]


@dataclass
class QueueLane:
    """A queue: its backlog, the events that its producers hold back, and its ladder."""

    cap: str
    share: float  # of the plant
    state: LadderState = field(default_factory=LadderState)
    waiting: float = 0.0
    held_back: float = 0.0
    lost: float = 0.0
    level: int = 0


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run one law for an hour; the arrivals are the same for all laws, without randomness."""
    offered, lanes = generate_offered(settings, trace), build_lanes(settings)
    plant, tally = SimulatedLadder(), LadderTally()
    for second, demand in enumerate(offered.tolist()):
        decides = second % DECISION_SECONDS == 0
        if decides:
            for lane in lanes.values():
                _decide(law, plant, lane, demand * lane.share)
        level = max(lane.level for lane in lanes.values()) if law == "ladder" else 0
        plant.simulate_second(LEVELS[:level], decides)
        capacity = plant.compute_capacity()
        dropped = [_pass(lane, demand * lane.share, capacity * lane.share) for lane in lanes.values()]
        tally.record_second(plant, lanes, sum(dropped))
    return tally.summarize(lanes, offered)


def generate_offered(settings: Mapping[str, Any], trace: Floats | None) -> Floats:
    """Return the events offered in each second."""
    height, at = BASE * settings["overload_percent"] / 100, np.arange(SECONDS)
    if trace is not None:
        return np.asarray(height * resample(trace, SECONDS))
    return np.where((at >= START_SECONDS) & (at < END_SECONDS), height, BASE * QUIET)


def build_lanes(settings: Mapping[str, Any]) -> dict[str, QueueLane]:
    """Return the queues of events and orders."""
    return {"events": QueueLane(str(settings["cap"]), 1 - ORDERS), "orders": QueueLane("throttle", ORDERS)}


def _decide(law: str, plant: SimulatedLadder, lane: QueueLane, demand: float) -> None:
    capacity = plant.compute_capacity() * lane.share
    if law == "shed-only":
        lane.level = len(LEVELS) if demand > capacity and lane.cap == "shed" else 0
    elif law == "ladder":
        observation = LadderObservation(
            demand_per_second=demand,
            capacity_per_second=capacity,
            backlog_seconds=lane.waiting / capacity,
            saturated=plant.list_exhausted_levels(lane.held_back / lane.share),
        )
        lane.state, _ = LADDER.decide(LadderParameters(cap=lane.cap), lane.state, observation)
        lane.level = lane.state.rung


def _pass(lane: QueueLane, demand: float, capacity: float) -> float:
    """Process one second of one queue; return the shed events."""
    room = max(0.0, capacity - lane.waiting)
    came = demand + lane.held_back
    lane.held_back = 0.0
    if allows(lane.level, "throttle"):
        lane.held_back = min(max(0.0, came - room), HELD_EVENTS * capacity / BASE)
        came -= lane.held_back
    dropped = max(0.0, came - room) if allows(lane.level, "shed") else 0.0
    lane.lost += dropped
    lane.waiting = max(0.0, lane.waiting + came - dropped - capacity)
    return dropped


@dataclass
class LadderTally:
    """The sums over the seconds."""

    early: float = 0.0
    waiting: list[float] = field(default_factory=list)
    settled: list[bool] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    shed: list[float] = field(default_factory=list)

    def record_second(self, plant: SimulatedLadder, lanes: Mapping[str, QueueLane], dropped: float) -> None:
        saturated = plant.list_exhausted_levels(0.0)
        exhausted = all(saturated[level] for level in LEVELS[:-1] if level != "throttle")
        self.early += 0.0 if exhausted else dropped
        level, waiting = max(lane.level for lane in lanes.values()), sum(lane.waiting for lane in lanes.values())
        held = sum(lane.held_back for lane in lanes.values())
        self.shed.append(dropped)
        self.levels.append(float(level))
        self.waiting.append(waiting)
        self.settled.append(
            waiting <= plant.compute_capacity() and held <= 1.0 and level < LEVELS.index("throttle") + 1
        )

    def summarize(self, lanes: Mapping[str, QueueLane], offered: Floats) -> ScenarioOutcome:
        unsettled = [second for second in range(END_SECONDS, SECONDS) if not self.settled[second]]
        last = unsettled[-1] + 1 if unsettled else END_SECONDS
        last_shed = max((second for second, dropped in enumerate(self.shed) if dropped > 0), default=-1)
        metrics = {
            "rungs": int(max(self.levels)),
            "lost_events": round(sum(lane.lost for lane in lanes.values()), 3),
            "seconds_to_normal": last - END_SECONDS if last < SECONDS else None,
            "lost_orders": round(lanes["orders"].lost, 3),
            "shed_too_early": round(self.early, 3),
            "shed_after_decisions": max(0, last_shed - END_SECONDS + DECISION_SECONDS) // DECISION_SECONDS,
        }
        series = {
            "offered_per_second": offered,
            "waiting_events": np.asarray(self.waiting),
            "rung": np.asarray(self.levels),
            "shed_per_second": np.asarray(self.shed),
        }
        return ScenarioOutcome(metrics, series, 1.0)


SCENARIO = Scenario(
    "ladder",
    "Ten minutes of overload: losses and recovery time.",
    ("ladder", "shed-only", "none"),
    SETTINGS,
    ("rungs", "lost_events", "seconds_to_normal"),
    run,
)
