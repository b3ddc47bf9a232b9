"""`bench durability`: the events that power losses take from each durability, and the publish rate of each.

**Losses.** Each schedule (`bench.durability.schedule`) lets random hosts lose power while events are published,
handled, moved, and requeued. The servers are real, and their disks keep what was synced, and a random part of the
rest. `count` schedules run with *disk* and with *replicated*, and a tenth of them with *memory*, at most
MEMORY_SCHEDULES. With *replicated*, a host that loses power may also lose its disk, or stay off until the replicas of
its nodes are promoted.

**Rates.** The same blocks are published with each durability on real disks, in turns.

A schedule depends on its seed and on the timing of the machine. `failed_seeds` names those that lost events.
"""

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import redis

from bench.durability.power import PowerNode
from bench.durability.schedule import PowerSchedule, find_oldest_lost_seconds
from bench.faults.preloaded import SYNCED
from bench.queues.node_servers import node_servers
from common.errors import BadInput
from queues import keys
from queues.durability import DISK, MEMORY, NAMES, REPLICATED
from queues.events.block import BLOCK_EVENTS
from queues.points import share
from queues.publishing.client import Client
from queues.topology import QueueSpec, Topology

COUNT, SEED = 1_000, 1
MEMORY_SCHEDULES = 40
PROCESSES = {MEMORY: 2, DISK: 2, REPLICATED: 4}  # replicas wait for each other most of the time
NODES = ("n1", "n2", "n3")
WORK_SECONDS = {MEMORY: 2.5, DISK: 0.4, REPLICATED: 0.5}  # before a power loss; in memory, more than a sync
LIMITS = {
    "disk_lost_events": 0.0,
    "replicated_lost_events": 0.0,
    # Files are synced every second. An event that moved in the last second can be older.
    "memory_oldest_lost_seconds": 3.0,
    "disk_to_memory_rate": 0.5,
    "replicated_to_memory_rate": 0.5,
}
AT_LEAST = ("disk_to_memory_rate", "replicated_to_memory_rate")
QUEUE = "orders"
ROUNDS = 5
PREPARE_SECONDS, PAUSE_SECONDS = 30.0, 0.05
BULK_BLOCKS, PRODUCERS = 1_000, 16
# Blocks per call, and clients at the same time.
KINDS = {"bulk": (BULK_BLOCKS, 1), "calls": (1, 1), "producers": (1, PRODUCERS)}
START_US = 1_790_000_000_000_000


@dataclass(frozen=True)
class LossReport:
    """The losses in the schedules of one durability. seeds: the schedules that lost events."""

    schedules: int = 0
    acknowledged: int = 0
    lost: int = 0
    deliveries: int = 0
    moved: int = 0
    power_losses: int = 0
    lost_bytes: int = 0
    lost_disks: int = 0
    promotions: int = 0
    oldest_lost_seconds: float = 0.0
    seeds: tuple[int, ...] = ()

    def __add__(self, other: "LossReport") -> "LossReport":
        sums = {name: getattr(self, name) + getattr(other, name) for name in LossReport.__dataclass_fields__}
        return replace(LossReport(**sums), oldest_lost_seconds=max(self.oldest_lost_seconds, other.oldest_lost_seconds))


def run(seconds: float, count: int = COUNT, seed: int = SEED) -> dict[str, Any]:
    """Run the schedules and measure the rates. seconds: of each measurement of a rate."""
    rates = measure_rates(seconds)
    counts = {DISK: count, REPLICATED: count, MEMORY: min(MEMORY_SCHEDULES, max(1, count // 10))}
    losses = {name: run_schedules(name, range(seed, seed + number)) for name, number in counts.items()}
    figures: dict[str, float] = {f"{name}_events_per_second": rate for name, rate in rates.items()}
    for name, report in losses.items():
        figures |= {
            f"{name}_schedules": report.schedules,
            f"{name}_power_losses": report.power_losses,
            f"{name}_acknowledged_events": report.acknowledged,
            f"{name}_moved_blocks_and_letters": report.moved,
            f"{name}_lost_bytes": report.lost_bytes,
            f"{name}_lost_disks": report.lost_disks,
            f"{name}_promotions": report.promotions,
            f"{name}_lost_events": report.lost,
            f"{name}_oldest_lost_seconds": report.oldest_lost_seconds,
        }
    ratio = {
        f"{name}_to_memory_{kind}": rates[f"{name}_{kind}"] / rates[f"{MEMORY}_{kind}"]
        for name in (DISK, REPLICATED)
        for kind in KINDS
    }
    figures |= {f"{name}_to_memory_rate": ratio[f"{name}_to_memory_bulk"] for name in (DISK, REPLICATED)}
    return {
        "figures": figures,
        "peers": {f"limit_{name}": limit for name, limit in LIMITS.items()},
        "ratio": ratio,
        "at_least": AT_LEAST,
        "failed_seeds": {name: list(report.seeds) for name, report in losses.items()},
    }


def run_schedules(durability: str, seeds: Sequence[int]) -> LossReport:
    """Run schedules in some processes, each with servers of its own."""
    processes = min(PROCESSES[durability], len(seeds))
    parts = [(durability, list(seeds[place::processes])) for place in range(processes)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return sum(pool.imap_unordered(run_part, parts), LossReport())


def run_part(part: tuple[str, list[int]]) -> LossReport:
    """Run schedules one after the other on the same servers."""
    durability, seeds = part
    report = LossReport()
    with tempfile.TemporaryDirectory(prefix="weir-durability-") as name, ExitStack() as running:
        folder = Path(name)
        library = SYNCED.build(folder)
        if library is None:
            raise BadInput("NAME", "durability needs a C compiler (cc).")
        control_url = running.enter_context(node_servers(("control",)))["control"]
        nodes = start_nodes(folder, durability, library, running)
        for seed in seeds:
            account = PowerSchedule(nodes, control_url, durability, seed, WORK_SECONDS[durability]).run()
            lost = account.list_lost()
            if lost:
                sys.stderr.write(f"{durability}, seed {seed}: lost {len(lost)} of {len(account.acknowledged)} events\n")
            report += LossReport(
                schedules=1,
                acknowledged=len(account.acknowledged),
                lost=len(lost),
                deliveries=account.deliveries,
                moved=account.moved_blocks + account.moved_letters,
                power_losses=len(account.lost_power_at),
                lost_bytes=account.lost_bytes,
                lost_disks=account.lost_disks,
                promotions=account.promotions,
                oldest_lost_seconds=find_oldest_lost_seconds(account),
                seeds=(seed,) if lost else (),
            )
    return report


def measure_rates(seconds: float) -> dict[str, float]:
    """Return the median of the events that a client publishes per second, by figure, measured in turns.

    `bulk`: calls of many blocks. `calls`: calls of one block each, one after the other. `producers`: the same from
    PRODUCERS clients at the same time, in threads of one process, so that the server can sync several calls at once.
    """
    rates: dict[str, list[float]] = {}
    events = {blocks: build_events(blocks * BLOCK_EVENTS) for blocks, _ in KINDS.values()}
    with tempfile.TemporaryDirectory(prefix="weir-durability-") as name, ExitStack() as running:
        control_url = running.enter_context(node_servers(("control",)))["control"]
        plants = {durability: start_nodes(Path(name) / durability, durability, None, running) for durability in NAMES}
        for _ in range(ROUNDS):
            for durability, nodes in plants.items():
                spec = QueueSpec(QUEUE, "jobs", share(NODES), minimum_containers=1, durability=durability)
                prepare(control_url, nodes, spec)
                for kind, (blocks, clients) in KINDS.items():
                    rate = measure_rate(control_url, events[blocks], seconds / ROUNDS, clients)
                    rates.setdefault(f"{durability}_{kind}", []).append(rate)
    return {name: statistics.median(turns) for name, turns in rates.items()}


def start_nodes(folder: Path, durability: str, library: Path | None, running: ExitStack) -> list[PowerNode]:
    """Start nodes, with replicas if the durability needs them. library: of the simulated disk."""
    nodes = [PowerNode.create(name, folder, library, durability == REPLICATED) for name in NODES]
    for server in (server for node in nodes for server in node.servers):
        running.callback(server.kill)
        server.start()
    return nodes


def prepare(control_url: str, nodes: list[PowerNode], spec: QueueSpec) -> None:
    """Empty the nodes, and wait until they accept events of the queue."""
    with redis.Redis.from_url(control_url) as control:
        control.set(keys.TOPOLOGY, Topology(1, {node.name: node.spec for node in nodes}, {QUEUE: spec}).to_json())
    deadline = time.monotonic() + PREPARE_SECONDS
    for node in nodes:
        node.align(spec)
        with redis.Redis.from_url(node.spec.url) as server:
            server.delete(*keys.list_queue_keys(QUEUE))
        while node.problem:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{node.name}: {node.problem}")
            time.sleep(PAUSE_SECONDS)
            node.align(spec)


def build_events(rows: int) -> pa.Table:
    """Return a table of measurements."""
    numbers = np.arange(rows)
    return pa.table(
        {
            "time": pa.array(START_US + numbers, pa.timestamp("us", "UTC")),
            "type": pa.DictionaryArray.from_arrays(numbers % 4, ["cpu", "load", "memory", "disk"]).cast(pa.string()),
            "value": numbers / 7,
        }
    )


def measure_rate(control_url: str, events: pa.Table, seconds: float, clients: int) -> float:
    """Return the events that the clients together publish per second."""
    with ThreadPoolExecutor(clients) as threads:
        return sum(threads.map(lambda _: publish_steadily(control_url, events, seconds), range(clients)))


def publish_steadily(control_url: str, events: pa.Table, seconds: float) -> float:
    """Return the events that one client publishes per second."""
    with Client(control_url, "bench", timeout_seconds=5.0) as client:
        client.publish(QUEUE, events)  # connects
        began, published = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            published += client.publish(QUEUE, events).events
        return published / (time.perf_counter() - began)
