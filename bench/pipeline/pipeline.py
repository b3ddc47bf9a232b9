"""The two tiers over real nodes: events per second through each and through both, and from event to alert.

Each part works as many events before it is measured as while it is: Spark compiles what it runs often. Beside events
per second stand processor seconds per million events, of all processes and by kind.

Peers: what Spark alone reaches on this machine in the same run (the same rows from a Parquet file through the same SQL
into nothing, without queues, matching, state or exactness), and published figures of others' matchers (SEQ(A; B; C)
within 10 s per key: Flink's MATCH_RECOGNIZE, on such a machine).
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import SparkSession

from bench.pipeline.events import generate_events, telemetry
from bench.pipeline.plant import BATCH_EVENTS, NODES, PRODUCER, build_reading, pace, plant, wait_for
from queues.events.block import Block, decode, from_columns
from queues.publishing.client import Client
from workers.pipeline.declaration.declaration import Application, parse_application_text, read_application
from workers.pipeline.events.containers import AssignedBlock, Faults, Range, apply_layout
from workers.pipeline.events.layout import CARRIED
from workers.pipeline.rules.rule_sql import apply_rules
from workers.pipeline.runtime.application import SHIPPED
from workers.pipeline.runtime.running import INTER, INTRA, TIERS
from workers.pipeline.runtime.session import start_session

EXPECTED_EVENTS_PER_SECOND = 400_000  # how much is laid ready for each second of a measurement
MAX_EVENTS = 4_000_000
PACED_EVENTS_PER_SECOND = 20_000
PACED_SECONDS = 12.0
PACED_EVERY_SECONDS, SOON_EVERY_SECONDS = 0.1, 0.02
BURST_FACTOR, BURST_SECONDS = 3, 2.0
PEERS = {
    "flink_match_recognize_200_keys_events_per_second": 78_000.0,
    "flink_match_recognize_10000_keys_events_per_second": 131_000.0,
}
SEQUENCE = """
name: sequence
queues: [telemetry]
sink: alert
patterns:
  - {name: abc, pattern: SEQ(A; B; C), key: source, within_seconds: 10}
"""


def run(seconds: float) -> dict[str, dict[str, float]]:
    """Each figure over about `seconds` of work; Spark's start and the first batches are left out."""
    rows = int(min(MAX_EVENTS, EXPECTED_EVENTS_PER_SECOND * seconds))
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("bench", "local[2]", Path(folder), heap="2g")
        try:
            figures, limit = _figures(spark, Path(folder), rows)
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


def _figures(spark: SparkSession, folder: Path, rows: int) -> tuple[dict[str, float], float]:
    figures = {"events": float(rows)}
    shipped = replace(read_application(SHIPPED), name="shipped")
    sequence = parse_application_text(SEQUENCE, folder)
    table = telemetry(2 * rows)
    figures |= _print_figures(drain("stateless", spark, folder / "1", shipped, table, (INTRA,)))
    limit = spark_rate(spark, table, shipped, folder / "events.parquet")
    for keys in (200, 10_000):
        name, place = f"matcher_{keys}_keys", folder / str(keys)
        figures |= _print_figures(match(name, spark, place, sequence, generate_events(2 * rows, keys)))
    figures |= _print_figures(drain("both_tiers", spark, folder / "2", sequence, generate_events(2 * rows, 200), TIERS))
    figures |= _print_figures(measure_latency(spark, folder / "3", replace_times(sequence, 0.2, None)))
    soon = replace_times(sequence, 0.05, 0.125)
    figures |= _print_figures(measure_latency(spark, folder / "4", soon, SOON_EVERY_SECONDS, name="soon_"))
    figures |= _print_figures(measure_latency(spark, folder / "5", soon, SOON_EVERY_SECONDS, True, "burst_"))
    ordered = replace(soon, ordered_producers=dict.fromkeys(soon.queues, (PRODUCER,)))
    figures |= _print_figures(measure_latency(spark, folder / "6", ordered, SOON_EVERY_SECONDS, name="ordered_"))
    return figures, limit


def _print_figures(figures: dict[str, float]) -> dict[str, float]:
    """The same, said while the rest is still to come."""
    load = os.getloadavg()[0]
    for name, value in figures.items():
        print(f"{name} {value:,.2f} (load {load:.1f})", file=sys.stderr, flush=True)
    return figures


def replace_times(application: Application, lateness: float, latency: float | None) -> Application:
    changes = {"lateness_seconds": lateness, "latency_seconds": latency}
    return replace(application, controls=application.controls.apply_changes(changes))


def drain(
    name: str,
    spark: SparkSession,
    folder: Path,
    application: Application,
    events: pa.Table,
    tiers: tuple[str, ...],
    batch_events: int = BATCH_EVENTS,
) -> dict[str, float]:
    """Of the second half of the events, which wait when they are admitted, after the first half."""
    half = events.num_rows // 2
    with plant(application, batch_events) as own, own.run(spark, folder, tiers) as (recorder, running):

        def count() -> int:
            return recorder.matched if INTER in tiers else recorder.worked

        own.close()
        own.publish(events.slice(0, half))
        own.steer()
        wait_for(running, count, half)
        own.close()
        own.publish_last(events.slice(half))
        begin = build_reading(count())
        own.steer()
        wait_for(running, count, events.num_rows)
        return pace(name, begin, build_reading(count()))


def match(name: str, spark: SparkSession, folder: Path, application: Application, events: pa.Table) -> dict[str, float]:
    """Of the inter-event tier alone, over results that wait for it; of the second half of the events."""
    with plant(application) as own:
        own.close()
        own.publish_last(events)
        own.steer()
        with own.run(spark, folder, (INTRA,)) as (recorder, running):
            wait_for(running, lambda: recorder.worked, events.num_rows + 1)
        with own.run(spark, folder, (INTER,)) as (recorder, running):
            wait_for(running, lambda: recorder.matched, events.num_rows // 2)
            begin = build_reading(recorder.matched)
            wait_for(running, lambda: recorder.matched, events.num_rows)
            return {**pace(name, begin, build_reading(recorder.matched)), f"{name}_late_events": float(recorder.late)}


def measure_latency(
    spark: SparkSession,
    folder: Path,
    application: Application,
    every_seconds: float = PACED_EVERY_SECONDS,
    has_burst: bool = False,
    name: str = "",
) -> dict[str, float]:
    """From the time of the last contributing event to the complex event in its queue, at a steady rate; and
    after how many batches of the combiner a changed control holds. has_burst: three times the rate for two seconds.
    """
    rows = int(PACED_EVENTS_PER_SECOND * every_seconds)
    events = generate_events(PACED_EVENTS_PER_SECOND, 200, others=27).drop_columns("time")
    chunks = [events.slice(start, rows) for start in range(0, events.num_rows, rows)]
    rounds = int(PACED_SECONDS / every_seconds)
    burst = range(2 * rounds // 3, 2 * rounds // 3 + int(BURST_SECONDS / every_seconds)) if has_burst else range(0)
    steered_at = 0.0
    with plant(application) as own, own.run(spark, folder) as (recorder, running):
        began = time.monotonic()
        for number in range(rounds):
            for _ in range(BURST_FACTOR if number in burst else 1):
                own.client.publish(own.queue, chunks[number % len(chunks)])
            if number == rounds // 2:
                own.steer(revision=1)
                steered_at = time.monotonic()
            if number % round(1 / every_seconds) == 0:
                running.check()
            rest = began + (number + 1) * every_seconds - time.monotonic()
            threading.Event().wait(max(0.0, rest))
        published = rounds * rows / (time.monotonic() - began)
        threading.Event().wait(3.0)
        running.check()
        delays = np.array(list(_delays(own.client)))
    later = [batch.combined.controls.revision for batch in recorder.batches if batch.at > steered_at]
    figures = {
        "paced_events_per_second": published,
        "paced_alerts": float(len(delays)),
        "event_to_alert_p50_seconds": float(np.percentile(delays, 50)),
        "event_to_alert_p95_seconds": float(np.percentile(delays, 95)),
        "batches_until_a_control_holds": float(later.index(1) + 1),
        "lateness_seconds": application.controls.lateness_seconds,
    }
    return {f"{name}{figure}": value for figure, value in figures.items()}


def _delays(client: Client) -> Iterator[float]:
    """Of each complex event but those of the first third, while Spark is still compiling."""
    delays = []
    for node in NODES:
        for entry_id, block_id, data, _ in client.get_segment("alert", node).read("0-0", "+"):
            stored_us = int(entry_id.partition("-")[0]) * 1000
            times = decode(block_id, data).batch.column("time").cast(pa.int64()).to_pylist()
            delays += [(time_us, stored_us) for time_us in times]
    begin_us = min(time_us for time_us, _ in delays) + PACED_SECONDS / 3 * 1e6
    yield from ((stored_us - time_us) / 1e6 for time_us, stored_us in delays if time_us >= begin_us)


def spark_rate(spark: SparkSession, events: pa.Table, application: Application, path: Path) -> float:
    """The better of two passes; the first one compiles."""
    parquet.write_table(as_source(events, application), path, row_group_size=BATCH_EVENTS)
    names = sorted({*CARRIED, *application.graph.columns})
    rates = []
    for _ in range(2):
        started = time.perf_counter()
        ruled = apply_rules(spark.read.parquet(str(path)), application.rules, {}, observe=False)
        ruled.events.select("time", *names).write.format("noop").mode("overwrite").save()
        rates.append(float(events.num_rows) / (time.perf_counter() - started))
    return max(rates)


def as_source(events: pa.Table, application: Application) -> pa.Table:
    """The columns that the source gives, as it gives them."""
    batch = from_columns(events, time.time_ns() // 1000)
    part = Range("telemetry", "n1", "", "0-0", "1-0")
    stored = AssignedBlock(part, "1-0", "block", Block("block", batch).build_explicit_batch())
    return pa.Table.from_batches([apply_layout([stored], application.layout, Faults(0, 2**62))])
