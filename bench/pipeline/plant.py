"""A plant of three real nodes with a pipeline at work, for measurements: what it has worked, and what that
took of the processor, by kind of process, so that a busy machine does not hide what a design costs.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import redis
from pyspark.sql import SparkSession

from bench.queues.node_servers import node_servers
from queues import keys
from queues.points import share
from queues.publishing.client import Client
from queues.topology import NodeSpec, QueueSpec, Topology
from workers.documents.pipeline import MonitoredStatus
from workers.pipeline.declaration.declaration import Application
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.runtime.restart import open_checkpoint
from workers.pipeline.runtime.running import TIERS, Running
from workers.pipeline.runtime.task_plan import TaskSlots
from workers.pipeline.status.status import StatusBoard
from workers.pipeline.tiers.finished_batch import InterEventBatch, ReplicaBatch

NODES = ("n1", "n2", "n3")
PRODUCER = "bench"
BATCH_EVENTS = 400_000  # twice what applications have by default: for throughput, not for soon
PIECE_EVENTS = 40_000
ROOM_BYTES = 2**30
LATER_SECONDS = 60
STALLED_SECONDS = 60.0
TRIGGER_SECONDS = 0.1
CHECK_SECONDS = 0.1  # more often than in production, for exact times of reported batches
SLOTS = 16  # for long-running tasks


@dataclass
class Recorder:
    """Stands where the status does, and keeps which batch ended when."""

    replicas: list[ReplicaBatch] = field(default_factory=list)
    batches: list[InterEventBatch] = field(default_factory=list)

    def record_dispatch(self, cursor: Cursor, events: int, stall_reason: str | None, skipped: tuple[str, ...]) -> None:
        """Not measured."""

    def record_replica_batch(self, name: str, batch: ReplicaBatch) -> None:
        self.replicas.append(batch)

    def record_monitored(self, shown: Mapping[str, MonitoredStatus]) -> None:
        """Not measured."""

    def record_inter_event_batch(self, batch: InterEventBatch) -> None:
        self.batches.append(batch)

    @property
    def worked(self) -> int:
        """Events through the first tier."""
        return sum(batch.events for batch in self.replicas)

    @property
    def matched(self) -> int:
        """Events through the second, also those that came too late to be matched."""
        counts = [count for batch in self.batches for count in batch.operators.values()]
        return sum(count.events + count.late for count in counts)

    @property
    def late(self) -> int:
        return sum(count.late for batch in self.batches for count in batch.operators.values())


@dataclass(frozen=True)
class Reading:
    """cpu_seconds: by kind of process, since each began."""

    events: int
    at: float
    cpu_seconds: dict[str, float]


class Plant:
    """Holds events back and lets them go; `admitting` counts what has been let."""

    def __init__(
        self, control: redis.Redis, url: str, application: Application, client: Client, batch_events: int
    ) -> None:
        self._control, self.url, self.application, self.client = control, url, application, client
        self._batch_events = batch_events
        (self.queue,) = application.queues
        self.steer()

    def steer(self, **changes: object) -> None:
        """Changes controls; those that are not named are as the measurement needs them."""
        needed = {"admit_events_per_batch": self._batch_events, "result_bytes": ROOM_BYTES}
        document = {**self.application.controls.to_document(), **needed, **changes}
        self._control.set(keys.PIPELINE_CONTROLS.build(self.application.name), json.dumps(document))

    def close(self) -> None:
        """Nothing more is dispatched."""
        self.steer(admit_events_per_batch=0)

    def publish(self, events: pa.Table) -> None:
        """Event after event. None may be admitted meanwhile: of the containers that are read first, all
        others' events would be late. Piece by piece: flushes overtake one another.
        """
        for start in range(0, events.num_rows, PIECE_EVENTS):
            self.client.publish(self.queue, events.slice(start, PIECE_EVENTS))

    def publish_last(self, events: pa.Table) -> None:
        """And one so much later that event time passes them all."""
        self.publish(events)
        last = events.slice(events.num_rows - 1)
        later = pc.add(last.column("time"), pa.scalar(LATER_SECONDS * 1_000_000, pa.duration("us")))
        self.client.publish(self.queue, last.set_column(last.schema.get_field_index("time"), "time", later))

    @contextmanager
    def run(
        self, spark: SparkSession, folder: Path, tiers: tuple[str, ...] = TIERS, long_tasks: bool = True
    ) -> Iterator[tuple[Recorder, Running]]:
        """The application at work, until the context ends; its batches in long-running tasks or in micro-batches."""
        recorder = Recorder()
        checkpoint = open_checkpoint(folder, self._control, self.application.name)
        running = Running(
            spark,
            self.url,
            self.application,
            checkpoint,
            cast(StatusBoard, recorder),
            trigger_seconds=TRIGGER_SECONDS,
            tiers=tiers,
            slots=TaskSlots(lambda: SLOTS) if long_tasks else None,
        )
        try:
            yield recorder, running
        finally:
            running.end()


@contextmanager
def plant(application: Application, batch_events: int = BATCH_EVENTS, bind: str = "127.0.0.1") -> Iterator[Plant]:
    """Yield three nodes with the application's queues, and remove them afterwards. bind: address of the servers."""
    with node_servers(("control", *NODES), bind) as urls:
        nodes = {name: NodeSpec(name, urls[name]) for name in NODES}
        kinds = dict.fromkeys(application.queues, "pipeline") | {"alert": "jobs"}
        queues = {name: QueueSpec(name, kind, share(list(nodes))) for name, kind in kinds.items()}
        with redis.Redis.from_url(urls["control"]) as control:
            control.set(keys.TOPOLOGY, Topology(1, nodes, queues).to_json())
            in_order = bool(application.ordered_producers)
            with Client(urls["control"], PRODUCER, timeout_seconds=5.0, in_order=in_order) as client:
                yield Plant(control, urls["control"], application, client, batch_events)


def wait_for(running: Running, count: Callable[[], int], events: int) -> None:
    """Until `count` has come to `events`. Raises TimeoutError when it stands still before."""
    pause, checked_at = threading.Event(), -CHECK_SECONDS
    reached, changed_at = count(), time.monotonic()
    while reached < events:
        now = time.monotonic()
        if now - checked_at >= CHECK_SECONDS:
            running.check()
            checked_at = now
        pause.wait(0.02)
        if (counted := count()) != reached:
            reached, changed_at = counted, now
        elif now - changed_at > STALLED_SECONDS:
            raise TimeoutError(f"the pipeline stands still at {reached} of {events} events")


def build_reading(events: int) -> Reading:
    return Reading(events, time.perf_counter(), cpu_seconds())


def pace(name: str, begin: Reading, end: Reading) -> dict[str, float]:
    """Figures of what was worked between two moments."""
    events = end.events - begin.events
    spent = {kind: used - begin.cpu_seconds.get(kind, 0.0) for kind, used in end.cpu_seconds.items()}
    spent["all"] = sum(spent.values())
    by_kind = {
        f"{name}_cpu_seconds_per_million_events{'' if kind == 'all' else f'_{kind}'}": used / events * 1e6
        for kind, used in spent.items()
    }
    return {f"{name}_events_per_second": events / (end.at - begin.at), **by_kind}


def cpu_seconds() -> dict[str, float]:
    """Of the driver (this process), Spark's JVM, its Python workers, and the servers."""
    total = dict.fromkeys(("driver", "jvm", "python", "servers"), 0.0)
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            # Workers that have ended since are counted by the daemon that forked them.
            own = times.user + times.system
            daemon = times.children_user + times.children_system if _kind(process) == "python" else 0.0
            total[_kind(process)] += own + daemon
    return total


def _kind(process: psutil.Process) -> str:
    if process.pid == psutil.Process().pid:
        return "driver"
    name = process.name()
    if name.startswith("java"):
        return "jvm"
    return "servers" if "server" in name else "python"
