"""The programs of the hosts: producers, workers, and movers, with Weir's own client, worker, transfer, and leases.

Each records what it does (`bench.schedules.history`). A poison event is rejected by the handler until the file
CORRECTED exists. Movers requeue dead letters: sometimes before, and always afterwards.
"""

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import redis

from bench.schedules.history import Recorder
from common.errors import WeirError
from queues.events.block import EncodedBlock
from queues.publishing.client import Client
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import ClaimedBlock, DepartingBlock, Removal, Segment
from queues.topology import QueueSpec
from workers.consumer import worker
from workers.consumer.backoff import Backoff
from workers.consumer.handler import Delivery, Failure, Handler, Options, Outcome, Place
from workers.consumer.handlers.sql import Sql
from workers.coordination.leases import Lease
from workers.placement.transfer import Deadline, Route

QUEUE, NODES = "orders", ("n1", "n2", "n3")
IDLE_SECONDS, KEEP_ALIVE_SECONDS = 0.6, 0.15  # real workers take longer, but schedules are short
LEASE_SECONDS, TIMEOUT_SECONDS = 1.0, 0.3
CORRECTED, STOPPED = "corrected", "stopped"  # files of the plant's folder
HANDLING_SECONDS = 0.0, 0.1, 0.4
MAX_CALL_BLOCKS, MAX_BLOCK_EVENTS = 6, 4
POISON_SHARE = 0.06
REQUEUED_EARLY_SHARE = 0.2  # of the passes after which dead letters are requeued before their cause is corrected
PLAN, FENCES = "plan:1", "fences.sqlite3"
UNAVAILABLE = (WeirError, redis.RedisError, OSError)


@dataclass(frozen=True)
class Program:
    """The arguments of a program: its host, its seed, the addresses, and the folder that all hosts share."""

    host: str
    seed: int
    control_url: str
    node_urls: dict[str, str]
    folder: Path

    @property
    def process(self) -> str:
        return f"{self.host}-{os.getpid()}"

    def open_recorder(self) -> Recorder:
        return Recorder(self.folder / "history", self.process)

    def connect(self, url: str) -> redis.Redis:
        timeouts = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
        return redis.Redis.from_url(url, retry=None, **timeouts)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()


class RecordedSegment(Segment):
    """A segment that records each operation on it."""

    def __init__(self, node: redis.Redis, queue: str, name: str, recorder: Recorder) -> None:
        super().__init__(node, queue)
        self._name, self._recorder = name, recorder

    def publish(self, blocks: Sequence[EncodedBlock]) -> None:
        with self._recorder.record("flush", node=self._name, blocks=[block.block_id for block in blocks]):
            super().publish(blocks)

    def claim(self, worker: str, *limits: Any, **options: Any) -> list[ClaimedBlock]:
        with self._recorder.record("claim", node=self._name, worker=worker) as result:
            claimed = super().claim(worker, *limits, **options)
            result["entries"] = [[block.entry_id, block.block_id] for block in claimed]
        return claimed

    def keep_alive(self, worker: str, entry_ids: Sequence[str]) -> list[str]:
        with self._recorder.record("keep_alive", node=self._name, worker=worker) as result:
            held = result["entries"] = super().keep_alive(worker, entry_ids)
        return held

    def acknowledge(self, entry_ids: Sequence[str]) -> Removal:
        with self._recorder.record("acknowledge", node=self._name, entries=list(entry_ids), worker=""):
            return super().acknowledge(entry_ids)

    def retry(self, claimed: ClaimedBlock, worker: str, delay_seconds: float, *, untried: bool = False) -> bool:
        with self._recorder.record("retry", node=self._name, worker=worker, entry=claimed.entry_id) as result:
            changed = result["changed"] = super().retry(claimed, worker, delay_seconds, untried=untried)
        return changed

    def move_to_dead_letters(
        self, claimed: ClaimedBlock, worker: str, rows: Sequence[tuple[pa.RecordBatch, str]]
    ) -> Removal:
        with self._recorder.record("dead_letter", node=self._name, worker=worker, entry=claimed.entry_id) as result:
            removed = super().move_to_dead_letters(claimed, worker, rows)
            result["changed"] = removed.blocks > 0
        return removed

    def depart(self, *limits: Any) -> list[DepartingBlock]:
        with self._recorder.record("depart", node=self._name) as result:
            rows = super().depart(*limits)
            result["entries"] = [[row.entry_id, row.block_id, row.target] for row in rows]
        return rows


class RecordedClient(Client):
    """A client that records each flush."""

    def __init__(self, control_url: str, recorder: Recorder) -> None:
        super().__init__(control_url, "bench", timeout_seconds=TIMEOUT_SECONDS)
        self._recorder = recorder

    def get_segment(self, queue: str, node: str) -> Segment:
        return RecordedSegment(super().get_segment(queue, node).node, queue, node, self._recorder)


class RecordedLease(Lease):
    """A lease that records who holds it."""

    def __init__(self, control: redis.Redis, recorder: Recorder) -> None:
        super().__init__(control, PLAN, LEASE_SECONDS)
        self._recorder, self._about = recorder, {"lease": PLAN, "seconds": LEASE_SECONDS}

    def acquire(self, at_least: int = 0) -> int | None:
        with self._recorder.record("acquire", **self._about) as result:
            fence = result["fence"] = super().acquire(at_least)
        return fence

    def renew(self) -> bool:
        with self._recorder.record("renew", **self._about, held=self.fence) as result:
            is_held = super().renew()
            result["fence"] = self.fence if is_held else None
        return is_held

    def release(self) -> bool:
        with self._recorder.record("release", **self._about, held=self.fence):
            return super().release()


class PickyHandler(Handler):
    """The handler `sql`, except that it takes random time, and rejects poison events, until they are corrected."""

    def __init__(self, program: Program, chance: Random) -> None:
        self._program, self._chance = program, chance
        self._sql = Sql(Place(QUEUE, program.folder), Options("sql", {}))

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        is_corrected = self._program.has(CORRECTED)
        if not self._program.has(STOPPED):
            time.sleep(self._chance.choice(HANDLING_SECONDS))
        poisoned = [] if is_corrected else [place for place, each in enumerate(deliveries) if _has_poison(each)]
        sound = [place for place in range(len(deliveries)) if place not in poisoned]
        outcome = self._sql.handle([deliveries[place] for place in sound]) if sound else Outcome()
        failures = [Failure(place, "poison", poison=True) for place in poisoned]
        failures += [Failure(sound[failure.block], failure.error) for failure in outcome.failures]
        return Outcome(outcome.effects, outcome.duplicates, tuple(failures))


def _has_poison(delivery: Delivery) -> bool:
    return any(event.endswith("-poison") for event in delivery.get_event_ids().to_pylist())


def produce(program: Program) -> None:
    """Publish calls of some small blocks, each until it is acknowledged or the schedule stops."""
    chance, recorder, number = Random(program.seed), program.open_recorder(), 0
    while not program.has(STOPPED):
        with suppress(*UNAVAILABLE), RecordedClient(program.control_url, recorder) as client:
            while not program.has(STOPPED):
                number += 1
                blocks: list[EncodedBlock] = []
                events: dict[str, list[str]] = {}
                for place in range(chance.randint(1, MAX_CALL_BLOCKS)):
                    ids = _draw_ids(f"{program.process}-{number}-{place}", chance)
                    (block,) = client.build_blocks([{"id": event, "type": "t", "value": 1.0} for event in ids])
                    blocks.append(block)
                    events[block.block_id] = ids
                _publish(program, client, recorder, blocks, events)
                time.sleep(chance.uniform(0.0, 0.06))
        time.sleep(0.05)


def _draw_ids(prefix: str, chance: Random) -> list[str]:
    ids = [f"{prefix}-{row}" for row in range(chance.randint(1, MAX_BLOCK_EVENTS))]
    return [f"{event}-poison" if chance.random() < POISON_SHARE else event for event in ids]


def _publish(
    program: Program,
    client: Client,
    recorder: Recorder,
    blocks: Sequence[EncodedBlock],
    events: Mapping[str, Sequence[str]],
) -> None:
    while not program.has(STOPPED):
        with suppress(*UNAVAILABLE), recorder.record("publish", blocks=events):
            client.publish_blocks(QUEUE, blocks)
            return
        time.sleep(0.05)


def consume(program: Program) -> None:
    """Run one short worker after the other, each at a random node."""
    worker.KEEP_ALIVE_SECONDS = KEEP_ALIVE_SECONDS
    chance, recorder, number = Random(program.seed), program.open_recorder(), 0
    spec = QueueSpec(QUEUE, "jobs", {}, events_per_worker=40)
    handler = PickyHandler(program, chance)
    connections = {name: program.connect(url) for name, url in program.node_urls.items()}
    while True:
        number += 1
        node = chance.choice(NODES)
        segment = RecordedSegment(connections[node], QUEUE, node, recorder)
        backoff = Backoff(base_seconds=0.1, cap_seconds=0.5)
        with suppress(*UNAVAILABLE):
            worker_id = f"{program.process}-{number}"
            worker.Consumer(spec, segment, handler, worker_id, backoff=backoff, idle_seconds=IDLE_SECONDS).run()
        time.sleep(chance.uniform(0.0, 0.05))


def move(program: Program) -> None:
    """Hold the lease of a plan, move blocks and dead letters between nodes, and write progress under its number."""
    chance, recorder = Random(program.seed), program.open_recorder()
    control = program.connect(program.control_url)
    connections = {name: program.connect(url) for name, url in program.node_urls.items()}
    segments = {name: RecordedSegment(node, QUEUE, name, recorder) for name, node in connections.items()}
    while True:
        time.sleep(chance.uniform(0.0, 0.1))
        lease = RecordedLease(control, recorder)
        with suppress(*UNAVAILABLE):
            if (fence := lease.acquire()) is None:
                continue
            with lease.keep_renewed():
                _run_plan(program, segments, chance)
                _write_progress(program.folder, recorder, fence)
            lease.release()
        if program.has(CORRECTED) or chance.random() < REQUEUED_EARLY_SHARE:
            with suppress(*UNAVAILABLE):
                letters = DeadLetters(segments[chance.choice(NODES)])
                letters.requeue({letter.dead_id: letter.digest for letter in letters.read(20)})


def _run_plan(program: Program, segments: dict[str, RecordedSegment], chance: Random) -> None:
    """Move some blocks off each node; after the schedule, only finish what has begun."""
    for source in NODES:
        targets: dict[str, Segment] = {name: segments[name] for name in NODES if name != source}
        weights = {name: 0 if program.has(STOPPED) else chance.choice((0, 100, 500)) for name in targets}
        route = Route(source, segments[source], targets, weights)
        deadline = Deadline.start(0.3, time.monotonic)
        with suppress(*UNAVAILABLE):
            route.run(100_000, most=chance.randint(1, 6), deadline=deadline)
        with suppress(*UNAVAILABLE):
            route.move_letters(100_000, most=chance.randint(1, 3), deadline=deadline)


def _write_progress(folder: Path, recorder: Recorder, fence: int) -> None:
    """Write in one transaction, unless a greater number has written."""
    path = folder / FENCES
    with (
        recorder.record("fenced_write", lease=PLAN, fence=fence) as result,
        closing(sqlite3.connect(path, timeout=10.0)) as database,
        database,
    ):
        done = database.execute("UPDATE progress SET fence = ? WHERE fence <= ?", (fence, fence))
        result["accepted"] = done.rowcount == 1


def create_fences(folder: Path) -> None:
    """Create the database that fenced writes go to."""
    with closing(sqlite3.connect(folder / FENCES)) as database, database:
        database.execute("CREATE TABLE progress (fence INTEGER)")
        database.execute("INSERT INTO progress VALUES (0)")
