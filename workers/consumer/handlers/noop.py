"""A handler that does nothing, for measuring the maximum throughput of the system itself."""

from collections.abc import Sequence

from workers.consumer.handlers.delivery import Delivery
from workers.consumer.handlers.effects import Outcome
from workers.consumer.handlers.handler import Place
from workers.consumer.handlers.options import Options


class Noop:
    """The handler without options."""

    def __init__(self, place: Place, options: Options) -> None:
        options.finish()

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        return Outcome(effects=sum(delivery.events for delivery in deliveries))
