"""A declared plant behind the port: its sensors make the topology, its calls set the tasks."""

import math
import time
from collections.abc import Callable, Mapping

import httpx

from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from queues import environment as variables
from queues.errors import BadInput, WeirError
from workers.documents.plants import ProofStatus, SensorStatus
from workers.plants.foreign.declared.call import TaskOrder
from workers.plants.foreign.declared.declaration import DeclaredOperator, PlantDeclaration
from workers.plants.foreign.declared.lines import Lines
from workers.plants.foreign.declared.measured import ONLY_BRINGS, ONLY_SEEN, tasks_of, topology_of
from workers.plants.foreign.declared.sensor_reader import SensorReader, SensorReading
from workers.plants.foreign.kind import Adapter
from workers.plants.plant import PlantConfused


class DeclaredPlant(Adapter):
    """As its declaration says."""

    def __init__(
        self,
        declaration: PlantDeclaration,
        environment: Mapping[str, str] = variables.PROCESS,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.declaration, self._clock = declaration, clock
        self._lines = Lines(declaration.name, environment, transport)
        self._readings = SensorReader(
            declaration.sensors.values(), self._lines, declaration.window_seconds, monotonic
        )
        self._read: Mapping[str, SensorReading] = {}

    def topology(self) -> MeasuredTopology:
        """Of one round of all sensors. Raises PlantSilent and PlantConfused."""
        self._read = self._readings.read()
        return topology_of(self.declaration, self._read, self.declaration.name, self._clock())

    def readings(self) -> Mapping[str, SensorReading]:
        """What every sensor said in the round of the last `topology`."""
        return self._read

    def sensors(self) -> Mapping[str, SensorStatus]:
        """The same as the snapshot has it."""
        declared = self.declaration.sensors
        return {
            name: SensorStatus(
                value=reading.value,
                unit=declared[name].unit,
                title=declared[name].title,
                error=None if reading.error is None else str(reading.error),
            )
            for name, reading in self._read.items()
        }

    def proofs(self) -> Mapping[str, ProofStatus]:
        """Of the operators that can be set."""
        return {
            name: ProofStatus(
                sensor=each.proof.sensor,
                value=self._read[each.proof.sensor].value if each.proof.sensor in self._read else None,
                within_seconds=each.proof.within_seconds,
            )
            for name, each in self.declaration.operators.items()
            if each.proof is not None
        }

    def hold(self, seconds: float) -> None:
        """Calls `hold`, where the declaration has one."""
        if self.declaration.hold is not None:
            self.declaration.hold.make(TaskOrder(seconds=math.ceil(seconds)), self._lines)

    def release(self) -> None:
        """Calls `release`, where the declaration has one."""
        if self.declaration.release is not None:
            self.declaration.release.make(TaskOrder(), self._lines)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """All of them, one operator after the other; where one refuses, those before it are called back to
        what they had. Raises as `Elastic` says.
        """
        declared = {name: self._checked(name, count) for name, count in tasks.items()}
        done: list[tuple[DeclaredOperator, TaskOrder]] = []
        for operator, order in self._orders(declared, tasks):
            try:
                self._carry_out(operator, order)
            except WeirError as error:
                raise self._undone(done, operator, error) from error
            done.append((operator, order))

    def close(self) -> None:
        self._readings.close()
        self._lines.close()

    def _checked(self, name: str, count: int) -> DeclaredOperator:
        operators = self.declaration.operators
        if name not in operators:
            raise BadInput(f"tasks.{name}", f"{name} is no operator; known: {', '.join(operators) or 'none'}")
        declared = operators[name]
        fixed = ONLY_BRINGS if declared.is_source else None if declared.actuator else ONLY_SEEN
        MeasuredOperator(name, "operator", 0, declared.minimum, declared.maximum, fixed).check(
            count, f"tasks.{name}"
        )
        return declared

    def _orders(
        self, declared: Mapping[str, DeclaredOperator], tasks: Mapping[str, int]
    ) -> list[tuple[DeclaredOperator, TaskOrder]]:
        """What is to change. Raises what keeps the tasks there are from being known."""
        readings = self._readings.read(
            each.tasks for each in declared.values() if isinstance(each.tasks, str)
        )

        def known(quantity: str | float | None) -> float | None:
            return readings[quantity].known() if isinstance(quantity, str) else quantity

        orders = [(each, TaskOrder(tasks_of(each, known), tasks[name])) for name, each in declared.items()]
        return [(each, order) for each, order in orders if order.before != order.tasks]

    def _carry_out(self, operator: DeclaredOperator, order: TaskOrder) -> None:
        """Raises what a call raises; of several calls, those that were made are called back first."""
        reached = order.before
        for call, step in operator.actuator.steps(order) if operator.actuator else ():
            try:
                call.make(step, self._lines)
            except WeirError:
                self._call_back(operator, TaskOrder(order.before, reached))
                raise
            reached = step.tasks

    def _call_back(self, operator: DeclaredOperator, order: TaskOrder) -> str:
        """The inverse; what kept it from being done, "" for nothing."""
        if order.before == order.tasks or operator.actuator is None:
            return ""
        try:
            for call, step in operator.actuator.steps(TaskOrder(order.tasks, order.before)):
                call.make(step, self._lines)
        except WeirError as error:
            return str(error)
        return ""

    def _undone(
        self, done: list[tuple[DeclaredOperator, TaskOrder]], failed: DeclaredOperator, error: WeirError
    ) -> WeirError:
        """The error, which says what could not be called back."""
        left = []
        for operator, order in reversed(done):
            if why := self._call_back(operator, order):
                left.append(f"{operator.name} stays at {order.tasks} ({why})")
        if not left:
            return error
        return PlantConfused(f"{failed.name}: {error} Not called back: {'; '.join(left)}")
