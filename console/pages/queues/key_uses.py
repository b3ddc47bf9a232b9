"""The share of each key in the arrivals of a queue, from the samples of its producers, and the weights of keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import redis

from queues import fairness
from queues.events.block import NONE
from queues.fairness import Fairness, KeyWeight
from workers.documents.queues import ProducerStatus

MAX_KEYS = 8  # without an override


@dataclass(frozen=True)
class KeyUse:
    """The use of a queue by one key. share: of the arrivals, 0 to 1; None if no sample contains the key."""

    key: str
    share: float | None
    override: KeyWeight | None = None

    @property
    def expires_at(self) -> datetime | None:
        """Return when the override ends."""
        return datetime.fromtimestamp(self.override.until, UTC) if self.override else None


@dataclass(frozen=True)
class FairnessOfQueue:
    """The fairness of a queue as its page shows it. current: None while the queue is not fair."""

    current: Fairness | None
    uses: Sequence[KeyUse]


def load(
    control: redis.Redis, queue: str, producers: Mapping[str, ProducerStatus], now: datetime
) -> FairnessOfQueue | None:
    """Return the fairness of a queue, and its keys with the largest shares first.

    None: the control server does not respond, so it is unknown whether the queue is fair.
    """
    try:
        current = fairness.load_fairness(control, queue, now.timestamp())
    except redis.RedisError:
        return None
    return FairnessOfQueue(current, list_key_uses(queue, producers, current.overrides if current else {}))


def list_key_uses(
    queue: str, producers: Mapping[str, ProducerStatus], overrides: Mapping[str, KeyWeight]
) -> list[KeyUse]:
    """Return all overridden keys, and the other keys with the largest shares."""
    shares = compute_shares(queue, producers)
    largest = sorted(shares.keys() - overrides.keys(), key=lambda key: (-shares[key], key))[:MAX_KEYS]
    uses = [KeyUse(key, shares.get(key), overrides.get(key)) for key in {*largest, *overrides}]
    return sorted(uses, key=lambda use: (-(use.share or 0.0), use.key))


def compute_shares(queue: str, producers: Mapping[str, ProducerStatus]) -> dict[str, float]:
    """Return the share of each key in the queue's arrivals, 0 to 1. A sample counts by the rate of its producer."""
    rates: dict[str, float] = {}
    total = 0.0
    for producer in producers.values():
        sample, rate = producer.samples.get(queue), producer.queues.get(queue)
        if sample is None or not sample.events or not rate:
            continue
        total += rate
        for key, events in sample.key.items():
            if key != NONE:
                rates[key] = rates.get(key, 0.0) + rate * events / sample.events
    return {key: rate / total for key, rate in rates.items()}
