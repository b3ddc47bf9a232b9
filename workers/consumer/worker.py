"""The short-lived worker: it claims blocks of one segment, has them handled, acknowledges, reports, and ends.

On the path of success, no step costs Python time per event: blocks are claimed together, decoded by Arrow, and handled
and acknowledged together. Claims are renewed every KEEP_ALIVE_SECONDS while the worker lives, however long the handler
takes. A claim that is idle for IDLE_SECONDS therefore belongs to a dead worker, and the next worker takes it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import redis
from celery import current_app

from common.errors import BadInput, MalformedEvent
from controllers.retries.circuit import DestinationCalls
from queues.events.block import build_unreadable_event, decode
from queues.fairness import LaneWeights
from queues.segments.checksum import Damage
from queues.segments.segment import ClaimedBlock, Segment
from queues.topology import QueueSpec, Topology
from workers.consumer.attempt import BEGINS_WITHIN_SECONDS, DeadlineExceeded, HandlerCall
from workers.consumer.backoff import Backoff
from workers.consumer.claim_size import ClaimSize
from workers.consumer.destination import DestinationLimit, NoLimit
from workers.consumer.handler import Delivery, Failure, Handler
from workers.consumer.work_report import RUNNING_EXPIRES_SECONDS, SUBMISSION_EXPIRES_SECONDS, Latencies, Report, submit
from workers.pool.departures import Completion
from workers.pool.hosts import CONSUME
from workers.pool.orders import read_host_reports
from workers.pool.selection import HostSelection, build_celery_queue

KEEP_ALIVE_SECONDS = 2.0
IDLE_SECONDS = RUNNING_EXPIRES_SECONDS
SPARE_TRIES = 2


def compute_work_seconds(handler_timeout_seconds: float) -> float:
    """Return how long a worker starts new handler calls for blocks that have failed before.

    The time allows for a hang and for separating a block with a few hung events. All other calls start within
    BEGINS_WITHIN_SECONDS.
    """
    return 4 * handler_timeout_seconds + 10


class KeepAlive:
    """Two threads that renew the claims at the node and report to the control server that the worker lives.

    A control server that is away or slow therefore costs no claim.
    """

    def __init__(self, segment: Segment, worker_id: str, alive: Callable[[], None]) -> None:
        self._segment, self._worker_id = segment, worker_id
        self._entries: frozenset[str] = frozenset()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(action,), name="keep-alive", daemon=True)
            for action in (self._renew, alive)
        ]

    def __enter__(self) -> "KeepAlive":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def hold(self, entries: Sequence[str]) -> None:
        """Renew these claims, and no others, from now on."""
        self._entries = frozenset(entries)

    def _renew(self) -> None:
        if self._entries:
            self._segment.keep_alive(self._worker_id, list(self._entries))

    def _repeat(self, action: Callable[[], object]) -> None:
        while not self._stop.wait(KEEP_ALIVE_SECONDS):
            # The next call makes up for a missed one; the work itself detects a lasting fault.
            with suppress(Exception):
                action()


@dataclass(slots=True)
class Tally:
    """The work done so far."""

    events: int = 0
    blocks: int = 0
    failed: int = 0
    dead: int = 0
    latencies: Latencies = field(default_factory=Latencies)


class Consumer:
    """One worker at one segment. Call `run` once.

    dead_lettered: takes the events that became dead letters, as (rows, error). weights: returns those of lanes; None if
    the queue is not fair.
    """

    def __init__(
        self,
        spec: QueueSpec,
        segment: Segment,
        handler: Handler,
        worker_id: str,
        *,
        alive: Callable[[], None] = lambda: None,
        paused: Callable[[], bool] = lambda: False,
        completed: Callable[[Sequence[Completion]], None] = lambda done: None,
        dead_lettered: Callable[[Sequence[tuple[pa.RecordBatch, str]]], None] = lambda letters: None,
        weights: Callable[[], LaneWeights | None] = lambda: None,
        limit: DestinationLimit = NoLimit(),  # noqa: B008 (stateless)
        backoff: Backoff = Backoff(),  # noqa: B008 (frozen)
        monotonic: Callable[[], float] = time.monotonic,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._spec, self._segment, self._worker_id = spec, segment, worker_id
        self._backoff, self._monotonic, self._idle_seconds = backoff, monotonic, idle_seconds
        self._began_seconds = monotonic()
        until = self._began_seconds + compute_work_seconds(spec.handler_timeout_seconds)
        self._attempt = HandlerCall(handler, spec.handler_timeout_seconds, until, monotonic)
        self._begins_until_seconds = min(until, self._began_seconds + BEGINS_WITHIN_SECONDS)
        self._keep_alive = KeepAlive(segment, worker_id, alive)
        self._tally, self._completed, self._dead_lettered, self._paused = Tally(), completed, dead_lettered, paused
        self._limit, self._weights = limit, weights

    def run(self) -> None:
        """Work until the quota is used, nothing is left, the queue is paused, or the turn is over.

        Claimed blocks are finished, except those not started when the turn is over, or when the circuit of the
        destination opens: the next worker gets them at once, and no try is counted. Raises NodeUnavailable when the
        segment's node is away.
        """
        left, weights = self._spec.events_per_worker, self._weights()
        size = ClaimSize(is_fair=weights is not None)
        with self._keep_alive, closing(self._limit):
            while left > 0 and not self._is_over() and not self._paused():
                admission = self._limit.admit()
                if admission == "none":
                    break
                events = 1 if admission == "probe" else min(left, size.ordinary)
                claimed = self._segment.claim(
                    self._worker_id, events, self._idle_seconds, weights=weights, diverted_events=size.diverted
                )
                if not claimed:
                    break
                count, began_seconds = sum(block.events for block in claimed), self._monotonic()
                left -= count
                self._work(claimed, is_probe=admission == "probe")
                size.record(count, self._monotonic() - began_seconds)

    def _is_over(self) -> bool:
        return self._monotonic() >= self._begins_until_seconds

    def _work(self, claimed: Sequence[ClaimedBlock], is_probe: bool) -> None:
        self._keep_alive.hold([block.entry_id for block in claimed])
        readable = self._decode_blocks(claimed)
        lost = [pair for pair in readable if pair[0].tries > self._spec.tries + SPARE_TRIES]
        first = [pair for pair in readable if pair[0].tries <= 1]
        again = [pair for pair in readable if 1 < pair[0].tries <= self._spec.tries + SPARE_TRIES]
        for block, delivery in lost:
            # Its workers never postponed it, because they were killed each time.
            error = f"its worker was killed or ran out of time {block.tries - 1} times"
            self._move_to_dead_letters(block, [(delivery.fill_ids(), error)])
        while first and not self._is_over() and (is_probe or not self._limit.is_open):
            count = self._attempt.choose_block_count(len(first))
            self._settle(first[:count], self._attempt.handle_together([delivery for _, delivery in first[:count]]))
            self._report_completed()
            first = first[count:]
        for block, _ in first:
            self._give_back(block)
        for pair in again:
            # One after the other: a failing block is separated while there is time and not after all were tried.
            if is_probe or (not self._limit.is_open and self._limit.take_retry()):
                self._settle([pair], self._attempt.handle_separately([pair[1]]))
            else:
                self._wait_for_budget(pair[0])
        self._report_completed()
        self._keep_alive.hold([])

    def _count_calls(
        self, pairs: list[tuple[ClaimedBlock, Delivery]], failures: dict[int, Failure]
    ) -> DestinationCalls:
        """Return the calls of the destination for these blocks: one for all if the handler does not divide them."""
        errors = [failure.error for failure in failures.values() if failure.is_of_destination]
        done = [block for place, (block, _) in enumerate(pairs) if place not in failures]
        firsts = sum(block.tries <= 1 for block in done)
        if self._attempt.handler.works_block_by_block:
            return DestinationCalls(firsts, len(done), len(errors), errors[-1] if errors else "")
        return DestinationCalls(min(1, firsts), min(1, len(done)), min(1, len(errors)), errors[-1] if errors else "")

    def _report_completed(self) -> None:
        """Report completions, which the host measures; a failure to report stops no work."""
        done, self._attempt.completions = self._attempt.completions, []
        with suppress(redis.RedisError):
            self._completed(done)

    def _settle(self, pairs: list[tuple[ClaimedBlock, Delivery]], failures: dict[int, Failure]) -> None:
        """Acknowledge the handled blocks all at once, then process the failures."""
        self._limit.record(self._count_calls(pairs, failures))
        self._acknowledge([block for place, (block, _) in enumerate(pairs) if place not in failures])
        for place, failure in failures.items():
            self._fail(*pairs[place], failure)

    def _acknowledge(self, blocks: Sequence[ClaimedBlock]) -> None:
        if not blocks:
            return
        removed = self._segment.acknowledge([block.entry_id for block in blocks])
        self._tally.events += removed.events
        self._tally.blocks += removed.blocks
        self._tally.latencies = self._tally.latencies.merge(self._measure_latencies(blocks))

    def _measure_latencies(self, blocks: Sequence[ClaimedBlock]) -> Latencies:
        """Return latencies by the clock of the node, which stamped the entries: two machines may disagree."""
        try:
            seconds, microseconds = self._segment.node.time()
        except redis.RedisError:
            return Latencies()  # the work is acknowledged; only its age is unknown
        now_seconds = seconds + microseconds / 1e6
        return Latencies.build((now_seconds - block.inserted_at_seconds, block.events) for block in blocks)

    def _fail(self, block: ClaimedBlock, delivery: Delivery, failure: Failure) -> None:
        if failure.untried:
            self._give_back(block)
            return
        if not failure.poison and block.tries < self._spec.tries:
            self._put_off(block, failure.delay_seconds)
            return
        try:
            self._move_to_dead_letters(block, self._attempt.separate(delivery, failure))
        except DeadlineExceeded:
            self._put_off(block)

    def _give_back(self, block: ClaimedBlock) -> None:
        """Release a block so that the next worker gets it at once."""
        self._segment.retry(block, self._worker_id, 0.0, untried=True)

    def _wait_for_budget(self, block: ClaimedBlock) -> None:
        """Delay a retry that the budget of the destination does not pay for yet. No try is counted."""
        delay_seconds = self._backoff.compute_delay_seconds(block.block_id, block.tries)
        self._segment.retry(block, self._worker_id, delay_seconds, untried=True)

    def _put_off(self, block: ClaimedBlock, at_least_seconds: float = 0.0) -> None:
        delay_seconds = self._backoff.compute_delay_seconds(block.block_id, block.tries)
        if self._segment.retry(block, self._worker_id, max(delay_seconds, at_least_seconds)):
            self._tally.failed += 1

    def _move_to_dead_letters(
        self, block: ClaimedBlock, poison: list[tuple[pa.RecordBatch, str]], is_whole: bool = False
    ) -> None:
        """Move poison events to the dead letters. is_whole: no event of the block could be read."""
        if not poison:  # the last try succeeded after all, part by part
            self._acknowledge([block])
            return
        removed = self._segment.move_to_dead_letters(block, self._worker_id, poison)
        if not removed.blocks:
            return  # another worker has this block in the meantime, or has ended it, and counts it
        dead = removed.events if is_whole else sum(rows.num_rows for rows, _ in poison)
        self._tally.dead += dead
        self._tally.events += removed.events - dead
        self._tally.blocks += 1
        self._dead_lettered(poison)

    def _quarantine(self, block: ClaimedBlock, damage: Damage) -> None:
        """Move a damaged block to the dead letters: its events are never handled."""
        removed = self._segment.quarantine(block.entry_id, damage, self._worker_id)
        self._tally.dead += removed.events
        self._tally.blocks += removed.blocks

    def _decode_blocks(self, claimed: Sequence[ClaimedBlock]) -> list[tuple[ClaimedBlock, Delivery]]:
        pairs = []
        for block in claimed:
            if block.damage is not None:
                self._quarantine(block, block.damage)
                continue
            try:
                batch = decode(block.block_id, block.data).batch
            except MalformedEvent as error:
                lost = build_unreadable_event(block.block_id, block.newest_time_us, block.data)
                self._move_to_dead_letters(block, [(lost, str(error))], is_whole=True)
            else:
                pairs.append((block, Delivery(block.block_id, batch)))
        return pairs

    def report(self) -> Report:
        """Return its work so far, also when `run` raised."""
        tally, done = self._tally, self._attempt.done
        return Report(
            events=tally.events,
            blocks=tally.blocks,
            effects=done.effects,
            duplicates=done.duplicates,
            failed=tally.failed,
            dead=tally.dead,
            busy_seconds=self._monotonic() - self._began_seconds,
            latencies=tally.latencies,
        )


KILL_AFTER_SECONDS = 10.0
AHEAD_OF_ALL = 0  # Celery's highest priority: served before any queue with another one


ROLE = "jobs"


def send_workers(
    control: redis.Redis,
    topology: Topology,
    queue: str,
    node: str,
    count: int,
    worker_ids: Sequence[str],
    now: float,
    ahead: int = 0,
    selection: HostSelection | None = None,
) -> list[str]:
    """Submit `count` workers for one container under their ids and return the ids.

    The first `ahead` of them are served before other queues', the rest by the queue's priority. They are counted as
    waiting to run, then sent; a submission that no host takes within SUBMISSION_EXPIRES_SECONDS is void. Celery's time
    limits are the last resort after the worker's own (`workers.consumer.attempt`): an exception (soft), then the
    process is killed (hard). `selection` gives the hosts; by default, it is the hosts that report now. Raises BadInput
    for a container that does not exist, and if no host has the capabilities that the queue requires.
    """
    spec = topology.queue(queue)
    if spec.kind != "jobs":
        raise BadInput("queue", f"{queue} is read by the pipeline. Only a jobs queue has workers.")
    if topology.get_node(node).name not in spec.points:
        raise BadInput("node", f"{node} has no container of {queue}. Choose {', '.join(spec.points)}.")
    if count != len(worker_ids):
        raise BadInput("count", f"must equal the number of IDs ({len(worker_ids)}), not {count}.")
    if not worker_ids:
        return []
    hosts = selection or HostSelection(read_host_reports(control), now)
    destinations = [hosts.choose(ROLE, spec.requirements, near=node) for _ in worker_ids]
    submit(control, queue, node, worker_ids, now)
    soft_seconds: Any = compute_work_seconds(spec.handler_timeout_seconds) + spec.handler_timeout_seconds
    for place, (worker_id, destination) in enumerate(zip(worker_ids, destinations, strict=True)):
        current_app.send_task(
            CONSUME,
            args=(queue, node, worker_id),
            task_id=worker_id,
            queue=build_celery_queue(destination),
            priority=AHEAD_OF_ALL if place < ahead else spec.priority,
            expires=SUBMISSION_EXPIRES_SECONDS,
            soft_time_limit=soft_seconds,
            time_limit=soft_seconds + KILL_AFTER_SECONDS,
        )
    return list(worker_ids)
