"""The shipped run of the scenario `queues`: the loops that move points and take nodes into use.

A person has set node scaling to auto. The plant's history has a week of days like this one, each with its own noise.
Forecasts use the history and the measurements since. All queues have the same course, so one forecast is scaled to each
queue.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from common.stored_document import replace_fields
from controllers.rebalancing.allocation import Allocation
from controllers.rebalancing.law import LAW as REBALANCING
from controllers.rebalancing.node_scaling import LAW as NODE_SCALING
from controllers.simulation import queues
from controllers.simulation.queues import BUSY, MINIMUM_CONTAINERS, TOOBUSY, PlantTally
from controllers.simulation.scenario import Floats, ScenarioOutcome, create_random_generator
from queues.points import TOTAL
from queues.topology import Capacity, NodeSpec, QueueSpec, Topology
from workers.documents.plants import LoadForecast
from workers.history.forecasts import QUEUE, ForecastSubjects, ForecastWatch
from workers.models import Loop, Plan
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

CAPACITY_PER_SECOND = 500.0  # BUSY and TOOBUSY are 70 and 90 % of it, as by default
STEP_SECONDS, MINUTE_SECONDS, FORECAST_MINUTES = 15.0, 60.0, 3
PAST_DAYS = 7
ALL_QUEUES = ForecastSubjects(("all",))


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the loops for a day."""
    allocation = queues.start(int(settings["configuration"]), create_random_generator(seed, "start"))
    rates = queues.generate_rates(allocation, settings, seed, trace)
    days = [queues.generate_rates(allocation, settings, seed + day, trace) for day in range(1, PAST_DAYS + 1)]
    return queues.summarize(rates, simulate(allocation, rates, np.concatenate(days)))


def simulate(allocation: Allocation, rates: Floats, past: Floats) -> PlantTally:
    """Run the loops on rates by minute and queue. past: the rates of earlier minutes, in the plant's history."""
    plant = build_plant(allocation)
    twin = Twin(plant, [REBALANCING.name, NODE_SCALING.name], modes={NODE_SCALING.name: Loop.Mode.AUTO})
    arrivals = np.concatenate([past, rates]).sum(axis=1)
    minutes = np.arange(len(arrivals)) - len(past) + 0.5
    at = np.asarray(plant.clock() + MINUTE_SECONDS * minutes, dtype=np.float64)
    tally, steps = PlantTally.start(len(rates), len(allocation.nodes)), round(60 / STEP_SECONDS)
    shares = rates.sum(axis=0) / rates.sum()
    known = np.zeros((0, 0))
    watch = ForecastWatch(lambda series, now: (at[: known.size], np.tile(known, (len(series), 1))))
    for minute, now_per_second in enumerate(rates):
        if minute % FORECAST_MINUTES == 0:
            known = arrivals[: len(past) + minute]
            plant.forecasts = forecast_queues(watch, plant, allocation.queues, shares)
        for _ in range(steps):
            points = list_points(plant, allocation)
            for (queue, node), share in points.items():
                container, events = plant.container(queue, node), STEP_SECONDS * share / TOTAL
                container.insert(events * now_per_second[allocation.queues.index(queue)], plant.clock())
                container.remove(container.waiting_events)
            tally.loads[minute] += now_per_second @ build_node_shares(points, allocation) / steps
            twin.pass_time(STEP_SECONDS)
        points = list_points(plant, allocation)
        tally.containers[minute] = len(points)
        tally.used[minute] = len({node for _, node in points})
    for kind, made in plant.plans.made.items():
        count_moves(tally, sum(move.points for move in made), len(made), kind)
    return tally


def count_moves(tally: PlantTally, points: int, moves: int, kind: str) -> None:
    if kind == Plan.Kind.RELEASE:
        tally.points_moved_scaling += points
        tally.moves_scaling += moves
    else:
        tally.points_moved += points
        tally.moves += moves


def build_plant(allocation: Allocation) -> SimulatedPlant:
    """Return the plant of the scenario at midnight."""
    capacity = Capacity(CAPACITY_PER_SECOND)
    nodes = {
        name: NodeSpec(name, "", capacity, busy=BUSY / CAPACITY_PER_SECOND, toobusy=TOOBUSY / CAPACITY_PER_SECOND)
        for name in allocation.nodes
    }
    specs = {
        name: QueueSpec(
            name,
            "jobs",
            {allocation.nodes[node]: points for node, points in held.items()},
            minimum_containers=MINIMUM_CONTAINERS,
        )
        for name, held in zip(allocation.queues, allocation.points, strict=True)
    }
    return SimulatedPlant(Topology(1, nodes, specs))


def list_points(plant: SimulatedPlant, allocation: Allocation) -> dict[tuple[str, str], int]:
    """Return the points of each queue by node, without containers that have no points."""
    return {
        (queue, node): points
        for queue in allocation.queues
        for node, points in plant.topology.queue(queue).live_points.items()
    }


def build_node_shares(points: Mapping[tuple[str, str], int], allocation: Allocation) -> Floats:
    """Return the share of each queue that goes to each node: queues by nodes."""
    shares = np.zeros((len(allocation.queues), len(allocation.nodes)))
    for (queue, node), share in points.items():
        shares[allocation.queues.index(queue), allocation.nodes.index(node)] = share / TOTAL
    return shares


def forecast_queues(
    watch: ForecastWatch, plant: SimulatedPlant, names: tuple[str, ...], shares: Floats
) -> dict[str, LoadForecast]:
    """Return the forecast of each queue: its share of the forecast of all queues."""
    watch.collect(ALL_QUEUES, plant.clock())
    watch.wait()
    row = watch.collect(ALL_QUEUES, plant.clock()).loads[f"{QUEUE}all"]
    return {
        QUEUE + name: replace_fields(
            row,
            mean_per_second=row.mean_per_second and [share * mean for mean in row.mean_per_second],
            deviation_per_second=row.deviation_per_second and [share * value for value in row.deviation_per_second],
        )
        for name, share in zip(names, shares.tolist(), strict=True)
    }


SHIPPED = ShippedRun(queues.SCENARIO, run)
