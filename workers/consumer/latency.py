"""Latency of events from publish to acknowledge, as a histogram that can be added up across workers.

Buckets are log-spaced. Bucket i ≥ 1 has latencies in [LOWEST·GROWTH^(i-1), LOWEST·GROWTH^i) seconds, bucket 0 all below
LOWEST. A quantile is the geometric middle of its bucket, so its relative error is at most √GROWTH - 1 (RELATIVE_ERROR,
4.9 %) for latencies between LOWEST_SECONDS and HIGHEST_SECONDS. Merging is addition: order and grouping do not matter,
so workers may HINCRBY buckets into one Redis hash.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LOWEST_SECONDS = 0.0005
HIGHEST_SECONDS = 30 * 86_400.0
GROWTH = 1.1
RELATIVE_ERROR = math.sqrt(GROWTH) - 1
_LOG_GROWTH = math.log(GROWTH)
LAST_BUCKET = math.ceil(math.log(HIGHEST_SECONDS / LOWEST_SECONDS) / _LOG_GROWTH)


def bucket_of(latency_seconds: float) -> int:
    """Return the bucket of a latency. A negative one (two clocks disagree) counts as the lowest."""
    if not latency_seconds >= LOWEST_SECONDS:
        return 0
    return min(LAST_BUCKET, 1 + int(math.log(latency_seconds / LOWEST_SECONDS) / _LOG_GROWTH))


def compute_middle_seconds(bucket: int) -> float:
    """Return the geometric middle of a bucket, which is the value of a quantile in it."""
    if bucket <= 0:
        return LOWEST_SECONDS / 2
    return LOWEST_SECONDS * math.exp(_LOG_GROWTH * (bucket - 0.5))


@dataclass(frozen=True, slots=True)
class Latencies:
    """Events per bucket."""

    events: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def build(cls, samples: Iterable[tuple[float, int]]) -> "Latencies":
        """Build from (latency in seconds, events) pairs."""
        events: dict[int, int] = {}
        for latency_seconds, count in samples:
            bucket = bucket_of(latency_seconds)
            events[bucket] = events.get(bucket, 0) + count
        return cls(events)

    @classmethod
    def from_hash(cls, stored: Mapping[bytes, bytes]) -> "Latencies":
        """Build from the Redis hash `weir:latency:{queue}`."""
        return cls({int(bucket): int(events) for bucket, events in stored.items()})

    @property
    def count(self) -> int:
        return sum(self.events.values())

    def merge(self, other: "Latencies") -> "Latencies":
        """Return the sum of both."""
        events = dict(self.events)
        for bucket, count in other.events.items():
            events[bucket] = events.get(bucket, 0) + count
        return Latencies(events)

    def subtract(self, earlier: "Latencies") -> "Latencies":
        """Return the events after `earlier` of the same cumulative histogram.

        One that was emptied in the meantime counts from zero.
        """
        if any(self.events.get(bucket, 0) < count for bucket, count in earlier.events.items()):
            return self
        grown = {b: n - earlier.events.get(b, 0) for b, n in self.events.items()}
        return Latencies({bucket: count for bucket, count in grown.items() if count})

    def quantile(self, share: float) -> float | None:
        """Return the latency in seconds that `share` (0..1) of the events did not exceed.

        None without events.
        """
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share must be from 0 to 1, not {share}")
        needed, seen = max(1, math.ceil(share * self.count)), 0
        for bucket in sorted(self.events):
            seen += self.events[bucket]
            if seen >= needed:
                return compute_middle_seconds(bucket)
        return None
