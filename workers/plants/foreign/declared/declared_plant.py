"""A declared plant behind the plant interface: sensors make the topology, calls set the tasks."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from common import environment as variables
from common.errors import BadInput, WeirError
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from workers.documents.plants import ProofStatus, SensorStatus
from workers.plants.foreign.declared.call import COMMAND_SECONDS, TaskOrder
from workers.plants.foreign.declared.clients import ServerClients
from workers.plants.foreign.declared.declaration import DeclaredOperator, PlantDeclaration
from workers.plants.foreign.declared.measured import (
    ONLY_BRINGS,
    ONLY_SEEN,
    build_topology,
    mark_unusable_readings,
    read_task_count,
)
from workers.plants.foreign.declared.sensor_reader import SensorReader, SensorReading
from workers.plants.foreign.declared.task_orders import LastTaskOrder, OwnTaskOrders, TaskOrders
from workers.plants.foreign.kind import Adapter
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

# With these errors nothing was sent; an order that failed otherwise may have been executed.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class CountedOrder:
    """An order for one operator, counted from its last order. seen: the tasks that the sensor reports."""

    operator: DeclaredOperator
    order: TaskOrder
    seen: int


class DeclaredPlant(Adapter):
    """The plant of a declaration."""

    def __init__(
        self,
        declaration: PlantDeclaration,
        environment: Mapping[str, str] = variables.PROCESS,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        orders: TaskOrders | None = None,
    ) -> None:
        """Set up the plant. orders: None keeps them in this process alone."""
        self.declaration, self._clock = declaration, clock
        self._ordered = orders or OwnTaskOrders(monotonic)
        self._clients = ServerClients(declaration.name, environment, transport)
        self._readings = SensorReader(
            declaration.sensors.values(), self._clients, declaration.window_seconds, monotonic
        )
        self._read: Mapping[str, SensorReading] = {}

    def get_topology(self) -> MeasuredTopology:
        """Return the topology from one round of all sensors. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
        readings = self._readings.read()
        self._read = mark_unusable_readings(self.declaration, readings)
        return build_topology(self.declaration, readings, self.declaration.name, self._clock())

    def get_readings(self) -> Mapping[str, SensorReading]:
        """Return the reading of every sensor in the round of the last `topology`."""
        return self._read

    def get_sensor_statuses(self) -> Mapping[str, SensorStatus]:
        """Return the same readings in the form of the snapshot."""
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

    def get_proof_statuses(self) -> Mapping[str, ProofStatus]:
        """Return the proof values of the operators that can be set."""
        return {
            name: ProofStatus(
                sensor=each.proof.sensor,
                value=self._find_proof_value(each.proof.sensor),
                within_seconds=each.proof.within_seconds,
            )
            for name, each in self.declaration.operators.items()
            if each.proof is not None
        }

    def _find_proof_value(self, sensor: str) -> float | None:
        reading = self._read.get(sensor)
        return None if reading is None or reading.error is not None else reading.value

    def hold(self, seconds: float) -> None:
        """Call `hold`, if the declaration has it."""
        if self.declaration.hold is not None:
            self.declaration.hold.make(TaskOrder(seconds=math.ceil(seconds)), self._clients)

    def release(self) -> None:
        """Call `release`, if the declaration has it."""
        if self.declaration.release is not None:
            self.declaration.release.make(TaskOrder(), self._clients)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set the operators one after the other; if one refuses, revert those before it.

        An order is not repeated until its proof is late. Raise as `Elastic` says.
        """
        declared = {name: self._validate_order(name, count) for name, count in tasks.items()}
        done: list[CountedOrder] = []
        for counted in self._build_orders(declared, tasks):
            try:
                self._carry_out(counted)
            except WeirError as error:
                raise self._revert_orders(done, counted.operator, error) from error
            done.append(counted)

    def close(self) -> None:
        self._readings.close()
        self._clients.close()

    def _validate_order(self, name: str, count: int) -> DeclaredOperator:
        operators = self.declaration.operators
        if name not in operators:
            raise BadInput(f"tasks.{name}", f"{name} is not an operator; known: {', '.join(operators) or 'none'}")
        declared = operators[name]
        fixed = ONLY_BRINGS if declared.is_source else None if declared.actuator else ONLY_SEEN
        MeasuredOperator(name, "operator", 0, declared.minimum, declared.maximum, fixed).check(count, f"tasks.{name}")
        return declared

    def _build_orders(self, declared: Mapping[str, DeclaredOperator], tasks: Mapping[str, int]) -> list[CountedOrder]:
        """Return the changes to make. Raise if the current number of tasks is unknown."""
        readings = self._readings.read(
            operator.tasks for operator in declared.values() if isinstance(operator.tasks, str)
        )

        def read_optional(quantity: str | float | None) -> float | None:
            return readings[quantity].get_value() if isinstance(quantity, str) else quantity

        orders = []
        for name, each in declared.items():
            seen = read_task_count(each, read_optional)
            pending = self._get_pending(name, seen)
            order = TaskOrder(seen if pending is None else pending.tasks, tasks[name])
            orders.append(CountedOrder(each, order, seen))
        return [order_ for order_ in orders if order_.order.before != order_.order.tasks]

    def _get_pending(self, name: str, seen: int) -> LastTaskOrder | None:
        """Return the last order while the sensor does not show it yet; after that only the sensor counts."""
        pending = self._ordered.get_pending(name)
        if pending is not None and pending.is_shown_by(seen):
            self._ordered.forget(name)
            return None
        return pending

    def _note(self, counted: CountedOrder, tasks: int) -> None:
        """Record that the operator has this many tasks, or will have them."""
        if tasks == counted.order.before == counted.seen:
            self._ordered.forget(counted.operator.name)
        elif (proof := counted.operator.proof) is not None:
            order = LastTaskOrder(tasks, counted.seen)
            self._ordered.note(counted.operator.name, order, proof.within_seconds)

    def _carry_out(self, counted: CountedOrder) -> None:
        """Carry out an order. Raise what a call raises, after reverting the calls before it."""
        operator, order = counted.operator, counted.order
        steps = operator.actuator.build_steps(order) if operator.actuator else ()
        self._note(counted, order.tasks)  # first: an order without an answer may have been executed
        reached = order.before
        for call, step in steps:
            self._keep_noted(counted, COMMAND_SECONDS)
            try:
                call.make(step, self._clients)
            except WeirError as error:
                stays = self._call_back(operator, TaskOrder(order.before, reached))
                # A call with an absolute number can be repeated.
                perhaps = operator.actuator.counts and _may_be_obeyed(error) if operator.actuator else False
                left = reached if stays else order.before
                self._note(counted, left + step.tasks - reached if perhaps else left)
                raise
            reached = step.tasks
        self._keep_noted(counted)

    def _keep_noted(self, counted: CountedOrder, call_seconds: float = 0.0) -> None:
        """Extend the record of the order, unless another order was recorded meanwhile.

        This is done before each call, for its maximum duration, and after the last one. With many calls, the first may
        be longer ago than the proof may take.
        """
        name, proof = counted.operator.name, counted.operator.proof
        order, noted = LastTaskOrder(counted.order.tasks, counted.seen), self._ordered.get_pending(name)
        if proof is not None and (noted == order or (noted is None and call_seconds)):
            self._ordered.note(name, order, proof.within_seconds + call_seconds)

    def _call_back(self, operator: DeclaredOperator, order: TaskOrder) -> str:
        """Make the inverse calls. Return why they failed, or ""."""
        if order.before == order.tasks or operator.actuator is None:
            return ""
        try:
            for call, step in operator.actuator.build_steps(TaskOrder(order.tasks, order.before)):
                call.make(step, self._clients)
        except WeirError as error:
            return str(error)
        return ""

    def _revert_orders(self, done: list[CountedOrder], failed: DeclaredOperator, error: WeirError) -> WeirError:
        """Return the error, extended by what could not be reverted."""
        left = []
        for order in reversed(done):
            if why := self._call_back(order.operator, order.order):
                left.append(f"{order.operator.name} stays at {order.order.tasks} ({why})")
            else:
                self._note(order, order.order.before)
        if not left:
            return error
        return InvalidPlantResponse(f"{failed.name}: {error} Not reverted: {'; '.join(left)}")


def _may_be_obeyed(error: WeirError) -> bool:
    """Return whether an order without an answer may have been executed."""
    return isinstance(error, PlantUnavailable) and not isinstance(error.__cause__, NOT_SENT)
