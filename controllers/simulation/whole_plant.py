"""The lab's scenario `whole-plant`: a compressed week of three queues, two applications, and unequal nodes, in money.

| queue | processed by | promise | types |
|---|---|---|---|
| orders | application *fraud*: rules, patterns | 5 s | order |
| telemetry | application *health*: rules, patterns | 30 s | metric, heartbeat, debug |
| reports | workers | 300 s | report |

All share the slots for workers and tasks, and nodes of two sizes. The load is a day-and-week pattern, or a trace that
covers the week; each queue has it at another time of day. During the run there are bursts, the loss of a large node, a
handler of reports at half speed, and a flood of *debug* events, which are worth less than their processing. Their
times depend on the seed.

| law | |
|---|---|
| planner | `controllers.planning`, with the forecast and its band calibrated on the run |
| loops | the shipped laws of nodes, workers, and tasks, and the remedy ladder with throttling and shedding |
| threshold | nodes and tasks by a target utilization of .7 (as Kubernetes' HPA), workers by the queue (as KEDA) |
| static-peak | fixed units for the greatest load, which is known in advance |
| foresight | one plan for the whole run with the true arrivals, as the reference |

cost              money: nodes, workers, tasks, moves, bad seconds, and lost events
bad_seconds       seconds in which events of a queue had waited longer than promised, summed over queues
lost_events       shed or beyond a queue's storage
actions           changes of units; `undone_actions` were reversed within `UNDONE_SECONDS`
cost_bound        of *foresight*: the least cost with fractions of units, and without pauses or fluctuations
cost_coverage     share of the plans whose cost was within their 80 % interval; `waiting_coverage` for waiting events
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from common.parameter import Parameter
from controllers.simulation.composite_plant import (
    CompositePlant,
    QueueSpecification,
    UnitSpecification,
    count_undone_actions,
)
from controllers.simulation.scenario import (
    Floats,
    Scenario,
    ScenarioOutcome,
    SimulationCost,
    SimulationSize,
    create_random_generator,
    resample_by_mean,
)

DAY_SECONDS, WEEK_DAYS, UNDONE_SECONDS = 86_400.0, 7, 120.0
# Queue → events/s at the maximum of the week, and the time by which its day is later (days).
PEAKS = {"orders": (600.0, 0.0), "telemetry": (1_800.0, 0.2), "reports": (400.0, 0.45)}
QUEUES = (
    QueueSpecification("orders", 5.0, 0.02, {"order": (1.0, 0.05)}, 0.0, 6_000.0, 60_000.0),
    QueueSpecification(
        "telemetry",
        30.0,
        0.004,
        {"metric": (0.7, 2e-5), "heartbeat": (0.3, 4e-6), "debug": (0.0, 3e-7)},
        1.0,
        20_000.0,
        200_000.0,
    ),
    QueueSpecification("reports", 300.0, 0.002, {"report": (1.0, 0.005)}, 0.0, 50_000.0, 500_000.0),
)
UNITS = (
    UnitSpecification("fraud rules", 150.0, 0.4, 0, 1, 12, "orders", 3),
    UnitSpecification("fraud patterns", 100.0, 0.4, 0, 1, 16, "orders", 3),
    UnitSpecification("health rules", 400.0, 0.4, 0, 1, 16, "telemetry", 3),
    UnitSpecification("health patterns", 250.0, 0.4, 0, 1, 20, "telemetry", 3),
    UnitSpecification("report workers", 25.0, 0.2, 5, 1, 50, "reports"),
    UnitSpecification("large nodes", 1_200.0, 1.6, 60, 0, 3),
    UnitSpecification("small nodes", 600.0, 0.9, 45, 1, 4),
)
SLOTS, MOVE_PRICE = 56, 1e-5
# Load profile: minimum over maximum of a day, decrease at a weekend, and noise of half-hours.
NIGHT, WEEKEND, NOISE, NOISE_DAYS = 0.35, 0.25, 0.04, 0.04
BURSTS, BURST_HEIGHT, BURST_SECONDS = 4, 0.5, 90
NODE_LOST_SECONDS, SLOW_SECONDS, SLOW_FACTOR = 400, 500, 0.5
FLOOD_SECONDS, FLOOD_PER_SECOND = 500, 1_200.0
SETTINGS = (
    Parameter("compression", "times", "Speed of the week relative to real time.", 84.0, 20, 1_000),
    Parameter("days", "days", "Simulated period.", 7, 1, 28, "integer"),
    Parameter("interval_seconds", "s", "Time between two plans.", 30, 5, 300, "integer"),
    Parameter("disturbances", "0 or 1", "1: bursts, a lost node, a slow handler, and a flood.", 1, 0, 1, "integer"),
)


@dataclass(frozen=True)
class WholePlantCourse:
    """One run: arrivals by second and type, the disturbances, and the length of a day."""

    arrivals: Floats
    kinds: tuple[tuple[str, str], ...]
    lost_node_at: int
    slow_at: int
    day_seconds: float
    interval_seconds: int
    seed: int

    @property
    def seconds(self) -> int:
        return len(self.arrivals)

    def sum_by_queue(self) -> Floats:
        """Return the arrivals by second and queue."""
        columns = [[kind == of.name for kind, _ in self.kinds] for of in QUEUES]
        return np.column_stack([self.arrivals[:, column].sum(axis=1) for column in np.asarray(columns)])


class WholePlantLaw(Protocol):
    """A law of the scenario: it acts on the plant once per second, with the arrivals so far."""

    def act(self, plant: CompositePlant, past: Floats) -> None: ...

    def summarize(self) -> Mapping[str, float | None]: ...


def build_plant() -> CompositePlant:
    return CompositePlant(QUEUES, UNITS, SLOTS, MOVE_PRICE)


def generate_course(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> WholePlantCourse:
    """Return the arrivals and disturbances of a seed; they are the same for all laws."""
    chance = create_random_generator(seed, "whole-plant")
    day = DAY_SECONDS / settings["compression"]
    seconds = round(settings["days"] * day)
    at, disturbed = np.arange(seconds), bool(settings["disturbances"])
    rates = np.column_stack(
        [_generate_shape(trace, seconds, day, late, chance) * peak for peak, late in PEAKS.values()]
    )
    for begins in chance.uniform(0.1 * seconds, 0.95 * seconds, BURSTS):
        queue = int(chance.integers(len(PEAKS)))
        height = BURST_HEIGHT * list(PEAKS.values())[queue][0]
        rates[:, queue] += disturbed * height * ((at >= begins) & (at < begins + BURST_SECONDS))
    lost_at, slow_at, flood_at = (int(moment) for moment in chance.uniform(0.15 * seconds, 0.85 * seconds, 3))
    kinds = tuple((of.name, kind) for of in QUEUES for kind in of.types)
    shares = np.array([share for of in QUEUES for share, _ in of.types.values()])
    owners = np.array([place for place, of in enumerate(QUEUES) for _ in of.types])
    by_kind = rates[:, owners] * shares
    flood = (at >= flood_at) & (at < flood_at + FLOOD_SECONDS)
    by_kind[:, kinds.index(("telemetry", "debug"))] += disturbed * FLOOD_PER_SECOND * flood
    never = 10 * seconds
    return WholePlantCourse(
        np.asarray(chance.poisson(by_kind), dtype=float),
        kinds,
        lost_at if disturbed else never,
        slow_at if disturbed else never,
        day,
        int(settings["interval_seconds"]),
        seed,
    )


def _generate_shape(trace: Floats | None, seconds: int, day: float, late: float, chance: np.random.Generator) -> Floats:
    """Return the load of one queue over its maximum, by second."""
    shift = round(late * day)
    if trace is not None:
        shape = resample_by_mean(trace, seconds)
        return np.asarray(np.roll(shape, shift + round(int(chance.integers(WEEK_DAYS)) * day)))
    at = (np.arange(seconds) - shift) / day
    shape = NIGHT + (1 - NIGHT) * (1 - np.cos(2 * np.pi * at)) / 2
    shape = shape * np.where(at % WEEK_DAYS >= 5, 1 - WEEKEND, 1.0)
    knots = chance.standard_normal(int(seconds / (NOISE_DAYS * day)) + 2) * NOISE
    shape = shape * np.exp(np.interp(np.arange(seconds) / (NOISE_DAYS * day), np.arange(knots.size), knots))
    return np.asarray(shape / shape.max())


def simulate(law: WholePlantLaw, course: WholePlantCourse) -> tuple[CompositePlant, Mapping[str, Floats]]:
    """Return the plant at the end of a run, and its series."""
    plant, totals = build_plant(), course.sum_by_queue()
    rows = [[at for at, (queue, _) in enumerate(course.kinds) if queue == of.name] for of in QUEUES]
    names = [[course.kinds[at][1] for at in row] for row in rows]
    set_initial_units(plant, totals[:60].mean(axis=0))
    series: dict[str, list[float]] = {name: [] for name in ("cost", "waiting_events", "nodes", "units")}
    for second in range(course.seconds):
        if second == course.lost_node_at:
            plant.remove_node("large nodes")
        if second == course.lost_node_at + NODE_LOST_SECONDS:
            plant.return_node("large nodes")
        is_slow = course.slow_at <= second < course.slow_at + SLOW_SECONDS
        plant.units["report workers"].factor = SLOW_FACTOR if is_slow else 1.0
        if second:
            law.act(plant, totals[:second])
        values = course.arrivals[second].tolist()
        plant.advance(
            {
                of.name: dict(zip(name, [values[at] for at in row], strict=True))
                for of, row, name in zip(QUEUES, rows, names, strict=True)
            }
        )
        series["cost"].append(plant.cost)
        series["waiting_events"].append(sum(flow.waiting for flow in plant.queues.values()))
        series["nodes"].append(float(sum(node.ordered for node in plant.nodes)))
        series["units"].append(float(sum(units.ordered for row in plant.stages.values() for units in row)))
    return plant, {name: np.asarray(values) for name, values in series.items()}


def set_initial_units(plant: CompositePlant, rates: Floats) -> None:
    """Give each group the units for the first minute at a utilization of .7."""
    for rate, of in zip(rates.tolist(), QUEUES, strict=True):
        for units in plant.stages[of.name]:
            units.working = min(max(int(np.ceil(rate / 0.7 / units.of.per_second)), units.of.minimum), units.of.maximum)
    need = float(rates.sum()) / 0.7
    for units in plant.nodes:
        while units.working < units.of.maximum and plant.compute_node_capacity() < need:
            units.working += 1


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    # Most scenarios need neither the planner nor the laws.
    from controllers.simulation.whole_plant_planner import LAWS

    course = generate_course(settings, seed, trace)
    chosen = LAWS[law](course)
    plant, series = simulate(chosen, course)
    orders = [units.orders for units in plant.units.values()]
    metrics = {
        "cost": round(plant.cost, 6),
        **{f"cost_{name}": round(value, 6) for name, value in plant.costs.items()},
        "bad_seconds": sum(flow.bad_seconds for flow in plant.queues.values()),
        "lost_events": round(sum(sum(flow.lost.values()) for flow in plant.queues.values()), 3),
        "actions": sum(map(len, orders)),
        "undone_actions": sum(count_undone_actions(row, UNDONE_SECONDS) for row in orders),
        **{f"bad_seconds_{name}": flow.bad_seconds for name, flow in plant.queues.items()},
        **{f"lost_events_{name}": round(sum(flow.lost.values()), 3) for name, flow in plant.queues.items()},
        **chosen.summarize(),
    }
    return ScenarioOutcome(metrics, series, 1.0)


def estimate_cost(settings: Mapping[str, Any]) -> SimulationCost:
    """By the simulated seconds and the plans."""
    seconds = settings["days"] * DAY_SECONDS / settings["compression"]
    return SimulationCost(2e-4 * seconds + 0.1 * seconds / settings["interval_seconds"], 120e6)


SCENARIO = Scenario(
    "whole-plant",
    "A compressed week of a plant with three queues, in money: one planner, separate loops, and autoscalers.",
    ("planner", "loops", "threshold", "static-peak", "foresight"),
    SETTINGS,
    ("cost", "bad_seconds", "lost_events", "actions", "undone_actions"),
    run,
    size=SimulationSize(
        ("days", "compression", "interval_seconds"),
        "Reduce days, or raise compression or interval_seconds.",
        estimate_cost,
    ),
)
