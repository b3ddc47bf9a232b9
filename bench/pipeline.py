"""The shipped pipeline application over real nodes: events per second through source, rules and matchers.

The peer is what Spark alone reaches on this machine: the same rows from a Parquet file through the same SQL
into nothing, without queues, matching, state or exactness.
"""

import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import redis
from pyspark.sql import DataFrame, SparkSession

from bench.node_servers import node_servers
from queues.client import Client
from queues.points import share
from queues.topology import KEY, NodeSpec, QueueSpec, Topology
from workers.pipeline.application import SHIPPED
from workers.pipeline.batch import BatchWork, routed
from workers.pipeline.checkpoint import open_checkpoint
from workers.pipeline.declaration import Application, read_application
from workers.pipeline.outbox import Outbox
from workers.pipeline.rules import apply_rules
from workers.pipeline.session import start_session
from workers.pipeline.source import COLUMNS, FORMAT
from workers.pipeline.state import StateStore
from workers.pipeline.status import StatusBoard

NODES = ("n1", "n2", "n3")
WARM_BATCHES = 2
BATCH_EVENTS = 200_000
EXPECTED_EVENTS_PER_SECOND = 400_000  # how much is laid ready for each second of the measurement
MOST_EVENTS = 8_000_000
ADDRESSES = ("92.126.10.7", "92.126.11.5", "92.126.11.9", "10.0.0.4")


def run(seconds: float) -> dict[str, dict[str, float]]:
    """Measured over what about `seconds` of work take; Spark's start and the first batches are left out."""
    rows = int(min(MOST_EVENTS, EXPECTED_EVENTS_PER_SECOND * seconds)) + WARM_BATCHES * BATCH_EVENTS
    events = telemetry(rows)
    application = read_application(SHIPPED)
    with node_servers(("control", *NODES)) as urls, tempfile.TemporaryDirectory() as folder:
        _lay_ready(urls, events, application)
        spark = start_session("bench", "local[2]", Path(folder), heap="1g")
        try:
            ours = _pipeline_rate(spark, urls["control"], application, Path(folder), rows)
            limit = _spark_rate(spark, events, application, Path(folder) / "events.parquet")
        finally:
            spark.stop()
    return {
        "figures": {"events_per_second": ours, "events": float(rows)},
        "peers": {"spark_parquet_same_sql_events_per_second": limit},
        "ratio": {"pipeline_to_spark_alone": ours / limit},
    }


def telemetry(rows: int) -> pa.Table:
    """Measurements of 200 hosts in event-time order: an eighth load averages, a quarter of test hosts."""
    source = np.random.default_rng(1)
    numbers = np.arange(rows)
    hosts = source.integers(0, 200, rows)
    loads = source.random(rows) < 0.125
    attributes = pa.array([json.dumps({"unit": "", "address": address}) for address in ADDRESSES])
    begin_us = int((time.time() - 7_200) * 1_000_000)
    return pa.table(
        {
            "time": pa.array(begin_us + numbers * 50, pa.timestamp("us", "UTC")),
            "type": pa.array(np.where(loads, "load", "cpu")),
            "key": pa.array(np.where(loads, "load1", "total")),
            "source": pa.array([f"host{number}" for number in range(200)]).take(pa.array(hosts)),
            "value": np.where(loads, source.exponential(0.4, rows), source.random(rows) * 90),
            "attributes": attributes.take(pa.array(hosts % 4)),
        }
    )


def _lay_ready(urls: dict[str, str], events: pa.Table, application: Application) -> None:
    nodes = {name: NodeSpec(name, urls[name]) for name in NODES}
    (queue,) = application.queues
    kinds = {queue: "pipeline", application.sink: "jobs"}
    queues = {name: QueueSpec(name, kind, share(list(nodes))) for name, kind in kinds.items()}
    with redis.Redis.from_url(urls["control"]) as control:
        control.set(KEY, Topology(1, nodes, queues).to_json())
    with Client(urls["control"], "bench", timeout_seconds=5.0) as client:
        client.publish(queue, events)


class _Timed:
    """Batch work with the instant after each batch, until all events have been read."""

    def __init__(self, work: BatchWork, checkpoint, events: int) -> None:
        self._work, self._checkpoint, self._left = work, checkpoint, events
        self.ends: list[tuple[float, int]] = []
        self.finished = threading.Event()

    def __call__(self, events: DataFrame, batch: int) -> None:
        self._work(events, batch)
        taken = self._checkpoint.offset(batch).events_total
        self.ends.append((time.perf_counter(), taken))
        self._left -= taken
        if self._left <= 0:
            self.finished.set()

    def rate(self) -> float:
        """Events per second after the warm batches."""
        measured = self.ends[WARM_BATCHES:]
        return sum(taken for _, taken in measured) / (measured[-1][0] - self.ends[WARM_BATCHES - 1][0])


def _pipeline_rate(
    spark: SparkSession, control_url: str, application: Application, folder: Path, rows: int
) -> float:
    controls = {**application.controls.to_document(), "admit_events_per_batch": BATCH_EVENTS}
    options = {
        "control": control_url,
        "queues": ",".join(application.queues),
        "controls": json.dumps(controls),
    }
    with redis.Redis.from_url(control_url) as control, Client(control_url, "bench-pipeline") as client:
        store = StateStore(control, application.name)
        names = tuple(rule.name for rule in application.rules)
        status = StatusBoard(
            control, application.name, application.queues, names, tuple(p.name for p in application.patterns)
        )
        checkpoint = open_checkpoint(folder / "checkpoint", control, application.name)
        outbox = Outbox(store, client, application.sink)
        work = _Timed(
            BatchWork(control_url, application, checkpoint, store, outbox, status), checkpoint, rows
        )
        source = spark.readStream.format(FORMAT).options(**options, hold="weir:bench:hold", patience="5")
        writer = source.load().writeStream.foreachBatch(work)
        query = (
            writer.option("checkpointLocation", checkpoint.location)
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            while not work.finished.wait(0.5):
                if not query.isActive:
                    raise RuntimeError(f"the query ended: {query.exception()}")
        finally:
            query.stop()
    return work.rate()


def _spark_rate(spark: SparkSession, events: pa.Table, application: Application, path: Path) -> float:
    """The better of two passes; the first one compiles."""
    parquet.write_table(_as_source(events), path, row_group_size=BATCH_EVENTS)
    rates = []
    for _ in range(2):
        started = time.perf_counter()
        ruled = apply_rules(spark.read.parquet(str(path)), application.rules, observe=False)
        routed(ruled.events, application).write.format("noop").mode("overwrite").save()
        rates.append(events.num_rows / (time.perf_counter() - started))
    return max(rates)


def _as_source(events: pa.Table) -> pa.Table:
    """The columns a segment's source gives."""
    rows = events.num_rows
    table = events.append_column("id", pa.array(np.char.add("event:", np.arange(rows).astype(str))))
    for name in (column.split()[0] for column in COLUMNS.split(", ")):
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(rows, pa.string()))
    return table
