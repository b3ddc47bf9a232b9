"""The two tiers over real nodes: events per second through each and through both, and from event to alert.

Peers: what Spark alone reaches on this machine in the same run (the same rows from a Parquet file through the
same SQL into nothing, without queues, matching, state or exactness), and published figures of others'
matchers (SEQ(A; B; C) within 10 s per key: Flink's MATCH_RECOGNIZE, on such a machine).
"""

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
import redis
from pyspark.sql import SparkSession

from bench.node_servers import node_servers
from queues.block import Block, decode, from_columns
from queues.client import Client
from queues.points import share
from queues.topology import KEY, NodeSpec, QueueSpec, Topology
from workers.pipeline import controls as steering
from workers.pipeline.application import SHIPPED
from workers.pipeline.checkpoint import open_checkpoint
from workers.pipeline.containers import CARRIED, Faults, Range, Stored, laid_out
from workers.pipeline.cursor import Cursor
from workers.pipeline.declaration import Application, application_of_text, read_application
from workers.pipeline.finished_batch import InterEventBatch, ReplicaBatch
from workers.pipeline.rule_sql import apply_rules
from workers.pipeline.running import INTER, INTRA, TIERS, Running
from workers.pipeline.session import start_session

NODES = ("n1", "n2", "n3")
WARM_EVENTS = 400_000
BATCH_EVENTS = 200_000
EXPECTED_EVENTS_PER_SECOND = 400_000  # how much is laid ready for each second of a measurement
MOST_EVENTS = 4_000_000
ROOM_BYTES = 2**30
PACED_EVENTS_PER_SECOND = 20_000
PACED_SECONDS = 12.0
PACED_EVERY_SECONDS = 0.1
ADDRESSES = ("92.126.10.7", "92.126.11.5", "92.126.11.9", "10.0.0.4")
PEERS = {
    "flink_match_recognize_200_keys_events_per_second": 78_000.0,
    "flink_match_recognize_10000_keys_events_per_second": 131_000.0,
}
SEQUENCE = """
name: sequence
queues: [telemetry]
sink: alert
lateness_seconds: 2
patterns:
  - {name: abc, pattern: SEQ(A; B; C), key: source, within_seconds: 10}
"""


def run(seconds: float) -> dict[str, dict[str, float]]:
    """Each figure over about `seconds` of work; Spark's start and the first batches are left out."""
    rows = int(min(MOST_EVENTS, EXPECTED_EVENTS_PER_SECOND * seconds))
    figures: dict[str, float] = {"events": float(rows)}
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("bench", "local[2]", Path(folder), heap="2g")
        try:
            limit = _figures(spark, Path(folder), rows, figures)
        finally:
            spark.stop()
    flink = PEERS["flink_match_recognize_200_keys_events_per_second"]
    return {
        "figures": figures,
        "peers": {"spark_parquet_same_sql_events_per_second": limit, **PEERS},
        "ratio": {
            "stateless_to_spark_alone": figures["stateless_events_per_second"] / limit,
            "matcher_200_keys_to_flink": figures["matcher_200_keys_events_per_second"] / flink,
        },
    }


def _figures(spark: SparkSession, folder: Path, rows: int, figures: dict[str, float]) -> float:
    shipped = replace(read_application(SHIPPED), name="shipped")
    table = telemetry(WARM_EVENTS + rows)
    figures |= _drained(spark, folder / "1", shipped, table, (INTRA,)).figures("stateless")
    for keys in (200, 10_000):
        sequence = application_of_text(SEQUENCE, folder)
        table = typed(WARM_EVENTS + rows, keys)
        figures |= _matched(spark, folder / str(keys), sequence, table).figures(f"matcher_{keys}_keys")
    table = typed(WARM_EVENTS + rows, 200)
    both = application_of_text(SEQUENCE, folder)
    figures |= _drained(spark, folder / "2", both, table, TIERS).figures("both_tiers")
    paced = application_of_text(SEQUENCE.replace("lateness_seconds: 2", "lateness_seconds: 0.2"), folder)
    figures |= _paced(spark, folder / "3", paced)
    return _spark_rate(spark, telemetry(rows), shipped, folder / "events.parquet")


def telemetry(rows: int) -> pa.Table:
    """Measurements of 200 hosts in event-time order: an eighth load averages, a quarter of test hosts."""
    source = np.random.default_rng(1)
    hosts = source.integers(0, 200, rows)
    loads = source.random(rows) < 0.125
    attributes = pa.array([f'{{"unit":"","address":"{address}"}}' for address in ADDRESSES])
    return pa.table(
        {
            "time": _times(rows),
            "type": pa.array(np.where(loads, "load", "cpu")),
            "key": pa.array(np.where(loads, "load1", "total")),
            "source": pa.array([f"host{number}" for number in range(200)]).take(pa.array(hosts)),
            "value": np.where(loads, source.exponential(0.4, rows), source.random(rows) * 90),
            "attributes": attributes.take(pa.array(hosts % 4)),
        }
    )


def typed(rows: int, keys: int, others: int = 0) -> pa.Table:
    """Events of types A, B, C and `others` more, of `keys` sources, at random, in event-time order."""
    source = np.random.default_rng(2)
    names = pa.array([f"source{number}" for number in range(keys)])
    types = pa.array(["A", "B", "C", *(f"N{number}" for number in range(others))])
    return pa.table(
        {
            "time": _times(rows),
            "type": types.take(pa.array(source.integers(0, 3 + others, rows))),
            "source": names.take(pa.array(source.integers(0, keys, rows))),
            "value": source.random(rows),
        }
    )


def _times(rows: int) -> pa.Array:
    """50 µs apart, from two hours ago on."""
    begin_us = int((time.time() - 7_200) * 1_000_000)
    return pa.array(begin_us + np.arange(rows) * 50, pa.timestamp("us", "UTC"))


@dataclass
class Recorder:
    """Stands where the status does, and keeps when which batch ended."""

    replicas: list[ReplicaBatch] = field(default_factory=list)
    batches: list[InterEventBatch] = field(default_factory=list)

    def dispatched(
        self, cursor: Cursor, events: int, hindrance: str | None, skipped: tuple[str, ...]
    ) -> None:
        """Not measured."""

    def replica(self, name: str, batch: ReplicaBatch) -> None:
        self.replicas.append(batch)

    def monitored(self, shown: dict) -> None:
        """Not measured."""

    def inter_event(self, batch: InterEventBatch) -> None:
        self.batches.append(batch)

    @property
    def worked(self) -> int:
        return sum(batch.events for batch in self.replicas)

    @property
    def matched(self) -> int:
        return sum(count.events for batch in self.batches for count in batch.operators.values())


@contextmanager
def _plant(application: Application) -> Iterator[str]:
    """The control server's URL of a plant of three nodes with the application's queues."""
    with node_servers(("control", *NODES)) as urls:
        nodes = {name: NodeSpec(name, urls[name]) for name in NODES}
        kinds = dict.fromkeys(application.queues, "pipeline") | {"alert": "jobs"}
        queues = {name: QueueSpec(name, kind, share(list(nodes))) for name, kind in kinds.items()}
        with redis.Redis.from_url(urls["control"]) as control:
            control.set(KEY, Topology(1, nodes, queues).to_json())
        yield urls["control"]


@contextmanager
def _running(
    spark: SparkSession, folder: Path, url: str, application: Application, tiers: tuple[str, ...]
) -> Iterator[tuple[Recorder, Running]]:
    recorder = Recorder()
    with redis.Redis.from_url(url) as control:
        checkpoint = open_checkpoint(folder, control, application.name)
        running = Running(
            spark, url, application, checkpoint, recorder, 0.1, dispatch_seconds=0.05, tiers=tiers
        )
        try:
            yield recorder, running
        finally:
            running.end()


def _await(running: Running, done: Callable[[], bool], seconds: float = 200.0) -> None:
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not done():
        running.check()
        if time.monotonic() > deadline:
            raise TimeoutError("the pipeline did not finish")
        pause.wait(0.02)


def _steer(url: str, application: Application, **changes: object) -> None:
    controls = replace(application.controls, admit_events_per_batch=BATCH_EVENTS, result_bytes=ROOM_BYTES)
    with redis.Redis.from_url(url) as control:
        document = {**controls.to_document(), **changes}
        control.set(steering.key_of(application.name), json.dumps(document))


@dataclass
class Pace:
    """events over seconds; cpu_seconds: of all processes of the plant, so that a busy machine shows."""

    events: int
    seconds: float
    cpu_seconds: float

    def figures(self, name: str) -> dict[str, float]:
        return {
            f"{name}_events_per_second": self.events / self.seconds,
            f"{name}_cpu_seconds_per_million_events": self.cpu_seconds / self.events * 1e6,
        }


def _cpu_seconds() -> float:
    """Of this process and all it has started: Spark, its workers, the servers."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _drained(
    spark: SparkSession, folder: Path, application: Application, events: pa.Table, tiers: tuple[str, ...]
) -> Pace:
    """Of what waits when it is admitted, after the warm ones."""
    (queue,) = application.queues
    with _plant(application) as url, Client(url, "bench", timeout_seconds=5.0) as client:
        _steer(url, application)
        with _running(spark, folder, url, application, tiers) as (recorder, running):

            def count() -> int:
                return recorder.matched if INTER in tiers else recorder.worked

            client.publish(queue, events.slice(0, WARM_EVENTS))
            _await(running, lambda: count() >= WARM_EVENTS)
            _steer(url, application, admit_events_per_batch=0)
            _publish(client, queue, events.slice(WARM_EVENTS))
            started, used = time.perf_counter(), _cpu_seconds()
            _steer(url, application)
            _await(running, lambda: count() >= events.num_rows)
            seconds = time.perf_counter() - started
            return Pace(events.num_rows - WARM_EVENTS, seconds, _cpu_seconds() - used)


def _publish(client: Client, queue: str, events: pa.Table) -> None:
    """The events, and one that is so much later that event time passes all of them."""
    client.publish(queue, events)
    last = events.slice(events.num_rows - 1)
    later = pc.add(last.column("time"), pa.scalar(60_000_000, pa.duration("us")))
    client.publish(queue, last.set_column(last.schema.get_field_index("time"), "time", later))


def _matched(spark: SparkSession, folder: Path, application: Application, events: pa.Table) -> Pace:
    """Of the inter-event tier alone, over results that wait for it."""
    (queue,) = application.queues
    with _plant(application) as url, Client(url, "bench", timeout_seconds=5.0) as client:
        _steer(url, application)
        _publish(client, queue, events)
        with _running(spark, folder, url, application, (INTRA,)) as (recorder, running):
            _await(running, lambda: recorder.worked >= events.num_rows)
        with _running(spark, folder, url, application, (INTER,)) as (recorder, running):
            _await(running, lambda: recorder.matched > 0)
            first, used = recorder.batches[0], _cpu_seconds()
            _await(running, lambda: recorder.matched >= events.num_rows)
            measured = sum(c.events for b in recorder.batches[1:] for c in b.operators.values())
            return Pace(measured, recorder.batches[-1].at - first.at, _cpu_seconds() - used)


def _paced(spark: SparkSession, folder: Path, application: Application) -> dict[str, float]:
    """From the time of the last contributing event to the complex event in its queue, at a steady rate."""
    (queue,) = application.queues
    with _plant(application) as url, Client(url, "bench", timeout_seconds=5.0) as client:
        with _running(spark, folder, url, application, TIERS) as (_, running):
            rows = int(PACED_EVENTS_PER_SECOND * PACED_EVERY_SECONDS)
            chunk = typed(rows, 200, others=27).drop_columns("time")
            began = time.monotonic()
            for number in range(int(PACED_SECONDS / PACED_EVERY_SECONDS)):
                client.publish(queue, chunk)
                running.check()
                rest = began + (number + 1) * PACED_EVERY_SECONDS - time.monotonic()
                threading.Event().wait(max(0.0, rest))
            published = int(PACED_SECONDS / PACED_EVERY_SECONDS) * rows / (time.monotonic() - began)
            threading.Event().wait(3.0)
        delays = np.array(list(_delays(client)))
    return {
        "paced_events_per_second": published,
        "paced_alerts": float(len(delays)),
        "event_to_alert_p50_seconds": float(np.percentile(delays, 50)),
        "event_to_alert_p95_seconds": float(np.percentile(delays, 95)),
    }


def _delays(client: Client) -> Iterator[float]:
    """Of each complex event but those of the first third, while Spark is still compiling."""
    found = []
    for node in NODES:
        for entry_id, block_id, data in client.segment("alert", node).read("0-0", "+"):
            stored_us = int(entry_id.partition("-")[0]) * 1000
            times = decode(block_id, data).batch.column("time").cast(pa.int64()).to_pylist()
            found += [(time_us, stored_us) for time_us in times]
    begin_us = min(time_us for time_us, _ in found) + PACED_SECONDS / 3 * 1e6
    yield from ((stored_us - time_us) / 1e6 for time_us, stored_us in found if time_us >= begin_us)


def _spark_rate(spark: SparkSession, events: pa.Table, application: Application, path: Path) -> float:
    """The better of two passes; the first one compiles."""
    parquet.write_table(_as_source(events, application), path, row_group_size=BATCH_EVENTS)
    names = sorted({*CARRIED, *application.graph.columns})
    rates = []
    for _ in range(2):
        started = time.perf_counter()
        ruled = apply_rules(spark.read.parquet(str(path)), application.rules, {}, observe=False)
        ruled.events.select("time", *names).write.format("noop").mode("overwrite").save()
        rates.append(events.num_rows / (time.perf_counter() - started))
    return max(rates)


def _as_source(events: pa.Table, application: Application) -> pa.Table:
    """The columns that the source gives, as it gives them."""
    batch = from_columns(events, time.time_ns() // 1000)
    part = Range("telemetry", "n1", "", "0-0", "1-0")
    stored = Stored(part, "1-0", "block", Block("block", batch).explicit())
    return pa.Table.from_batches([laid_out([stored], application.layout, Faults(0, 2**62))])
