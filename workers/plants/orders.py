"""What was last ordered of other people's plants: noted before it is sent, followed until it is reached."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from controllers.parallelism.measured_topology import MeasuredTopology
from queues.errors import BadInput
from queues.stored_document import changed
from workers.documents.plants import OrderStatus, PlantStatus, ProofStatus
from workers.plants.holding import PlantHeld
from workers.plants.models import PlantOrder, RegisteredPlant
from workers.plants.plant import Elastic
from workers.plants.reached import USUAL, GivenOrder, Patience, followed, why_wrong

Noted = Mapping[str, Mapping[str, GivenOrder]]  # plant → operator → its order
# Not there for so long, an operator that comes back under its name is taken to be another one.
GONE_SECONDS = 3_600.0
REFUSED = (BadInput, PlantHeld)  # then nothing was set; after any other error something may have been


class OrderedPlant(Elastic):
    """A registered plant of which every setting is noted, with who set it."""

    def __init__(
        self,
        row: RegisteredPlant,
        plant: Elastic,
        by: str,
        by_loop: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._row, self._plant, self._by, self._by_loop, self._clock = row, plant, by, by_loop, clock

    def topology(self) -> MeasuredTopology:
        """The plant's."""
        return self._plant.topology()

    def hold(self, seconds: float) -> None:
        """The plant is."""
        self._plant.hold(seconds)

    def release(self) -> None:
        """The plant is."""
        self._plant.release()

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """As the plant does. What it refuses was not ordered."""
        with self._noted(tasks):
            self._plant.set_parallelism(tasks)

    @contextmanager
    def _noted(self, tasks: Mapping[str, int]) -> Iterator[None]:
        before = {each.operator: each for each in PlantOrder.objects.filter(plant=self._row)}
        at = datetime.fromtimestamp(self._clock(), UTC)
        for operator, count in tasks.items():
            values = {"tasks": count, "at": at, "by": self._by, "by_loop": self._by_loop}
            PlantOrder.objects.update_or_create(plant=self._row, operator=operator, defaults=values)
        try:
            yield
        except REFUSED:
            for operator in tasks:
                if operator in before:
                    before[operator].save()
                else:
                    PlantOrder.objects.filter(plant=self._row, operator=operator).delete()
            raise


def forget_until(plant: str, operator: str, at: float) -> None:
    """What was ordered of an operator until then (s since 1970) counts no longer."""
    until = datetime.fromtimestamp(at, UTC)
    PlantOrder.objects.filter(plant__name=plant, operator=operator, at__lte=until).delete()


class OrderWatch:
    """Follows every order from snapshot to snapshot. Where an operator is not seen for a time, or not yet,
    what was known of its order stays. What was ordered of one that was started anew since is forgotten.
    """

    def __init__(
        self,
        noted: Callable[[], Noted] | None = None,
        patience: Callable[[str], Patience] = lambda kind: USUAL,
        before: Callable[[], Mapping[str, PlantStatus]] = dict,
        forget_until: Callable[[str, str, float], None] = forget_until,
    ) -> None:
        """patience: of a kind of plant. before: the plants of the newest snapshot, for one that begins.
        forget_until: as that of this module.
        """
        self._noted, self._patience, self._published = noted or noted_orders, patience, before
        self._forget_until = forget_until
        self._absent: dict[tuple[str, str], float] = {}  # plant, operator → since when
        self._followed: dict[str, dict[str, OrderStatus]] | None = None

    def step(self, rows: Mapping[str, PlantStatus], now: float) -> dict[str, PlantStatus]:
        """The plants with what became of their orders; now: s since 1970."""
        if self._followed is None:
            self._followed = {name: dict(row.orders) for name, row in self._published().items()}
        noted = self._noted() if rows else {}
        self._absent = {
            (name, operator): self._absent.get((name, operator), now)
            for name, row in rows.items()
            for operator in noted.get(name, {})
            if row.topology is not None and operator not in _operators(row)
        }
        self._followed = {
            name: self._of_plant(
                row,
                self._in_force(name, row, noted.get(name, {}), now),
                self._followed.get(name, {}),
                now,
            )
            for name, row in rows.items()
        }
        return {name: changed(row, orders=_shown(row, self._followed[name])) for name, row in rows.items()}

    def _in_force(
        self, name: str, row: PlantStatus, orders: Mapping[str, GivenOrder], now: float
    ) -> dict[str, GivenOrder]:
        """Those of operators as they live now, and of others for GONE_SECONDS; the rest is forgotten."""
        found = {}
        for operator, order in orders.items():
            is_gone = now - self._absent.get((name, operator), now) > GONE_SECONDS
            if is_gone or order.at < row.lives.get(operator, order.at):
                self._forget_until(name, operator, order.at)
            else:
                found[operator] = order
        return found

    def _of_plant(
        self,
        row: PlantStatus,
        orders: Mapping[str, GivenOrder],
        before: Mapping[str, OrderStatus],
        now: float,
    ) -> dict[str, OrderStatus]:
        operators = _operators(row)
        seen_at = now - (row.age_seconds or 0.0)
        unseen = {name: before[name] for name in orders if name in before and name not in operators}
        return unseen | {
            operator: _proved(order, before.get(operator), row.proofs[operator], seen_at)
            if operator in row.proofs
            else followed(
                before.get(operator),
                order,
                _tasks_of(operators[operator]),
                seen_at,
                self._patience(row.kind),
                row.set_to.get(operator),
            )
            for operator, order in orders.items()
            if operator in operators
        }


def _tasks_of(operator: Mapping[str, Any]) -> int | None:
    """How many tasks it has; None where that is not known."""
    return None if operator.get("unknown_tasks") is not None else operator["parallelism"]


def _shown(row: PlantStatus, orders: dict[str, OrderStatus]) -> dict[str, OrderStatus]:
    """Loops hold for none of an operator that is gone from a plant that is seen."""
    if row.topology is None:
        return orders
    return {name: each for name, each in orders.items() if name in _operators(row)}


def _operators(row: PlantStatus) -> Mapping[str, Any]:
    operators: Mapping[str, Any] = (row.topology or {}).get("operators", {})
    return operators


def _proved(order: GivenOrder, before: OrderStatus | None, proof: ProofStatus, seen_at: float) -> OrderStatus:
    """By what its declaration says shows it. A proof that is not known shows nothing: what was reached stays
    so, what is pending waits on, for as long as it may take.
    """
    patience = Patience(more_seconds=proof.within_seconds, fewer_seconds=proof.within_seconds)
    tasks = None if proof.value is None else round(proof.value)
    return followed(before, order, tasks, seen_at, patience)


def noted_orders() -> Noted:
    """Of all registered plants."""
    found: dict[str, dict[str, GivenOrder]] = {}
    for each in PlantOrder.objects.select_related("plant"):
        order = GivenOrder(each.tasks, each.at.timestamp(), each.by, each.by_loop)
        found.setdefault(each.plant.name, {})[each.operator] = order
    return found


def forget(plant: str, operators: Iterable[str] = ()) -> int:
    """What was ordered counts no longer, of these operators or of all; how many there were."""
    rows = PlantOrder.objects.filter(plant__name=plant)
    wanted = list(operators)
    return (rows.filter(operator__in=wanted) if wanted else rows).delete()[0]


def why_unreached(row: PlantStatus | None) -> str | None:
    """Why loops hold: orders that took no effect or were undone, in a sentence without its full stop."""
    wrong = [] if row is None else [why_wrong(name, order) for name, order in row.orders.items()]
    found = [each for each in wrong if each]
    if not found:
        return None
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0]}{more}; a person lets the loop go on, on the plant's page"
