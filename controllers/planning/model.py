"""The model of a plant that the planner optimizes: queues, units of capacity, pools of slots, and prices.

A *unit group* is a number of equal units that can be started and ended: the workers of a queue, the tasks of an
operator, nodes of one kind, or the hosts of a pool. All of them have a count, a start-up time, a price per hour, and a
range. A *stage* (workers or tasks) processes the events of a queue; a queue with several stages is a chain. A node
group carries the events of all queues. A pool provides the slots in which the stages run.

Prices are money per unit. Use one currency for all of them.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from common.errors import BadInput
from common.parameter import value

MAX_UNITS, MAX_SECONDS, MAX_PRICE, MAX_RATE = 1_000_000, 86_400.0, 1e9, 1e12


class ModeledType(msgspec.Struct, frozen=True, kw_only=True):
    """An event type of a queue."""

    share: Annotated[float, value("share of the events", "Share of the queue's events.", 0, 1)]
    lost_price: Annotated[float, value("money", "Price of a lost event.", 0, MAX_PRICE)]
    max_shed_share: Annotated[float, value("share of the type", "Maximum share that may be shed.", 0, 1)] = 1.0


class ModeledQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: its forecast, its promise, and the prices of breaking it."""

    forecast_per_second: Annotated[
        tuple[float, ...], value("events/s", "Expected arrivals, one mean per forecast step from now on.", 0, MAX_RATE)
    ]
    deviation_per_second: Annotated[
        tuple[float, ...], value("events/s", "Standard deviation of each value of the forecast.", 0, MAX_RATE)
    ] = ()
    types: Annotated[
        dict[str, Annotated[ModeledType, value("type", "An event type.")]],
        value("by name", "Event types that may be lost or shed."),
    ] = {}
    backlog_events: Annotated[float, value("events", "Events that wait in the queue.", 0, 1e15)] = 0.0
    held_events: Annotated[float, value("events", "Events that producers hold back.", 0, 1e15)] = 0.0
    max_held_events: Annotated[float, value("events", "Maximum of events that producers can hold back.", 0, 1e15)] = 0.0
    room_events: Annotated[
        float | None, value("events", "Events that the queue can store; null: not limited.", 0, 1e15)
    ] = None
    bound_seconds: Annotated[float, value("s", "Promised waiting time.", 0.001, 1e7)] = 60.0
    bad_second_price: Annotated[
        float, value("money/s", "Price of a second in which events wait longer than promised.", 0, MAX_PRICE)
    ] = 0.0
    budget_seconds: Annotated[
        float | None,
        value("s", "Bad seconds left in the error budget; null: no objective. Further ones cost more.", 0, 1e9),
    ] = None

    @property
    def lost_price(self) -> float:
        """Return the mean price of a lost event, by the shares of the types."""
        total = sum(kind.share for kind in self.types.values())
        return sum(kind.share * kind.lost_price for kind in self.types.values()) / total if total > 0 else 0.0


class UnitGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal units that can be started and ended."""

    units: Annotated[int, value("units", "Units that work now.", 0, MAX_UNITS)] = 0
    starting: Annotated[int, value("units", "Units that are starting.", 0, MAX_UNITS)] = 0
    starting_seconds: Annotated[float, value("s", "Time until the starting units work.", 0, MAX_SECONDS)] = 0.0
    start_seconds: Annotated[float, value("s", "Time from an order until a new unit works.", 0, MAX_SECONDS)] = 0.0
    price_per_hour: Annotated[
        float, value("money/h", "Price of a unit per hour, while it starts, too.", 0, MAX_PRICE)
    ] = 0.0
    change_price: Annotated[
        float,
        value("money", "Price of starting or ending one unit: moved points, a pause, or a started billing interval."),
    ] = 0.0
    minimum: Annotated[int, value("units", "Minimum.", 0, MAX_UNITS)] = 0
    maximum: Annotated[int, value("units", "Maximum, for example a person's cap.", 0, MAX_UNITS)] = MAX_UNITS
    fixed: Annotated[
        int | None,
        value("units", "Number that a hold or an override keeps; null: the planner may choose.", 0, MAX_UNITS),
    ] = None

    @property
    def ordered(self) -> int:
        """Return the units that work or start."""
        return self.units + self.starting

    @property
    def range(self) -> tuple[int, int]:
        """Return the fewest and the most units that a plan may have."""
        return (self.minimum, self.maximum) if self.fixed is None else (self.fixed, self.fixed)


class ModeledStage(UnitGroup, frozen=True, kw_only=True):
    """The workers of a queue, or the tasks of an operator."""

    queue: Annotated[str, value("name", "Queue whose events it processes.")]
    per_second: Annotated[float, value("events/s", "Events of the queue that one unit processes.", 1e-9, MAX_RATE)]
    pool: Annotated[str | None, value("name", "Pool whose slots it uses, one per unit; null: none.")] = None
    pause_seconds: Annotated[
        float, value("s", "Time for which a change of units stops the queue's processing.", 0, MAX_SECONDS)
    ] = 0.0


class ModeledNodes(UnitGroup, frozen=True, kw_only=True):
    """Nodes with the same capacity and price."""

    per_second: Annotated[
        float, value("events/s", "Events that one node carries without being overloaded.", 0, MAX_RATE)
    ]


class ModeledPool(UnitGroup, frozen=True, kw_only=True):
    """The worker hosts or executors of a pool."""

    slots: Annotated[int, value("slots", "Workers or tasks that one host runs.", 1, MAX_UNITS)] = 1


class PlantModel(msgspec.Struct, frozen=True, kw_only=True):
    """The plant as the planner sees it."""

    queues: Annotated[
        dict[str, Annotated[ModeledQueue, value("queue", "A queue.")]], value("by name", "Queues by name.")
    ]
    stages: Annotated[
        dict[str, Annotated[ModeledStage, value("stage", "Workers or tasks.")]], value("by name", "Stages by name.")
    ]
    nodes: Annotated[
        dict[str, Annotated[ModeledNodes, value("nodes", "Nodes of one kind.")]],
        value("by name", "Node groups by name. Without any, nodes limit nothing."),
    ] = {}
    pools: Annotated[
        dict[str, Annotated[ModeledPool, value("pool", "Hosts of a pool.")]], value("by name", "Pools by name.")
    ] = {}
    forecast_step_seconds: Annotated[float, value("s", "Time between two values of a forecast.", 0.1, MAX_SECONDS)] = (
        60.0
    )

    @property
    def groups(self) -> Mapping[str, UnitGroup]:
        """Return all unit groups by name: stages, then nodes, then pools."""
        return {**self.stages, **self.nodes, **self.pools}

    def iterate_stages(self, queue: str) -> Iterator[tuple[str, ModeledStage]]:
        """Yield the names and stages of a queue."""
        return ((name, stage) for name, stage in self.stages.items() if stage.queue == queue)


def check_model(model: PlantModel, where: str = "observation") -> None:
    """Raise `BadInput` naming the field if parts of the model contradict each other."""
    names = [*model.stages, *model.nodes, *model.pools]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"{where}.stages", f"{twice} names two groups; stages, nodes, and pools need different names")
    for name, queue in model.queues.items():
        _check_queue(queue, f"{where}.queues.{name}")
    for name, stage in model.stages.items():
        if stage.queue not in model.queues:
            raise BadInput(f"{where}.stages.{name}.queue", f"{stage.queue} is not a queue of the model")
        if stage.pool and stage.pool not in model.pools:
            raise BadInput(f"{where}.stages.{name}.pool", f"{stage.pool} is not a pool of the model")
    for part in ("stages", "nodes", "pools"):
        for name, group in getattr(model, part).items():
            if group.minimum > group.maximum:
                raise BadInput(
                    f"{where}.{part}.{name}.minimum", f"must be at most maximum ({group.maximum}), not {group.minimum}"
                )


def _check_queue(queue: ModeledQueue, where: str) -> None:
    if not queue.forecast_per_second:
        raise BadInput(f"{where}.forecast_per_second", "must have at least one value")
    count, deviations = len(queue.forecast_per_second), len(queue.deviation_per_second)
    if deviations not in (0, count):
        raise BadInput(f"{where}.deviation_per_second", f"must have no or {count} values, not {deviations}")
    if (total := sum(kind.share for kind in queue.types.values())) > 1 + 1e-6:
        raise BadInput(f"{where}.types", f"must have shares of at most 1 together, not {total:g}")
