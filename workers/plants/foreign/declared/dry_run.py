"""A dry run of a declaration: each sensor is read once, no call is made."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import httpx

from common import environment as variables
from common.errors import WeirError
from workers.plants.foreign.declared.call import TaskOrder
from workers.plants.foreign.declared.declaration import Actuator, DeclaredOperator, PlantDeclaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.sensor_reader import SensorReading


@dataclass(frozen=True)
class SensorTrial:
    """One sensor: what was read, and its value (None after an error, or if unknown)."""

    name: str
    asked: str
    value: float | None
    unit: str
    seconds: float
    error: str


@dataclass(frozen=True)
class OrderTrial:
    """One operator: the calls for one more task (one less at the maximum), and their inverse."""

    operator: str
    before: int
    tasks: int
    calls: tuple[str, ...]
    inverse: tuple[str, ...]
    proof: str


@dataclass(frozen=True)
class DryRun:
    """The result. error: why no topology can be made now, "" if it can."""

    sensors: tuple[SensorTrial, ...]
    orders: tuple[OrderTrial, ...]
    error: str


def make_dry_run(
    declaration: PlantDeclaration,
    environment: Mapping[str, str] = variables.PROCESS,
    transport: httpx.BaseTransport | None = None,
) -> DryRun:
    """Make a dry run. Raise nothing: each error is reported with the sensor or order that it concerns."""
    with closing(DeclaredPlant(declaration, environment, transport)) as plant:
        try:
            topology, error = plant.get_topology(), ""
        except WeirError as refused:
            topology, error = None, str(refused)
        readings = plant.get_readings()
    operators = {} if topology is None else topology.operators
    now = {name: each.parallelism for name, each in operators.items() if each.unknown_tasks is None}
    sensors = tuple(_sensor(declaration, name, reading) for name, reading in readings.items())
    settable = (operator for operator in declaration.operators.values() if operator.actuator is not None)
    return DryRun(
        sensors, tuple(_order(operator, now.get(operator.name, operator.minimum)) for operator in settable), error
    )


def _sensor(declaration: PlantDeclaration, name: str, reading: SensorReading) -> SensorTrial:
    sensor = declaration.sensors[name]
    said = "" if reading.error is None else str(reading.error)
    return SensorTrial(name, sensor.source.describe(), reading.value, sensor.unit, round(reading.seconds, 3), said)


def _order(operator: DeclaredOperator, now: int) -> OrderTrial:
    order = TaskOrder(now, now + 1 if now < operator.maximum else now - 1)
    actuator, proof = operator.actuator, operator.proof
    assert actuator is not None and proof is not None  # an operator that can be set has both
    return OrderTrial(
        operator.name,
        order.before,
        order.tasks,
        _describe_call(actuator, order),
        _describe_call(actuator, TaskOrder(order.tasks, order.before)),
        f"{proof.sensor} = {order.tasks} within {proof.within_seconds:g} s",
    )


def _describe_call(actuator: Actuator, order: TaskOrder) -> tuple[str, ...]:
    return tuple(call.describe(step) for call, step in actuator.build_steps(order))
