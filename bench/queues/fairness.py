"""Fairness of a jobs queue under a flood, with real producers and workers on a real server, in four scenarios.

1,000 keys publish at equal rates, at `LOAD` of the workers' capacity. *Idle*: nothing else. *Flood*: one further key
publishes at `FLOOD_SHARES` times the rate of one of them, which overloads the workers. *Split*: the flood divides
itself over 100 keys. *Off*: the flood while the queue is not fair.

Figures: the p95 latency of the 1,000 keys in each scenario, from publishing to the end of handling; its ratio to that
of the idle scenario; the gain of the flood by splitting (its handled events per second, split divided by not split);
and all handled events per second relative to a queue that is not fair.
"""

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import redis

from bench.queues.node_servers import node_servers, write_topology
from queues import fairness
from queues.fairness import FairnessSettings
from queues.publishing.client import Client
from queues.segments.segment import Segment
from queues.topology import QueueSpec
from workers.consumer.handler import Delivery, Handler, Outcome
from workers.consumer.worker import Consumer

QUEUE, NODE = "bench", "n1"
KEYS, FLOOD_SHARES, SPLIT_KEYS = 1_000, 500, 100
PRODUCERS, WORKERS = 2, 4
EVENT_SECONDS, EVERY_SECONDS = 0.0002, 0.05
LOAD = 0.75
ORDINARY_PER_SECOND = LOAD * WORKERS / EVENT_SECONDS
WARM_UP_SECONDS = 2.0
EVENTS_PER_WORKER = 2_048
FLOOD = "flood"


def run(seconds: float) -> dict[str, Any]:
    """Measure each scenario for `seconds`, at least 5."""
    seconds = max(5.0, seconds)
    idle = _measure(seconds, flood_keys=0)
    flood, split = _measure(seconds, flood_keys=1), _measure(seconds, flood_keys=SPLIT_KEYS)
    off = _measure(seconds, flood_keys=1, is_fair=False)
    scenarios = {"idle": idle, "flood": flood, "split": split, "off": off}
    figures = {f"{name}_p95_seconds": scenario["p95_seconds"] for name, scenario in scenarios.items()}
    figures |= {f"{name}_events_per_second": scenario["events_per_second"] for name, scenario in scenarios.items()}
    figures |= {
        "flood_p95_ratio": flood["p95_seconds"] / idle["p95_seconds"],
        "split_p95_ratio": split["p95_seconds"] / idle["p95_seconds"],
        "split_gain": split["flood_per_second"] / max(1.0, flood["flood_per_second"]),
        "throughput_ratio": flood["events_per_second"] / off["events_per_second"],
    }
    peers = {
        "limit_flood_p95_ratio": 1.2,
        "limit_split_p95_ratio": 1.2,
        "limit_split_gain": 2.0,
        "limit_throughput_ratio": 0.95,
    }
    return {"figures": figures, "peers": peers, "ratio": {}, "at_least": ("throughput_ratio",)}


class _TimedHandler(Handler):
    """Waits as long as real work, and records the latency of each ordinary event and the number of all others."""

    works_block_by_block = True

    def __init__(self, from_seconds: float) -> None:
        self.from_seconds, self.flood_events = from_seconds, 0
        self.latencies: list[Any] = []

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        outcome = Outcome()
        for delivery in deliveries:
            time.sleep(EVENT_SECONDS * delivery.events)
            now = time.time()
            if now >= self.from_seconds:
                self._record(delivery.batch, now)
            outcome = outcome.add_counts(Outcome(effects=delivery.events))
        return outcome

    def _record(self, batch: pa.RecordBatch, now: float) -> None:
        is_flood = pc.starts_with(batch.column("key"), FLOOD).to_numpy(zero_copy_only=False)
        times_us = batch.column("time").cast(pa.int64()).to_numpy()
        self.flood_events += int(is_flood.sum())
        self.latencies.append(now - times_us[~is_flood] / 1e6)


def _measure(seconds: float, flood_keys: int, is_fair: bool = True) -> dict[str, float]:
    with node_servers(("control", NODE)) as urls:
        write_topology(urls["control"], QUEUE, {NODE: urls[NODE]})
        if is_fair:
            with redis.Redis.from_url(urls["control"]) as control:
                fairness.enable(control, QUEUE, FairnessSettings(ordinary_weight=float(KEYS)))
        context = multiprocessing.get_context("spawn")
        processes = []
        for number in range(WORKERS):
            here, there = context.Pipe()
            arguments = (urls["control"], urls[NODE], f"w{number}", seconds, there)
            processes.append((context.Process(target=_work, args=arguments, daemon=True), here))
        for number in range(PRODUCERS):
            here, there = context.Pipe()
            arguments = (urls["control"], number, flood_keys, seconds, there)
            processes.append((context.Process(target=_produce, args=arguments, daemon=True), here))
        for process, _ in processes:
            process.start()
        for _, pipe in processes:
            pipe.recv()  # imported and connected
        start = time.time() + 0.1
        for _, pipe in processes:
            pipe.send(start)
        results = [pipe.recv() for _, pipe in processes[:WORKERS]]
        for process, _ in processes:
            process.join()
    latencies = np.concatenate([part for part, _ in results])
    flood_events = sum(flood for _, flood in results)
    return {
        "p95_seconds": float(np.percentile(latencies, 95)),
        "flood_per_second": flood_events / seconds,
        "events_per_second": (flood_events + len(latencies)) / seconds,
    }


def _work(control_url: str, node_url: str, name: str, seconds: float, pipe: Connection) -> None:
    """Run short-lived workers one after the other, as a host does."""
    spec = QueueSpec(QUEUE, "jobs", {NODE: 1000}, events_per_worker=EVENTS_PER_WORKER)
    with redis.Redis.from_url(control_url) as control, redis.Redis.from_url(node_url) as node:
        node.ping()
        pipe.send("ready")
        start = pipe.recv()
        end = start + WARM_UP_SECONDS + seconds
        handler = _TimedHandler(start + WARM_UP_SECONDS)
        while time.time() < end:
            fair = fairness.load_fairness(control, QUEUE, time.time())
            weights = fair.build_lane_weights() if fair else None
            consumer = Consumer(spec, Segment(node, QUEUE), handler, name, weights=lambda weights=weights: weights)
            consumer.run()
            if not consumer.report().events:
                time.sleep(0.005)
    latencies = np.concatenate(handler.latencies) if handler.latencies else np.zeros(0)
    pipe.send((latencies, handler.flood_events))


def _produce(control_url: str, number: int, flood_keys: int, seconds: float, pipe: Connection) -> None:
    """Publish a batch in each interval: as many events as are due since the last one."""
    random = np.random.default_rng(number)
    ordinary = np.array([f"key-{key}" for key in range(KEYS)])
    flood = np.array([f"{FLOOD}-{key}" for key in range(flood_keys)])
    ordinary_per_second = ORDINARY_PER_SECOND / PRODUCERS
    flood_per_second = ordinary_per_second / KEYS * FLOOD_SHARES if flood_keys else 0.0
    with Client(control_url, f"producer-{number}", timeout_seconds=5.0) as client:
        client.get_topology()
        pipe.send("ready")
        last = pipe.recv()
        time.sleep(max(0.0, last - time.time()))
        end = last + WARM_UP_SECONDS + seconds
        while (now := time.time()) < end:
            names = random.choice(ordinary, round((now - last) * ordinary_per_second))
            if flood_keys:
                names = np.concatenate([names, random.choice(flood, round((now - last) * flood_per_second))])
            last = now
            random.shuffle(names)
            client.publish(QUEUE, pa.table({"type": ["order"] * len(names), "key": pa.array(names)}))
            time.sleep(max(0.0, EVERY_SECONDS - (time.time() - now)))
