"""Reports of workers to the control server about themselves and their work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import redis

from queues import keys
from queues.lua.script import load_script
from workers.consumer.latency import Latencies
from workers.pool.departures import Completion, CompletionReporter

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


def count_waiting_workers(control: redis.Redis, queue: str, node: str, now: float) -> int:
    """Count submitted workers that have not started; expired submissions are removed and do not count."""
    key = keys.SUBMITTED.build(queue, node)
    with control.pipeline(transaction=True) as pipe:
        _forget_expired(pipe, key, now, SUBMISSION_EXPIRES_SECONDS)
        pipe.zcard(key)
        return int(pipe.execute()[-1])
