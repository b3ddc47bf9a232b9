"""The prices of the plant: one list that guards, costs, and reports read.

A price is money per unit. None is a price that is not set: a cost that needs it is then unknown, never 0. The price of
a lost event can differ by event type, and the price of a bad second by service level.
"""

from collections.abc import Iterable, Mapping

import msgspec

from common.parameter import Parameter
from workers.models import Setting

PREFIX = "price."
CURRENCY = "Use one currency for all prices. Without a price, Weir computes no cost."
MAX_PRICE = 1e9
_BY_NAME = {
    "lost_event": "Price of a lost event by type, if it differs from the general price: orders=2, clicks=0.001.",
    "delay_second": (
        "Price of a bad second by service level, if it differs from the general price: Checkout=0.5, Reports=0."
    ),
}
DECLARED = (
    *(
        Parameter(f"{PREFIX}{name}", unit, f"{text} {CURRENCY}", None, 0.0, MAX_PRICE, or_null=True)
        for name, unit, text in (
            ("worker_hour", "money/h", "Cost of one working hour of a worker host process."),
            ("node_hour", "money/h", "Cost of a node in use per hour."),
            ("task_hour", "money/h", "Cost of a task of an operator per hour."),
            ("lost_event", "money", "Value of an event that is shed."),
            ("delay_second", "money/s", "Cost of a second in which events wait longer than promised."),
        )
    ),
    *(
        Parameter(
            f"{PREFIX}{name}_of",
            "money",
            f"{text} The general price applies to all other names.",
            {},
            maximum=MAX_PRICE,
            kind="map",
            items=(Parameter("value", "money", "Price.", maximum=MAX_PRICE),),
            most=100,
        )
        for name, text in _BY_NAME.items()
    ),
)


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """The prices in force. lost_event_of: by event type; delay_second_of: by service level."""

    worker_hour: float | None = None
    node_hour: float | None = None
    task_hour: float | None = None
    lost_event: float | None = None
    delay_second: float | None = None
    lost_event_of: Mapping[str, float] = {}
    delay_second_of: Mapping[str, float] = {}

    @property
    def of_a_loop(self) -> float | None:
        """Return 0, or None if a price that the cost of a loop needs is missing."""
        return None if None in (self.worker_hour, self.delay_second) else 0.0

    def compute_lost_event_price(self, counts: Mapping[str, float]) -> float | None:
        """Return the mean price of lost events of these types, weighted by their counts; None if one has no price."""
        total = sum(counts.values())
        if total <= 0:
            return self.lost_event
        prices = [(self.lost_event_of.get(name, self.lost_event), count) for name, count in counts.items() if count > 0]
        return sum_known(compute_cost(count / total, price) for price, count in prices)

    def get_delay_second_price(self, service_level: str) -> float | None:
        """Return the price of a bad second of a service level."""
        return self.delay_second_of.get(service_level, self.delay_second)


def load_prices() -> Prices:
    """Return the prices in force."""
    rows = Setting.objects.filter(name__startswith=PREFIX).values_list("name", "value")
    known = {parameter.name for parameter in DECLARED}
    return Prices(**{name.removeprefix(PREFIX): value for name, value in rows if name in known})


def compute_cost(amount: float | None, price: float | None) -> float | None:
    """Return the cost of an amount, or None when the amount or its price is unknown."""
    return None if amount is None or price is None else amount * price


def sum_known(parts: Iterable[float | None]) -> float | None:
    """Return the sum, or None when a part is unknown, because a partial sum would be too low."""
    known = list(parts)
    return None if None in known else float(sum(part for part in known if part is not None))
