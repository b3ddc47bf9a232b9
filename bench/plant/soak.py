"""A plant under a steady load with people at its pages: does anything grow, and does it stay as quick?

A real plant (./run) and its own telemetry. 20,000 events/s go to `alert` from one producer; two people open one page
after the other. Each SAMPLE_SECONDS the memory of each kind of process (what is no file's; what is shared counts once,
over all of its processes) and the bytes of each folder of the plant's data are noted.

    slope       Theil-Sen over the samples after WARM_UP of the time, as a share of their median, %/h
    growth      bytes an hour, of each folder, likewise; of the rows of handled events, bytes an event
    latency     publish to acknowledge, of all events after the warm-up, by the workers' own histogram

The charts' stream reaches its bound two hours after the start of a plant: it is filled up to it first, with copies of
its first row, or every shorter run would measure how it fills. Likewise each batch task that has a schedule runs once
before the clock begins: the first run of an hourly one loads what it needs.

A slope says little in less than an hour, the first half of which is warm-up: `--seconds 3600`, and `--seconds 28800` at
night.
"""

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import psutil
import redis
from redis.typing import EncodableT, FieldT
from scipy.stats import theilslopes

from bench.plant.burst import QUEUE, Watch, events_of
from bench.plant.overload import PAGES
from bench.plant.running_plant import RunningPlant
from common.errors import WeirError
from queues import keys
from queues.control.replies import Fields
from queues.publishing.client import Client
from workers.consumer import handled_rows
from workers.consumer.work_report import Latencies
from workers.history.metrics import RETAINED_ROWS

RATE_PER_SECOND, BLOCK_EVENTS = 20_000, 2_000
# Rows of handled events grow until retention's size is reached, 10 GB: what counts is what an event takes.
LIMITS = {"worst_slope_percent_an_hour": 1.0, "p99_seconds": 2.5, "events_lost": 0, "handled_bytes_an_event": 150.0}
# For half an hour processes still take up what they need: arenas fill, pages that were shared are written to.
SAMPLE_SECONDS, WARM_UP, PEOPLE = 5.0, 1 / 2, 2
START_SECONDS, TASKS_SECONDS, DRAIN_SECONDS = 300.0, 300.0, 60.0
# By words of its command line; what none of them says belongs to what started it.
KINDS = {
    "web": "console.asgi",
    "observer": "observe",
    "alerter": "alert",
    "beat": "celery beat",
    "worker-control": "control@",
    "worker-jobs": "jobs@",
    "worker-spark": "spark@",
    "telemetry": "queues.publishing.telemetry",
    "agents": "queues.nodes.agent",
    "servers": "valkey-server",
    "pipeline-jvm": "java",
    "pipeline": "workers.pipeline.runtime.application",
}
FOLDERS = ("archive", "metrics", "snapshots", "handled", "servers", "pipeline", "logs", "database")
# By their files, without what SQLite adds to the name of those beside them.
DATABASES = {"weir.sqlite3": "database", handled_rows.FILE: "handled"}


@dataclass
class Samples:
    """Of each name a value a sample; `at` are their instants, in seconds."""

    at: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, at_seconds: float, seen: dict[str, float]) -> None:
        """One sample: what is not seen any more, or not yet, is 0."""
        for name in seen.keys() | self.values.keys():
            series = self.values[name]
            series += [0.0] * (len(self.at) - len(series)) + [seen.get(name, 0.0)]
        self.at.append(at_seconds)

    def compute_slope(self, name: str) -> float:
        """Theil-Sen's slope after the warm-up."""
        first = round(len(self.at) * WARM_UP)
        return float(theilslopes(self.values[name][first:], self.at[first:])[0]) * 3_600

    def median(self, name: str) -> float:
        """After the warm-up."""
        return float(np.median(self.values[name][round(len(self.at) * WARM_UP) :]))


def kind_of(process: psutil.Process) -> str:
    """Of a process, or of what started it: workers of a pool have no name of their own."""
    while True:
        line = " ".join(process.cmdline())
        for kind, words in KINDS.items():
            if words in line:
                return kind
        parent = process.parent()
        if parent is None or "console.embedded.launch" in line:
            return "launcher"
        process = parent


def memory(plant: RunningPlant) -> dict[str, float]:
    """Bytes of each kind of process: its share of all but files, whose pages the system can drop, and of
    which more is a process's share when another program that uses the same libraries ends.
    """
    bytes_by_name: dict[str, float] = defaultdict(float)
    for process in plant.processes():
        with suppress(psutil.Error, OSError):
            bytes_by_name[f"{kind_of(process)}_bytes"] += measure_unshared_bytes(process.pid)
    return bytes_by_name


def measure_unshared_bytes(pid: int) -> float:
    """Its share of memory that is no file's, and what of it is swapped out. Raises OSError: it has ended."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: 1024 * int(size) for name, size, _ in map(str.split, lines)}
    return float(sizes["Pss:"] - sizes.get("Pss_File:", 0) + sizes.get("SwapPss:", 0))


def folder_bytes(data: Path) -> dict[str, float]:
    """What each folder of the plant's data takes, and its two databases with what belongs to them."""
    sizes = dict.fromkeys((f"folder_{name}" for name in FOLDERS), 0.0)
    for path in data.rglob("*"):
        top = path.relative_to(data).parts[0]
        name = DATABASES.get(top.partition("-")[0], top)
        try:
            if path.is_file() and name in FOLDERS:
                sizes[f"folder_{name}"] += path.stat().st_size
        except OSError:
            continue
    return sizes


@contextmanager
def publish(plant: RunningPlant) -> Iterator[Counter[str]]:
    """Events at the rate, until the end; how many were acknowledged and refused."""
    stop, found = threading.Event(), Counter[str]()

    def run() -> None:
        began, blocks = time.monotonic(), 0
        with Client(plant.control_url(), producer="soak") as client:
            while not stop.is_set():
                try:
                    found["acknowledged"] += client.publish(QUEUE, events_of(BLOCK_EVENTS)).events
                except WeirError:
                    found["refused"] += BLOCK_EVENTS
                blocks += 1
                stop.wait(max(0.0, began + blocks * BLOCK_EVENTS / RATE_PER_SECOND - time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


@contextmanager
def people(plant: RunningPlant) -> Iterator[list[float]]:
    """Who open one page after the other; how long each took, in seconds: for ever where it did not come."""
    stop, took = threading.Event(), list[float]()

    def open_page(person: httpx.Client, page: str) -> float:
        began = time.monotonic()
        try:
            person.get(page, timeout=60).raise_for_status()
        except httpx.HTTPError:
            return math.inf
        return time.monotonic() - began

    def run() -> None:
        with closing(plant.log_in()) as person:
            while not stop.is_set():
                for page in PAGES:
                    took.append(open_page(person, page))
                    if stop.wait(1.0):
                        return

    threads = [threading.Thread(target=run) for _ in range(PEOPLE)]
    for thread in threads:
        thread.start()
    try:
        yield took
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def fill_charts(control: redis.Redis) -> int:
    """As many rows as the charts' stream retains, a second each, all before its first; how many are new."""
    while True:
        with control.pipeline() as pipe:
            pipe.watch(keys.METRICS)
            rows = cast(list[tuple[bytes, dict[FieldT, EncodableT]]], pipe.xrange(keys.METRICS))
            first_ms, added = int(rows[0][0].split(b"-")[0]), max(0, RETAINED_ROWS - len(rows))
            pipe.multi()
            pipe.delete(keys.METRICS)
            for back in range(added, 0, -1):
                pipe.xadd(keys.METRICS, rows[0][1], id=f"{first_ms - 1000 * back}-0")
            for at, row in rows:
                pipe.xadd(keys.METRICS, row, id=at)
            try:
                pipe.execute()
                return added
            except redis.WatchError:
                continue


def run_tasks(plant: RunningPlant) -> list[str]:
    """Each task that has a schedule, once, and until all have ended; their names."""
    with closing(plant.log_in()) as person:
        headers = {"X-CSRFToken": person.cookies["csrftoken"], "Referer": plant.url}
        rows = person.get("/api/v1/tasks").raise_for_status().json()["tasks"]
        names = [row["name"] for row in rows if row["interval_seconds"] or row["crontab"]]
        for name in names:
            body = {"reason": "A soak."}
            person.post(f"/api/v1/tasks/{name}/run", json=body, headers=headers).raise_for_status()
        until = time.monotonic() + TASKS_SECONDS
        while any(_runs(person, state) for state in ("queued", "running")):
            if time.monotonic() > until:
                raise TimeoutError(f"tasks have not ended within {TASKS_SECONDS:.0f} s")
            time.sleep(SAMPLE_SECONDS)
    return names


def _runs(person: httpx.Client, state: str) -> list[Any]:
    runs: list[Any] = person.get("/api/v1/runs", params={"state": state}).raise_for_status().json()["runs"]
    return runs


def latencies(plant: RunningPlant) -> Latencies:
    """Of all events of the queue so far."""
    return Latencies.from_hash(cast(Fields, plant.control.hgetall(keys.LATENCY.build(QUEUE))))


def count_since(now: Latencies, before: Latencies) -> Latencies:
    """Of the events after an instant."""
    return Latencies({bucket: count - before.events.get(bucket, 0) for bucket, count in now.events.items()})


def run(seconds: float) -> dict[str, Any]:
    """The whole of it, with some minutes more for the plant to start and to empty its queue."""
    samples = Samples()
    with RunningPlant() as plant:
        plant.wait_until(lambda seen: not seen["parts"].get("starting"), START_SECONDS, "everything has started")
        fill_charts(plant.control)
        run_tasks(plant)
        watch = Watch(plant)
        with publish(plant) as events, people(plant) as took:
            began, before = time.monotonic(), latencies(plant)
            while (passed := time.monotonic() - began) < seconds:
                if passed < seconds * WARM_UP:
                    before = latencies(plant)
                samples.add(passed, {**memory(plant), **folder_bytes(plant.data)})
                time.sleep(SAMPLE_SECONDS)
        plant.wait_until(lambda _: watch.count_waiting_events() == 0, DRAIN_SECONDS, "the queue is empty")
        handled = count_since(latencies(plant), before)
        inserted = _count_inserted(watch)
        watch.close()
    slopes = {
        name: 100 * samples.compute_slope(name) / samples.median(name)
        for name in samples.values
        if name.endswith("_bytes") and samples.median(name)
    }
    events_per_second = events["acknowledged"] / seconds
    figures: dict[str, Any] = {
        "events_per_second": events_per_second,
        "events_refused": float(events["refused"]),
        "events_lost": float(max(0, events["acknowledged"] - inserted)),
        "p50_seconds": handled.quantile(0.5),
        "p99_seconds": handled.quantile(0.99),
        "page_p95_seconds": float(np.quantile(took, 0.95, method="inverted_cdf")),
        "pages_failed": float(sum(map(math.isinf, took))),
        "handled_bytes_an_event": samples.compute_slope("folder_handled") / max(1.0, events_per_second * 3_600),
        "worst_slope_percent_an_hour": max(slopes.values()),
        **{f"{name.removesuffix('_bytes')}_slope_percent_an_hour": slope for name, slope in slopes.items()},
        **{name: samples.median(name) for name in samples.values if name.endswith("_bytes")},
        **{f"{name}_bytes_an_hour": samples.compute_slope(name) for name in samples.values if name[:7] == "folder_"},
    }
    return {
        "figures": figures,
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items() if limit},
    }


def _count_inserted(watch: Watch) -> int:
    """Events that the nodes have taken in, all of which are handled once nothing waits."""
    counts = (client.hget(keys.COUNTERS.build(QUEUE), "inserted_events") for client in watch.segments.values())
    return sum(int(count or 0) for count in counts)
