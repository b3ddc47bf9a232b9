"""Executors on two hosts: the throughput of two compared with one, and the pause of the results when one is lost.

The application has rules and patterns, and its batches run in long-running tasks. It is limited by its executors: each
has CORES of a processor core (`executor_hosts`), and the servers, the dispatcher, and Spark's driver use the rest of
this host. A host is lost in two ways: its executor and Python workers are killed, or its network fails without
an error for other processes. Each host is lost once in each way, because only one of them has the combiner. The bench
compares all results with those of the matcher alone.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import redis

from bench.pipeline.events import generate_events
from bench.pipeline.executor_hosts import DESK, ExecutorHosts, await_true, executor_hosts, explain_missing
from bench.pipeline.plant import NODES, Plant, Recorder, plant
from bench.plant.running_plant import clean_environment, start_program
from queues import keys
from queues.control.replies import expect_bytes
from queues.events.block import decode
from workers.pipeline.declaration.declaration import Application, parse_application_text
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import concatenate
from workers.pipeline.patterns.graph import compute_key_groups
from workers.pipeline.status.batch_reports import BatchReports
from workers.pipeline.status.status import StatusBoard

HOSTS = ("e1", "e2")
CORES = 0.35  # of each host; on two cores, this leaves enough CPU time for all other processes
STARTING_CORES = 2.0  # of each host while executors start, which is not measured
MIN_VALUE = 0.1
NAME = "sequence"
DECLARATION = f"""
name: {NAME}
queues: [telemetry]
sink: alert
replicas: 2
lateness_seconds: 2
rules:
  - {{name: low, discard: "value < {MIN_VALUE}"}}
patterns:
  - {{name: abc, pattern: SEQ(A; B; C), key: source, within_seconds: 10}}
"""
CONTROLS = {"parallelism": 4}  # parts of a combiner's batch; a slow executor gets fewer of them
EVENTS_PER_SECOND = 100_000  # prepared for each second of a measurement and for each executor
BATCH_EVENTS = 40_000  # fewer than by default, for exact times
PACED_EVENTS_PER_SECOND, CHUNK_SECONDS = 20_000, 0.1
LOST_SECONDS, CHANGE_SECONDS, END_SECONDS = 7.0, 90.0, 60.0
LIMITS = {"limit_two_to_one": 1.7, "limit_lost_executor_seconds": 5.0, "limit_lost_network_seconds": 5.0}


class Feed:
    """Numbered events in the order of their times, 50 µs apart. The number is the id."""

    def __init__(self, rows: int) -> None:
        events = generate_events(rows, 200, others=6)
        self._events = events.append_column("id", pc.cast(pa.array(range(rows)), pa.string()))
        self.taken = 0

    def take(self, rows: int) -> pa.Table:
        """Return the next events. Raises ValueError if there are not enough."""
        if self.taken + rows > self._events.num_rows:
            raise ValueError(f"the bench has prepared too few events: {self._events.num_rows}")
        self.taken += rows
        return self._events.slice(self.taken - rows, rows)

    def match(self, application: Application) -> Counter[str]:
        """Return the matches of the events that were taken, as the matcher alone finds them."""
        taken = self._events.slice(0, self.taken)
        rows = taken.filter(pc.greater_equal(taken.column("value"), MIN_VALUE)).combine_chunks().to_batches()[0]
        rows = rows.set_column(rows.schema.get_field_index("time"), "time", rows.column("time").cast(pa.int64()))
        source = rows.column("source")
        rows = rows.append_column("match_key", source)
        rows = rows.append_column("group", pa.array(compute_key_groups(source), pa.int32()))
        (pattern,) = application.graph.patterns
        matcher = Matcher(pattern)
        matches = concatenate([matcher.take(rows), matcher.finish()])
        return Counter(",".join(event[1] for event in events) for _, events in matches.list_emitted())


@contextmanager
def pipeline_process(hosts: ExecutorHosts, folder: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline's process on this host. Its tasks run on the executors."""
    file = folder / "application.yaml"
    file.write_text(DECLARATION)
    environment = {
        **clean_environment(),
        **hosts.environment,
        "REDIS_URL": url,
        "WEIR_DATA": str(folder / "data"),
        "WEIR_PIPELINE_APPLICATION": str(file),
        "WEIR_PIPELINE_EXECUTION": "tasks",
    }
    command = [sys.executable, "-m", "workers.pipeline.runtime.application"]
    process = start_program(command, environment, folder / "pipeline.log")
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


class Measured:
    """The pipeline on its hosts, and its reports."""

    def __init__(self, hosts: ExecutorHosts, own: Plant, control: redis.Redis, feed: Feed) -> None:
        self._hosts, self._own, self._control, self._feed = hosts, own, control, feed
        self._reports, self.recorder = BatchReports(control, NAME), Recorder()

    def count(self) -> int:
        """Return the number of events that have passed both tiers."""
        self._reports.deliver(cast(StatusBoard, self.recorder))
        return self.recorder.matched

    def drain(self, rows: int) -> float:
        """Return the events per second at which the pipeline processes a backlog."""
        begin = self.count()
        self._own.close()
        self._own.publish(self._feed.take(rows))
        first = len(self.recorder.batches)
        self._own.steer(**CONTROLS)
        # A fifth of the events that the rules keep may still wait for event time.
        await_true(lambda: self.count() - begin > 0.2 * rows, CHANGE_SECONDS, f"{rows} events pass the patterns")
        self._await_rest()
        batches = self.recorder.batches[first:]
        events = [sum(count.events for count in batch.operators.values()) for batch in batches]
        share = sum(events[1:-1]) / sum(events)
        return rows * share / (batches[-2].at - batches[0].at)

    def _await_rest(self) -> None:
        """Wait until no batch has been reported for two seconds."""
        last, changed_at = self.count(), time.monotonic()
        while time.monotonic() - changed_at < 2.0:
            time.sleep(0.05)
            if (counted := self.count()) != last:
                last, changed_at = counted, time.monotonic()

    @contextmanager
    def arranged(self, times: int) -> Iterator[None]:
        """Wait at the end of the context until the tasks have been arranged this many times since its start."""
        before = self._read_version()
        yield
        await_true(lambda: self._read_version() >= before + times, CHANGE_SECONDS, "the tasks are arranged")

    def _read_version(self) -> int:
        mark = expect_bytes(self._control).hget(keys.PIPELINE_TASKS.build(NAME), "main") or b"/0"
        return int(mark.rpartition(b"/")[2])

    @contextmanager
    def paced(self) -> Iterator[None]:
        """Publish events at a steady rate while the context lasts."""
        ended, errors = threading.Event(), list[Exception]()

        def publish() -> None:
            began, number = time.monotonic(), 0
            try:
                while not ended.wait(max(0.0, began + number * CHUNK_SECONDS - time.monotonic())):
                    self._own.client.publish("telemetry", self._feed.take(int(PACED_EVENTS_PER_SECOND * CHUNK_SECONDS)))
                    number += 1
            except Exception as error:  # raised in the main thread
                errors.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if errors:
            raise errors[0]

    def measure_pause(self, act: Callable[[], None]) -> float:
        """Return the longest time without a result, in seconds, around and after an action."""
        began = time.time()
        act()
        time.sleep(LOST_SECONDS)
        stored = [entry_ms / 1e3 for entry_ms, _ in self._list_results() if entry_ms / 1e3 >= began - 1.0]
        times = [*sorted(stored), time.time()]
        return max(later - earlier for earlier, later in pairwise(times))

    def _list_results(self) -> Iterator[tuple[int, list[str]]]:
        """Yield when each block of results was stored (ms), and the events of each result."""
        for node in NODES:
            for entry_id, block_id, data, _ in self._own.client.get_segment("alert", node).read("0-0", "+"):
                attributes = decode(block_id, data).batch.column("attributes").to_pylist()
                yield int(entry_id.partition("-")[0]), attributes

    def compare(self, application: Application) -> dict[str, float]:
        """Compare all results with those of the matcher alone."""
        end = self._feed.take(1)
        self._own.publish_last(end)
        self._await_rest()
        await_true(lambda: not self._control.hlen(keys.PIPELINE_OUTBOX.build(NAME)), END_SECONDS, "all is published")
        expected = self._feed.match(application)
        found = Counter(
            ",".join(event["id"] for event in json.loads(text)["events"])
            for _, attributes in self._list_results()
            for text in attributes
        )
        return {
            "results": float(found.total()),
            "missing_results": float((expected - found).total()),
            "doubled_results": float(sum(count - 1 for count in found.values())),
            "unexpected_results": float(len(found.keys() - expected.keys())),
            "late_events": float(self.recorder.late),
        }


def say(name: str, value: float) -> None:
    """Print a figure immediately, before all figures are measured."""
    print(f"{time.strftime('%X')} {name} {value:,.2f}", file=sys.stderr, flush=True)


def measure_throughput(hosts: ExecutorHosts, measured: Measured, seconds: float) -> Iterator[tuple[str, float]]:
    """Yield the figures of one executor, and of two."""
    rows = int(EVENTS_PER_SECOND * seconds)
    hosts.start("e1")
    measured.drain(4 * BATCH_EVENTS)  # Spark compiles what it runs often
    hosts.limit(CORES)
    yield "one_executor_events_per_second", measured.drain(rows)
    hosts.limit(STARTING_CORES)
    with measured.arranged(1):
        hosts.start("e2")
    measured.drain(4 * BATCH_EVENTS)
    hosts.limit(CORES)
    yield "two_executors_events_per_second", measured.drain(2 * rows)


def measure_losses(hosts: ExecutorHosts, measured: Measured) -> Iterator[tuple[str, float]]:
    """Yield the pause of the results at each loss of an executor."""
    with measured.paced():
        time.sleep(LOST_SECONDS)
        yield "undisturbed_seconds", measured.measure_pause(lambda: None)
        for host in HOSTS:
            with measured.arranged(2):  # without the executor, and with the next one
                yield "lost_executor_seconds", measured.measure_pause(partial(hosts.kill_executor, host))
        for host in HOSTS:
            with measured.arranged(2):
                yield "lost_network_seconds", measured.measure_pause(partial(hosts.set_link, host, up=False))
                hosts.set_link(host, up=True)


def run(seconds: float) -> dict[str, object]:
    """Measure the throughput over about `seconds`, and the losses; no figures if this host can't emulate hosts."""
    if why := explain_missing():
        return {"figures": {}, "peers": {}, "ratio": {}, "notes": [f"Not measured. {why}"]}
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="weir-executors-") as name:
        folder = Path(name)
        application = parse_application_text(DECLARATION, folder)
        feed = Feed(int(4 * EVENTS_PER_SECOND * seconds) + 200 * PACED_EVENTS_PER_SECOND)
        with (
            executor_hosts(HOSTS, folder) as hosts,
            plant(application, BATCH_EVENTS, DESK) as own,
            pipeline_process(hosts, folder, own.url),
            redis.Redis.from_url(own.url) as control,
        ):
            measured = Measured(hosts, own, control, feed)
            for figure, value in chain(measure_throughput(hosts, measured, seconds), measure_losses(hosts, measured)):
                say(figure, value)
                figures[figure] = max(value, figures.get(figure, 0.0))
            figures |= measured.compare(application)
    figures["two_to_one"] = figures["two_executors_events_per_second"] / figures["one_executor_events_per_second"]
    exact = {f"limit_{name}": 0.0 for name in ("missing_results", "doubled_results", "unexpected_results")}
    return {"figures": figures, "peers": {**LIMITS, **exact}, "ratio": {}, "at_least": ["two_to_one"]}
