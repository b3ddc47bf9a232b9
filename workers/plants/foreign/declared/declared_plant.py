"""A declared plant behind the plant interface: sensors make the topology, calls set the tasks."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from common import environment as variables
from common.errors import BadInput, WeirError
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from workers.documents.plants import PlantStatus, ProofStatus, SensorStatus
from workers.plants.foreign.declared.call import COMMAND_SECONDS, TaskOrder
from workers.plants.foreign.declared.declaration import DeclaredOperator, PlantDeclaration
from workers.plants.foreign.declared.measured import build_topology, mark_unusable_readings, read_task_count
from workers.plants.foreign.declared.sensor_reader import SensorReader, SensorReading
from workers.plants.foreign.declared.servers import ServerClients
from workers.plants.foreign.kind import Adapter
from workers.plants.foreign.leases import TasksBefore
from workers.plants.foreign.stored_notes import ExpiringNotes
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

    tasks_before: TasksBefore

    def __init__(
        self,
        declaration: PlantDeclaration,
        environment: Mapping[str, str] = variables.PROCESS,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        orders: ExpiringNotes | None = None,
        before: TasksBefore | None = None,
    ) -> None:
        """Set up the plant.

        orders: operator → {tasks, seen}: the last order, and what its sensor reported then, until the sensor shows it.
        Prometheus scrapes about every 15 s. A process that orders again in that time must count from what was ordered,
        or `up` would be called again at every tick. None keeps them in this process alone.
        before: the tasks of operators before Weir.
        """
        self.tasks_before = before or TasksBefore(clock)
        self.declaration, self._clock = declaration, clock
        self._ordered = orders or ExpiringNotes(monotonic=monotonic)
        self._clients = ServerClients(declaration.name, environment, transport)
        self._reader = SensorReader(declaration.sensors.values(), self._clients, declaration.window_seconds, monotonic)
        self.readings: Mapping[str, SensorReading] = {}  # of every sensor, in the round of the last topology

    def get_topology(self) -> MeasuredTopology:
        """Return the topology from one round of all sensors. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
        readings = self._reader.read()
        self.readings = mark_unusable_readings(self.declaration, readings)
        return build_topology(self.declaration, readings, self.declaration.name, self._clock())

    def get_sensor_statuses(self) -> Mapping[str, SensorStatus]:
        declared = self.declaration.sensors
        return {
            name: SensorStatus(
                value=reading.value,
                unit=declared[name].unit,
                title=declared[name].title,
                error=None if reading.error is None else str(reading.error),
            )
            for name, reading in self.readings.items()
        }

    def get_details(self) -> PlantStatus:
        """Return the proof values of the operators that can be set."""
        proofs = {}
        for name, operator in self.declaration.operators.items():
            if (proof := operator.proof) is not None:
                reading = self.readings.get(proof.sensor)
                value = None if reading is None or reading.error is not None else reading.value
                proofs[name] = ProofStatus(sensor=proof.sensor, value=value, within_seconds=proof.within_seconds)
        return PlantStatus(proofs=proofs)

    def hold(self, seconds: float) -> None:
        if self.declaration.hold is not None:
            self.declaration.hold.make(TaskOrder(seconds=math.ceil(seconds)), self._clients)

    def release(self) -> None:
        if self.declaration.release is not None:
            self.declaration.release.make(TaskOrder(), self._clients)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set the operators one after the other; if one refuses, revert those before it.

        An order is not repeated until its proof is late. Raise as `ElasticPlant` says.
        """
        operators = self.declaration.operators
        for name, count in tasks.items():
            if name not in operators:
                raise BadInput(f"tasks.{name}", f"{name} is not an operator; known: {', '.join(operators) or 'none'}")
            declared = operators[name]
            limits = MeasuredOperator(name, "operator", 0, declared.minimum, declared.maximum, declared.fixed)
            limits.check(count, f"tasks.{name}")
        done: list[CountedOrder] = []
        orders = self._build_orders(tasks)
        self.tasks_before.remember(
            {counted.operator.name: counted.order.before for counted in orders},
            {counted.operator.name: counted.order.tasks for counted in orders},
        )
        for counted in orders:
            try:
                self._carry_out(counted)
            except WeirError as error:
                raise self._revert_orders(done, counted.operator, error) from error
            done.append(counted)

    def close(self) -> None:
        self._reader.close()
        self._clients.close()

    def _build_orders(self, tasks: Mapping[str, int]) -> list[CountedOrder]:
        """Return the changes to make. Raise if the current number of tasks is unknown.

        A last order counts while its sensor does not show it yet; after that only the sensor counts. A sensor that
        reported this value all along, because it was two orders late, shows nothing.
        """
        declared = {name: self.declaration.operators[name] for name in tasks}
        readings = self._reader.read(
            operator.tasks for operator in declared.values() if isinstance(operator.tasks, str)
        )
        orders = []
        for name, operator in declared.items():
            seen = before = read_task_count(operator, readings)
            if (pending := self._ordered.get(name)) is not None:
                if seen == pending["tasks"] != pending["seen"]:
                    self._ordered.forget(name)
                else:
                    before = pending["tasks"]
            if before != tasks[name]:
                orders.append(CountedOrder(operator, TaskOrder(before, tasks[name]), seen))
        return orders

    def _note(self, counted: CountedOrder, tasks: int) -> None:
        """Record that the operator has this many tasks, or will have them."""
        name, proof = counted.operator.name, counted.operator.proof
        if tasks == counted.order.before == counted.seen:
            self._ordered.forget(name)
        elif proof is not None:
            self._ordered.put(name, {"tasks": tasks, "seen": counted.seen}, proof.within_seconds)

    def _carry_out(self, counted: CountedOrder) -> None:
        """Carry out an order. Raise what a call raises, after reverting the calls before it."""
        operator, order, actuator = counted.operator, counted.order, counted.operator.actuator
        assert actuator is not None  # `set_parallelism` has refused an operator without calls
        steps = actuator.build_steps(order)
        self._note(counted, order.tasks)  # first: an order without an answer may have been executed
        reached = order.before
        for call, step in steps:
            self._keep_noted(counted, COMMAND_SECONDS)
            try:
                call.make(step, self._clients)
            except WeirError as error:
                stays = self._call_back(operator, TaskOrder(order.before, reached))
                # A call with an absolute number can be repeated; one that was not answered may have been executed.
                may_be_obeyed = isinstance(error, PlantUnavailable) and not isinstance(error.__cause__, NOT_SENT)
                left = reached if stays else order.before
                self._note(counted, left + step.tasks - reached if actuator.counts and may_be_obeyed else left)
                raise
            reached = step.tasks
        self._keep_noted(counted)

    def _keep_noted(self, counted: CountedOrder, call_seconds: float = 0.0) -> None:
        """Extend the record of the order, unless another order was recorded meanwhile.

        This is done before each call, for its maximum duration, and after the last one. With many calls, the first may
        be longer ago than the proof may take.
        """
        name, proof = counted.operator.name, counted.operator.proof
        order, noted = {"tasks": counted.order.tasks, "seen": counted.seen}, self._ordered.get(name)
        if proof is not None and (noted == order or (noted is None and call_seconds)):
            self._ordered.put(name, order, proof.within_seconds + call_seconds)

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
