"""The last orders at attached plants: recorded before they are sent, followed until they are reached."""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from common.errors import BadInput
from common.stored_document import replace_fields
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.documents.plants import OrderStatus, PlantStatus, ProofStatus
from workers.plants.holding import PlantHeld
from workers.plants.models import PlantOrder, RegisteredPlant
from workers.plants.plant import ElasticPlant
from workers.plants.reached import USUAL, ConvergenceTimeout, GivenOrder, explain_fault, follow_order

Noted = Mapping[str, Mapping[str, GivenOrder]]  # plant → operator → its order
# An operator that was gone for this long and comes back under its name is considered another one.
GONE_SECONDS = 3_600.0
REFUSED = (BadInput, PlantHeld)  # nothing was set; after any other error something may have been


class OrderedPlant(ElasticPlant):
    """A registered plant of which every setting is recorded, with who set it."""

    def __init__(
        self, row: RegisteredPlant, plant: ElasticPlant, by: str, by_loop: bool, clock: Callable[[], float] = time.time
    ) -> None:
        self._row, self._plant, self._by, self._by_loop, self._clock = row, plant, by, by_loop, clock

    def get_topology(self) -> MeasuredTopology:
        return self._plant.get_topology()

    def hold(self, seconds: float) -> None:
        self._plant.hold(seconds)

    def release(self) -> None:
        self._plant.release()

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set tasks as the plant does. What it refuses is not recorded."""
        before = {plant_order.operator: plant_order for plant_order in PlantOrder.objects.filter(plant=self._row)}
        at = datetime.fromtimestamp(self._clock(), UTC)
        for operator, count in tasks.items():
            values = {"tasks": count, "at": at, "by": self._by, "by_loop": self._by_loop}
            PlantOrder.objects.update_or_create(plant=self._row, operator=operator, defaults=values)
        try:
            self._plant.set_parallelism(tasks)
        except REFUSED:
            for operator in tasks:
                if operator in before:
                    before[operator].save()
                else:
                    PlantOrder.objects.filter(plant=self._row, operator=operator).delete()
            raise


def forget_until(plant: str, operator: str, at: float) -> None:
    """Forget orders of an operator until this time (seconds since 1970)."""
    until = datetime.fromtimestamp(at, UTC)
    PlantOrder.objects.filter(plant__name=plant, operator=operator, at__lte=until).delete()


class OrderWatch:
    """Follows every order from snapshot to snapshot.

    While an operator is not observed, the state of its order stays. Orders of an operator that was restarted since are
    forgotten.
    """

    def __init__(
        self,
        noted: Callable[[], Noted] | None = None,
        patience: Callable[[str], ConvergenceTimeout] = lambda kind: USUAL,
        before: Callable[[], Mapping[str, PlantStatus]] = dict,
        forget_until: Callable[[str, str, float], None] = forget_until,
    ) -> None:
        """Set up the watch.

        patience: of a kind of plant. before: the plants of the newest snapshot, for a watch that starts.
        forget_until: the function of this module.
        """
        self._noted, self._patience, self._published = noted or load_orders, patience, before
        self._forget_until = forget_until
        self._absent: dict[tuple[str, str], float] = {}  # (plant, operator) → since when
        self._followed: dict[str, dict[str, OrderStatus]] | None = None

    def step(self, rows: Mapping[str, PlantStatus], now: float) -> dict[str, PlantStatus]:
        """Return the plants with the state of their orders. now: seconds since 1970."""
        if self._followed is None:
            self._followed = {name: dict(row.orders) for name, row in self._published().items()}
        noted = self._noted() if rows else {}
        self._absent = {
            (name, operator): self._absent.get((name, operator), now)
            for name, row in rows.items()
            for operator in noted.get(name, {})
            if row.topology is not None and operator not in _get_operators(row)
        }
        self._followed = {
            name: self._update_orders(
                row, self._list_active_orders(name, row, noted.get(name, {}), now), self._followed.get(name, {}), now
            )
            for name, row in rows.items()
        }
        # Loops hold for no order of an operator that is gone from a plant that is seen.
        return {
            name: replace_fields(
                row,
                orders={
                    operator: order
                    for operator, order in self._followed[name].items()
                    if row.topology is None or operator in _get_operators(row)
                },
            )
            for name, row in rows.items()
        }

    def _list_active_orders(
        self, name: str, row: PlantStatus, orders: Mapping[str, GivenOrder], now: float
    ) -> dict[str, GivenOrder]:
        """Return the orders of current operators, and of missing ones for GONE_SECONDS. The rest is forgotten."""
        orders_in_force = {}
        for operator, order in orders.items():
            is_gone = now - self._absent.get((name, operator), now) > GONE_SECONDS
            if is_gone or order.at < row.lives.get(operator, order.at):
                self._forget_until(name, operator, order.at)
            else:
                orders_in_force[operator] = order
        return orders_in_force

    def _update_orders(
        self, row: PlantStatus, orders: Mapping[str, GivenOrder], before: Mapping[str, OrderStatus], now: float
    ) -> dict[str, OrderStatus]:
        operators = _get_operators(row)
        seen_at = now - (row.age_seconds or 0.0)
        unseen = {name: before[name] for name in orders if name in before and name not in operators}
        return unseen | {
            operator: _check_proof(order, before.get(operator), row.proofs[operator], seen_at)
            if operator in row.proofs
            else follow_order(
                before.get(operator),
                order,
                _get_task_count(operators[operator]),
                seen_at,
                self._patience(row.kind),
                row.set_to.get(operator),
            )
            for operator, order in orders.items()
            if operator in operators
        }


def _get_task_count(operator: Mapping[str, Any]) -> int | None:
    """Return the number of tasks; None if it is unknown."""
    return None if operator.get("unknown_tasks") is not None else operator["parallelism"]


def _get_operators(row: PlantStatus) -> Mapping[str, Any]:
    operators: Mapping[str, Any] = (row.topology or {}).get("operators", {})
    return operators


def _check_proof(order: GivenOrder, before: OrderStatus | None, proof: ProofStatus, seen_at: float) -> OrderStatus:
    """Check an order by the proof of its declaration.

    An unknown proof shows nothing: a reached order stays reached, and a pending one keeps waiting for as long as it may
    take.
    """
    patience = ConvergenceTimeout(more_seconds=proof.within_seconds, fewer_seconds=proof.within_seconds)
    tasks = None if proof.value is None else round(proof.value)
    return follow_order(before, order, tasks, seen_at, patience)


def load_orders() -> Noted:
    """Return the orders of all registered plants."""
    orders: dict[str, dict[str, GivenOrder]] = {}
    for plant_order in PlantOrder.objects.select_related("plant"):
        order = GivenOrder(plant_order.tasks, plant_order.at.timestamp(), plant_order.by, plant_order.by_loop)
        orders.setdefault(plant_order.plant.name, {})[plant_order.operator] = order
    return orders


def forget(plant: str, operators: Iterable[str] = ()) -> int:
    """Forget the orders of these operators, or of all; return how many there were."""
    rows = PlantOrder.objects.filter(plant__name=plant)
    wanted = list(operators)
    return (rows.filter(operator__in=wanted) if wanted else rows).delete()[0]


def explain_unreached(row: PlantStatus | None) -> str | None:
    """Return why loops hold: orders without effect or undone, as a sentence without its full stop."""
    wrong = [] if row is None else [explain_fault(name, order) for name, order in row.orders.items()]
    reasons = [reason for reason in wrong if reason]
    if not reasons:
        return None
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}; to let the loop continue, release the operator on the plant's page"
