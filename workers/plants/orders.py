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


class OrderWatch:
    """Follows every order from snapshot to snapshot."""

    def __init__(
        self,
        noted: Callable[[], Noted] | None = None,
        patience: Callable[[str], Patience] = lambda kind: USUAL,
        before: Callable[[], Mapping[str, PlantStatus]] = dict,
    ) -> None:
        """patience: of a kind of plant. before: the plants of the newest snapshot, for one that begins."""
        self._noted, self._patience, self._published = noted or noted_orders, patience, before
        self._followed: dict[str, dict[str, OrderStatus]] | None = None

    def step(self, rows: Mapping[str, PlantStatus], now: float) -> dict[str, PlantStatus]:
        """The plants with what became of their orders; now: s since 1970."""
        if self._followed is None:
            self._followed = {name: dict(row.orders) for name, row in self._published().items()}
        noted = self._noted() if rows else {}
        self._followed = {
            name: self._of_plant(row, noted.get(name, {}), self._followed.get(name, {}), now)
            for name, row in rows.items()
        }
        return {name: changed(row, orders=self._followed[name]) for name, row in rows.items()}

    def _of_plant(
        self,
        row: PlantStatus,
        orders: Mapping[str, GivenOrder],
        before: Mapping[str, OrderStatus],
        now: float,
    ) -> dict[str, OrderStatus]:
        operators: Mapping[str, Any] = (row.topology or {}).get("operators", {})
        seen_at = now - (row.age_seconds or 0.0)
        return {
            operator: _proved(order, before.get(operator), row.proofs[operator], seen_at)
            if operator in row.proofs
            else followed(
                before.get(operator),
                order,
                operators[operator]["parallelism"],
                seen_at,
                self._patience(row.kind),
                row.set_to.get(operator),
            )
            for operator, order in orders.items()
            if operator in operators
        }


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
