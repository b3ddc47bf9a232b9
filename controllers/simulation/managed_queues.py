"""The lab's scenario `managed-queues`: three unequal nodes, five queues, and a manager for each container (Houtman, B).

Nodes n1 and n2 do 1,000 operations/s, n3 half of that. An insert and a taken event cost one operation each, and a
worker run costs `WORKER_OPERATIONS`. Above its capacity, a node inserts first, then pays for its workers, and what is
left takes events: more workers then take fewer events (the death spiral of B.58). Workers run in a batch system with 68
slots, for 1 s, or longer on an overloaded node. Queues are rebalanced every 15 min.

| event | course |
|---|---|
| day | a day in 4 h with a service interruption; all starts on n1 and n3 (B.9 to B.13, B.43 to B.57) |
| overload | n1 has given its points to n3, which can't carry them (B.58 to B.60) |
| manager-crash | the manager of alert on n1 stops, and its successor starts 5 s later without memory (B.61, B.62) |
| node-crash | n2 is down for ten minutes; the thesis' balancer notices within 5 s (B.18 to B.21) |

Laws: `weir` has the shipped laws of nodes and workers; `thesis` moves 40 % of the containers of a TOOBUSY node, and its
managers adjust the rate to the queue length.

toobusy_node_minutes   minutes in which a node was TOOBUSY, summed over nodes
waiting_greatest       greatest number of waiting events, and `waiting_end` at the end
worker_runs            runs of all workers; `minimum_runs` are all events over a worker's events
overshoot_rate         greatest worker rate of alert's container on n1 (overload: n3) from the event on, over the rate
                       that its arrivals need at the start
seconds_to_restore     from the event until the queue of that container stays within the upper limit
events_lost            events sent to a node that is down
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from common.parameter import Parameter
from controllers.baselines.rebalancing import Thesis
from controllers.rebalancing.allocation import Allocation
from controllers.simulation.manager import THESIS
from controllers.simulation.queues import Balancer, OurLaws, compute_node_shares, mark_idle_nodes
from controllers.simulation.scenario import (
    Floats,
    Scenario,
    ScenarioOutcome,
    add_noise,
    compute_day_sine,
    create_random_generator,
    resample,
)
from controllers.worker_rate.law import WorkerRate
from controllers.worker_rate.shared import WorkerRateObservation, WorkerRateParameters
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE, TOOBUSY

QUEUES = {"alert": 1_000.0, "order": 50.0, "sms": 80.0, "blogping": 120.0, "feedleecher": 150.0}
CAPACITY, LIMITS = np.array([1_000.0, 1_000.0, 500.0]), (0.7, 0.9)
WORKER_OPERATIONS, EVENTS_PER_WORKER, SLOTS, MAX_STRETCH = 6.0, 400, 68, 30.0
DAY_SECONDS, EVENT_SECONDS, DECISION_SECONDS, COMPRESSION = 14_400, 3_600, 900, 6
AT, MANAGER_DOWN_SECONDS, NODE_DOWN_SECONDS, PULL_SECONDS = 600, 5, 600, 5
INTERRUPTION, STEADY = (0.25, 0.28), 0.85
# Points on n1, n2, and n3 at the start.
START = {"day": (500, 0, 500), "overload": (0, 500, 500), "manager-crash": (500, 500, 0), "node-crash": (400, 400, 200)}
SETTINGS = (
    Parameter("event", "choice", "What happens during the run.", "day", kind="choice", choices=tuple(START)),
    Parameter("backlog", "0 or 1", "0: the thesis' managers start no extra workers for a backlog.", 1, 0, 1, "integer"),
    Parameter("max_rate", "events/s", "Maximum rate of all queues together.", 600.0, 1, 10_000),
    Parameter("upper_limit", "events", "Allowed queue length of a container.", 1_000.0, 1, 1e9),
    Parameter("noise", "share of the rate", "Standard deviation of the rates per second.", 0.05, 0, 1),
)


class Managers:
    """The managers of all containers: rows are queues, columns nodes."""

    def __init__(self, law: str, settings: Mapping[str, Any]) -> None:
        self.interval = 5 if law == "thesis" else 1
        parameters = WorkerRateParameters(
            events_per_worker=EVENTS_PER_WORKER,
            upper_limit=settings["upper_limit"],
            interval_seconds=float(self.interval),
            lead_seconds=float(self.interval),
            maximum_rate=1e6,
        )
        thesis = msgspec.structs.replace(parameters, **THESIS, backlog_workers=int(settings["backlog"]))
        self.law, self.parameters = WorkerRate(), thesis if law == "thesis" else parameters
        first = self.law.start(self.parameters)
        self.states = [[first for _ in CAPACITY] for _ in QUEUES]

    def restart(self, queue: int, node: int) -> None:
        self.states[queue][node] = self.law.start(self.parameters)

    def submit(self, queue: int, node: int, seen: WorkerRateObservation) -> int:
        self.states[queue][node], decision = self.law.decide(self.parameters, self.states[queue][node], seen)
        return int(decision.action["start"]) if decision.action else 0

    def get_rate_per_second(self, queue: int, node: int) -> float:
        return self.states[queue][node].rate / self.interval


def start_plant(event: str, rates: Floats) -> Allocation:
    none = np.zeros(len(CAPACITY), dtype=bool)
    points = {node: points for node, points in enumerate(START[event]) if points}
    names = tuple(f"n{node + 1}" for node in range(len(CAPACITY)))
    minimum = (2,) * len(QUEUES)
    return mark_idle_nodes(
        Allocation(names, CAPACITY, none, none, none, tuple(QUEUES), rates, minimum, (points,) * len(QUEUES))
    )


def generate_rates(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> Floats:
    """Return the events of each second and queue; the same for all laws of a seed."""
    seconds = DAY_SECONDS if settings["event"] == "day" else EVENT_SECONDS
    if trace is not None:
        shape = resample(trace, seconds)
    elif settings["event"] == "day":
        at = np.arange(seconds) / seconds
        shape = compute_day_sine(seconds) * np.where((at >= INTERRUPTION[0]) & (at < INTERRUPTION[1]), 0.05, 1.0)
    else:
        shape = np.full(seconds, STEADY)
    shares = np.array(list(QUEUES.values())) / sum(QUEUES.values())
    return add_noise(
        settings["max_rate"] * shape[:, None] * shares[None, :],
        settings["noise"],
        create_random_generator(seed, "arrivals"),
    )


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    event, rates = str(settings["event"]), generate_rates(settings, seed, trace)
    seconds, every = len(rates), DECISION_SECONDS // (COMPRESSION if event == "day" else 1)
    plant, managers = start_plant(event, rates[0]), Managers(law, settings)
    balancer: Balancer = OurLaws(*LIMITS) if law == "weir" else Thesis(0.4, *LIMITS)
    chance = create_random_generator(seed, law)
    noticed = AT if law == "weir" else AT + int(chance.integers(1, PULL_SECONDS + 1))
    shape = (len(QUEUES), len(CAPACITY))
    waiting, pending, running, removed, ran = (np.zeros(shape) for _ in range(5))
    used, queue_of, rate_of = np.zeros((seconds, len(CAPACITY))), np.zeros(seconds), np.zeros(seconds)
    totals, lost, runs = np.zeros(seconds), 0.0, 0.0
    shares, watched = compute_node_shares(plant), 2 if event == "overload" else 0
    needed = rates[AT:, 0].mean() * shares[0, watched] / EVENTS_PER_WORKER
    for second in range(seconds):
        down = event == "node-crash" and AT <= second < AT + NODE_DOWN_SECONDS
        routed = shares
        if down and second >= noticed:
            routed = shares * np.array([1.0, 0.0, 1.0])
            routed = routed / routed.sum(axis=1, keepdims=True)
        inserts = rates[second][:, None] * routed
        if down:
            lost += float(inserts[:, 1].sum())
            inserts[:, 1] = 0.0
        waiting += inserts
        starting = pending * min(1.0, max(0.0, SLOTS - running.sum()) / max(pending.sum(), 1e-9))
        pending, running, ran = pending - starting, running + starting, ran + starting
        # Workers run longer on an overloaded node, and only its remaining capacity takes events.
        wanted = np.minimum(waiting, running * EVENTS_PER_WORKER)
        demand = inserts.sum(axis=0) + wanted.sum(axis=0) + WORKER_OPERATIONS * running.sum(axis=0)
        stretch = np.clip(demand / CAPACITY, 1.0, MAX_STRETCH)
        left = np.maximum(0.0, CAPACITY - inserts.sum(axis=0) - WORKER_OPERATIONS * running.sum(axis=0))
        taken = wanted * np.minimum(1.0, left / np.maximum(wanted.sum(axis=0), 1e-9))
        if down:
            taken[:, 1] = 0.0
        done = running / stretch
        waiting, removed, running, runs = waiting - taken, removed + taken, running - done, runs + float(done.sum())
        used[second] = np.minimum(demand / CAPACITY, 1.5)
        recent = used[max(0, second - 60) : second + 1].mean(axis=0)
        if second % managers.interval == 0:
            states = [TOOBUSY if use >= LIMITS[1] else BUSY if use >= LIMITS[0] else NORMAL for use in recent]
            states[1] = OFFLINE if down else states[1]
            for queue, node in np.argwhere((shares > 0) | (waiting >= 1)).tolist():
                crashed = event == "manager-crash" and (queue, node) == (0, 0)
                if crashed and AT <= second < AT + MANAGER_DOWN_SECONDS:
                    managers.restart(queue, node)
                    continue
                seen = WorkerRateObservation(
                    # A manager without a connection to its queue sees an empty one (B.21).
                    queue_length=0.0 if states[node] == OFFLINE else float(waiting[queue, node]),
                    removed=float(removed[queue, node]),
                    started=float(ran[queue, node]),
                    waiting_to_run=float(pending[queue, node]),
                    running=float(running[queue, node]),
                    node_state=states[node],
                )
                pending[queue, node] += managers.submit(queue, node, seen)
                removed[queue, node] = ran[queue, node] = 0.0
        if second % every == every - 1:
            plant = _balance(balancer, plant, rates[second - 60 : second].mean(axis=0), recent, down, chance)
            shares = compute_node_shares(plant)
        totals[second], queue_of[second] = waiting.sum(), waiting[0, watched]
        rate_of[second] = managers.get_rate_per_second(0, watched)
    late = np.flatnonzero(queue_of[AT:] > settings["upper_limit"])
    metrics = {
        "toobusy_node_minutes": round(float((used >= LIMITS[1]).sum()) / 60, 2),
        "waiting_greatest": round(float(totals.max()), 1),
        "waiting_end": round(float(totals[-1]), 1),
        "worker_runs": round(runs),
        "minimum_runs": round(float(rates.sum()) / EVENTS_PER_WORKER, 2),
        "overshoot_rate": round(float(rate_of[AT:].max() / needed), 3),
        "seconds_to_restore": int(late[-1]) + 1 if late.size else 0,
        "events_lost": round(lost),
    }
    names = [f"n{node + 1}_used_share" for node in range(len(CAPACITY))]
    series = {
        "waiting_events": totals,
        "alert_worker_rate": rate_of,
        "alert_waiting_events": queue_of,
        **dict(zip(names, used.T, strict=True)),
        "arrivals_per_second": rates.sum(axis=1),
    }
    return ScenarioOutcome(metrics, series, 1.0)


def _balance(
    balancer: Balancer, plant: Allocation, rates: Floats, used: Floats, down: bool, chance: np.random.Generator
) -> Allocation:
    """Return the plant after one decision. A node's capacity is its load divided by its measured utilization."""
    plant = replace(plant, rate=rates, offline=np.array([False, down, False]))
    capacity = np.where(used > 0.01, plant.loads / np.maximum(used, 0.01), CAPACITY / 2)
    plant = replace(plant, capacity=np.maximum(capacity, 1.0))
    moves = [move for part in balancer.decide(plant, chance) for move in part]
    return mark_idle_nodes(replace(plant.apply(moves), offline=np.zeros(len(CAPACITY), dtype=bool)))


SCENARIO = Scenario(
    "managed-queues",
    "Three unequal nodes with a manager for each container: a day, an overload, and crashes (thesis, appendix B).",
    ("weir", "thesis"),
    SETTINGS,
    ("toobusy_node_minutes", "waiting_greatest", "waiting_end", "worker_runs", "overshoot_rate", "seconds_to_restore"),
    run,
)
