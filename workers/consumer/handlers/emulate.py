"""A handler that takes as long as real work: service times drawn from a distribution, without effects.

Options: `distribution` constant | exponential | lognormal, `seconds` the mean service time, `per` event | block, `cv`
the coefficient of variation (standard deviation / mean; lognormal only), `seed`, `failing` the share of events that
fail on every try. The draws of a block depend only on the seed and its id, so a replay takes as long, and the same
events fail.
"""

import math
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from workers.consumer.handler import Delivery, Failure, Handler, Options, Outcome, Place


class Emulate(Handler):
    """A handler that waits, by default exactly 0.1 ms per event."""

    works_block_by_block = True

    def __init__(self, place: Place, options: Options, sleep: Callable[[float], None] = time.sleep) -> None:
        self.distribution = options.get_choice("distribution", "constant", ("constant", "exponential", "lognormal"))
        self.mean_seconds = options.get_number("seconds", 0.0001, 0.0, 3600.0)
        self.per = options.get_choice("per", "event", ("event", "block"))
        self.cv = options.get_number("cv", 1.0, 0.0, 100.0)
        self.seed = int(options.get_number("seed", 0, 0, 2**32 - 1))
        self.failing_share = options.get_number("failing", 0.0, 0.0, 1.0)
        options.finish()
        self._sleep = sleep

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        outcome, failures = Outcome(), list[Failure]()
        for block, delivery in enumerate(deliveries):
            if failing := self.count_failing(delivery):
                failures.append(Failure(block, f"{failing} of {delivery.events} events failed (option `failing`)."))
                continue
            self._sleep(self.compute_service_seconds(delivery))
            done = ((time.monotonic(), delivery.events),)
            outcome = outcome.add_counts(Outcome(effects=delivery.events, completions=done))
        return replace(outcome, failures=tuple(failures))

    def count_failing(self, delivery: Delivery) -> int:
        """Return how many of its events fail: those whose id hashes below the share."""
        if not self.failing_share:
            return 0
        limit = self.failing_share * 2**32
        return sum(zlib.crc32(f"{self.seed}{id}".encode()) < limit for id in delivery.get_event_ids().to_pylist())

    def compute_service_seconds(self, delivery: Delivery) -> float:
        """Return the total service time of its events."""
        draws = delivery.events if self.per == "event" else 1
        if self.distribution == "constant" or self.mean_seconds == 0:
            return draws * self.mean_seconds
        random = np.random.default_rng((self.seed, zlib.crc32(delivery.key.encode())))
        if self.distribution == "exponential":
            return float(random.exponential(self.mean_seconds, draws).sum())
        sigma = math.sqrt(math.log1p(self.cv**2))
        return float(random.lognormal(math.log(self.mean_seconds) - sigma**2 / 2, sigma, draws).sum())


class Noop(Handler):
    """A handler that does nothing, for measuring the maximum throughput of the system itself."""

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        return Outcome(effects=sum(delivery.events for delivery in deliveries))
