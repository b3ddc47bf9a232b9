"""Reports of workers to the control server about themselves and their work, and the latency of events.

Latency, from publish to acknowledge, is a histogram that can be added up across workers. Its buckets are log-spaced.
Bucket i ≥ 1 has latencies in [LOWEST·GROWTH^(i-1), LOWEST·GROWTH^i) seconds, bucket 0 all below LOWEST. A quantile is
the geometric middle of its bucket, so its relative error is at most √GROWTH - 1 (RELATIVE_ERROR, 4.9 %) for latencies
between LOWEST_SECONDS and HIGHEST_SECONDS. Merging is addition: order and grouping do not matter, so workers may
HINCRBY buckets into one Redis hash.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import redis

from queues import keys
from queues.lua.script import load_script
from workers.pool.departures import Completion, CompletionReporter

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
        """Return the latency in seconds that `share` (0..1) of the events did not exceed. None without events."""
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share must be from 0 to 1, not {share}")
        needed, seen = max(1, math.ceil(share * self.count)), 0
        for bucket in sorted(self.events):
            seen += self.events[bucket]
            if seen >= needed:
                return compute_middle_seconds(bucket)
        return None


SUBMISSION_EXPIRES_SECONDS = 60.0
# After this silence a worker counts as dead, and its claims are taken over.
RUNNING_EXPIRES_SECONDS = 6.0
IDENTITY_EXPIRES_SECONDS = 3600


END_WORKER = load_script("control/end_worker")
NOBODY = CompletionReporter("", 0)  # host of a worker without one


@dataclass(frozen=True, slots=True)
class Report:
    """The work of one worker. `failed` counts postponed blocks, `dead` dead-lettered events."""

    events: int = 0
    blocks: int = 0
    effects: int = 0
    duplicates: int = 0
    failed: int = 0
    dead: int = 0
    busy_seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)


@dataclass(frozen=True, slots=True)
class WorkReporter:
    """The reports of one worker to the control server and to its host."""

    control: redis.Redis
    queue: str
    node: str
    worker_id: str
    line: CompletionReporter = NOBODY

    def begin(self, now: float) -> bool:
        """Report the worker's start: it no longer waits to run.

        Return False when a worker of this id has started before (a task may be delivered twice): then it must not work.
        """
        key = keys.WORKER.build(self.worker_id)
        first = self.control.set(key, "started", nx=True, ex=IDENTITY_EXPIRES_SECONDS)
        if not first:
            self.control.zrem(keys.SUBMITTED.build(self.queue, self.node), self.worker_id)
            return False
        with self.control.pipeline(transaction=True) as pipe:
            pipe.zrem(keys.SUBMITTED.build(self.queue, self.node), self.worker_id)
            pipe.hincrby(keys.WORK.build(self.queue, self.node), "started", 1)
            _forget_expired(pipe, keys.RUNNING.build(self.queue, self.node), now, RUNNING_EXPIRES_SECONDS)
            pipe.zadd(keys.RUNNING.build(self.queue, self.node), {self.worker_id: now})
            self.line.record_start(pipe)
            pipe.execute()
        return True

    def report_alive(self, now: float) -> None:
        """Report every few seconds that the worker is alive; a killed one stops counting as busy."""
        self.control.zadd(keys.RUNNING.build(self.queue, self.node), {self.worker_id: now})

    def record_completions(self, done: Sequence[Completion]) -> None:
        """Report completions after each round of blocks: when which events were done."""
        self.line.record_completions(self.control, done)

    def end(self, report: Report, last_error: str = "") -> None:
        """Report the end of the worker; `last_error`: why it ended early.

        This is one step, so that the counts always agree. A repetition after a lost reply counts once.
        """
        counts: Mapping[str, int] = {
            "finished": 1,
            "failed": report.failed,
            "events": report.events,
            "effects": report.effects,
            "duplicates": report.duplicates,
            "dead": report.dead,
            "busy_ms": round(report.busy_seconds * 1000),
        }
        names = (
            keys.WORKER.build(self.worker_id),
            keys.RUNNING.build(self.queue, self.node),
            keys.WORK.build(self.queue, self.node),
            keys.LATENCY.build(self.queue),
        )
        words = (self.worker_id, IDENTITY_EXPIRES_SECONDS, last_error[:500], len(counts))
        added: list[str | int] = [part for pair in counts.items() for part in pair]
        added += [part for pair in report.latencies.events.items() for part in pair]
        with self.control.pipeline(transaction=True) as pipe:
            pipe.eval(END_WORKER, len(names), *names, *words, *added)
            self.line.record_end(pipe)
            pipe.execute()


def submit(control: redis.Redis, queue: str, node: str, worker_ids: Sequence[str], now: float) -> None:
    """Record workers as waiting to run.

    This is done before their tasks are sent: a worker that starts at once must be in the list to leave it.
    """
    key = keys.SUBMITTED.build(queue, node)
    with control.pipeline(transaction=True) as pipe:
        _forget_expired(pipe, key, now, SUBMISSION_EXPIRES_SECONDS)
        pipe.zadd(key, dict.fromkeys(worker_ids, now))
        pipe.hincrby(keys.WORK.build(queue, node), "submitted", len(worker_ids))
        pipe.execute()


def _forget_expired(pipe: redis.client.Pipeline, key: str, now: float, seconds: float) -> None:
    """Remove expired entries: workers that never started or were killed, and entries with future times."""
    pipe.zremrangebyscore(key, "-inf", now - seconds)
    pipe.zremrangebyscore(key, now + seconds, "+inf")
