"""What a declaration would read and do, without doing it: each sensor is asked once, no call is made."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import httpx

from queues import environment as variables
from queues.errors import WeirError
from workers.plants.foreign.declared.call import TaskOrder
from workers.plants.foreign.declared.declaration import Actuator, DeclaredOperator, PlantDeclaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.sensor_reader import SensorReading


@dataclass(frozen=True)
class SensorTrial:
    """One sensor: what was asked, and what it said. value: None with an error, or where nothing is known."""

    name: str
    asked: str
    value: float | None
    unit: str
    seconds: float
    error: str


@dataclass(frozen=True)
class OrderTrial:
    """One operator: what would be called for one task more (or less, at the maximum), and its inverse."""

    operator: str
    before: int
    tasks: int
    calls: tuple[str, ...]
    inverse: tuple[str, ...]
    proof: str


@dataclass(frozen=True)
class DryRun:
    """error: why no topology can be made of it now, "" where one can."""

    sensors: tuple[SensorTrial, ...]
    orders: tuple[OrderTrial, ...]
    error: str


def dry_run(
    declaration: PlantDeclaration,
    environment: Mapping[str, str] = variables.PROCESS,
    transport: httpx.BaseTransport | None = None,
) -> DryRun:
    """Raises nothing: what goes wrong is said beside what it concerns."""
    with closing(DeclaredPlant(declaration, environment, transport)) as plant:
        try:
            topology, error = plant.topology(), ""
        except WeirError as refused:
            topology, error = None, str(refused)
        readings = plant.readings()
    operators = {} if topology is None else topology.operators
    now = {name: each.parallelism for name, each in operators.items() if each.unknown_tasks is None}
    sensors = tuple(_sensor(declaration, name, reading) for name, reading in readings.items())
    settable = (each for each in declaration.operators.values() if each.actuator is not None)
    return DryRun(sensors, tuple(_order(each, now.get(each.name, each.minimum)) for each in settable), error)


def _sensor(declaration: PlantDeclaration, name: str, reading: SensorReading) -> SensorTrial:
    sensor = declaration.sensors[name]
    said = "" if reading.error is None else str(reading.error)
    return SensorTrial(
        name, sensor.source.in_words(), reading.value, sensor.unit, round(reading.seconds, 3), said
    )


def _order(operator: DeclaredOperator, now: int) -> OrderTrial:
    order = TaskOrder(now, now + 1 if now < operator.maximum else now - 1)
    actuator, proof = operator.actuator, operator.proof
    assert actuator is not None and proof is not None  # settable ones have both
    return OrderTrial(
        operator.name,
        order.before,
        order.tasks,
        _in_words(actuator, order),
        _in_words(actuator, TaskOrder(order.tasks, order.before)),
        f"{proof.sensor} = {order.tasks} within {proof.within_seconds:g} s",
    )


def _in_words(actuator: Actuator, order: TaskOrder) -> tuple[str, ...]:
    return tuple(call.in_words(step) for call, step in actuator.steps(order))
