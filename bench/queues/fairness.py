"""Fairness of a jobs queue under a flood: 1,000 keys publish at equal rates, and one further key floods the queue.

Latency is from publishing to the end of handling, of the 1,000 keys, at a load that the workers can handle. *Idle*: no
flood. *Flood*: one key at `FLOOD_SHARES` times the rate of one of the others. *Split*: the flood divides itself over
100 keys. *Off*: the flood while the queue is not fair. The gain by splitting is the flood's handled events per second,
split divided by not split. Each scenario is measured twice:

- On virtual time (`virtual_workers`), with a flood that overloads the workers: independent of how busy the host is.
- In real time, with producers and short-lived workers in processes of their own, and a handler that waits.

Throughput is measured in real time with more ordinary events than the workers can handle, and at one publisher. Both
compare a fair queue with one that is not fair, in turns.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import redis

from bench.queues.node_servers import node_servers, write_topology
from bench.queues.virtual_workers import VirtualLoad, VirtualWorkers
from queues import fairness
from queues.fairness import FairnessSettings, LaneWeights
from queues.publishing.client import Client
from queues.segments.segment import Segment
from queues.topology import QueueSpec
from workers.consumer.handler import Delivery, Handler, Outcome
from workers.consumer.worker import Consumer

QUEUE, NODE = "bench", "n1"
KEYS, FLOOD_SHARES, SPLIT_KEYS = 1_000, 100, 100
PRODUCERS, WORKERS = 2, 4
EVENT_SECONDS, EVERY_SECONDS = 0.001, 0.05
LOAD, VIRTUAL_LOAD, OVERLOAD = 0.8, 0.92, 1.3
WARM_UP_SECONDS = 3.0
EVENTS_PER_WORKER = 2_048
VIRTUAL_SECONDS, VIRTUAL_SEEDS = 20.0, 3
OFF = (False, FLOOD_SHARES, 1)
ROUNDS = 2  # of the throughput
PUBLISHED_ROWS, PUBLISH_SECONDS = 8_192, 0.25
FLOOD = "flood"


def run(seconds: float) -> dict[str, Any]:
    """Measure each scenario for `seconds`, at least 8."""
    seconds = max(8.0, seconds)
    figures = _measure_virtually()
    idle = _measure(seconds, flood_keys=0)
    flood, split = _measure(seconds, flood_keys=1), _measure(seconds, flood_keys=SPLIT_KEYS)
    off = _measure(seconds, flood_keys=1, is_fair=False)
    for name, scenario in {"idle": idle, "flood": flood, "split": split, "off": off}.items():
        figures |= {f"{name}_p95_seconds": scenario["p95_seconds"]}
    figures |= {
        "flood_p95_ratio": flood["p95_seconds"] / idle["p95_seconds"],
        "off_p95_ratio": off["p95_seconds"] / idle["p95_seconds"],
        "split_gain": split["flood_per_second"] / max(1.0, flood["flood_per_second"]),
        "throughput_ratio": _compare_throughput(seconds),
        "publish_ratio": _compare_publishing(seconds),
    }
    limits = {"flood_p95_ratio": 1.2, "split_gain": 2.0}
    peers = {f"limit_{clock}{name}": limit for clock in ("", "virtual_") for name, limit in limits.items()}
    peers |= {"limit_virtual_flood_waiting_p95_ratio": 1.2}
    throughputs = ("throughput_ratio", "virtual_throughput_ratio")
    peers |= {f"limit_{name}": 0.95 for name in throughputs}
    return {"figures": figures, "peers": peers, "ratio": {}, "at_least": throughputs}


def _measure_virtually() -> dict[str, float]:
    """Return the figures of virtual time, as means over seeds."""
    figures: dict[str, list[float]] = {}
    with node_servers((NODE,)) as urls, redis.Redis.from_url(urls[NODE]) as node:
        for seed in range(VIRTUAL_SEEDS):
            measured = []
            for is_fair, shares, keys in ((True, 0, 1), (True, FLOOD_SHARES, 1), (True, FLOOD_SHARES, SPLIT_KEYS), OFF):
                node.flushall()
                load = VirtualLoad(VIRTUAL_LOAD, shares, keys)
                measured.append(VirtualWorkers(node, is_fair).run(load, VIRTUAL_SECONDS, seed))
            idle, flood, split, off = measured
            for name, figure in {
                "virtual_flood_p95_ratio": flood.p95_seconds / idle.p95_seconds,
                "virtual_flood_waiting_p95_ratio": flood.waiting_p95_seconds / idle.waiting_p95_seconds,
                "virtual_off_p95_ratio": off.p95_seconds / idle.p95_seconds,
                "virtual_split_gain": split.flood_per_second / max(1.0, flood.flood_per_second),
                "virtual_throughput_ratio": flood.events_per_second / off.events_per_second,
            }.items():
                figures.setdefault(name, []).append(figure)
    return {name: float(np.mean(of_seeds)) for name, of_seeds in figures.items()}


def _compare_throughput(seconds: float) -> float:
    """Return the events per second of a fair queue relative to one that is not, without a flood."""
    handled = {True: 0.0, False: 0.0}
    for is_fair in (True, False) * ROUNDS:
        handled[is_fair] += _measure(seconds / 2, flood_keys=0, is_fair=is_fair, load=OVERLOAD)["events_per_second"]
    return handled[True] / handled[False]


def _compare_publishing(seconds: float) -> float:
    """Return the events per second that one publisher stores in a fair queue relative to one that is not."""
    names = np.random.default_rng(0).choice([f"key-{key}" for key in range(KEYS)], PUBLISHED_ROWS)
    events = pa.table({"type": ["order"] * PUBLISHED_ROWS, "key": pa.array(names)})
    calls, spent = {True: 0, False: 0}, {True: 0.0, False: 0.0}
    with node_servers(("control", NODE)) as urls, redis.Redis.from_url(urls["control"]) as control:
        write_topology(urls["control"], QUEUE, {NODE: urls[NODE]})
        with redis.Redis.from_url(urls[NODE]) as node:
            while sum(spent.values()) < seconds:
                for is_fair in (True, False):
                    fairness.disable(control, QUEUE)
                    if is_fair:
                        fairness.enable(control, QUEUE, FairnessSettings())
                    node.flushall()
                    with Client(urls["control"], "publisher", timeout_seconds=5.0) as client:
                        client.publish(QUEUE, events)
                        start = time.perf_counter()
                        while time.perf_counter() < start + PUBLISH_SECONDS:
                            client.publish(QUEUE, events)
                            calls[is_fair] += 1
                        spent[is_fair] += time.perf_counter() - start
    return (calls[True] / spent[True]) / (calls[False] / spent[False])


class _TimedHandler(Handler):
    """Waits as long as real work, and records the latency of each ordinary event and the number of all others."""

    works_block_by_block = True

    def __init__(self, from_seconds: float) -> None:
        self.from_seconds, self.flood_events, self._busy_until = from_seconds, 0, 0.0
        self.latencies: list[Any] = []

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        outcome = Outcome()
        for delivery in deliveries:
            # A sleep lasts too long by up to a millisecond. The next one is shorter by that time.
            began = time.time()
            start = self._busy_until if began - self._busy_until < EVENT_SECONDS else began
            self._busy_until = start + EVENT_SECONDS * delivery.events
            time.sleep(max(0.0, self._busy_until - began))
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


def _measure(seconds: float, flood_keys: int, is_fair: bool = True, load: float = LOAD) -> dict[str, float]:
    with node_servers(("control", NODE)) as urls:
        write_topology(urls["control"], QUEUE, {NODE: urls[NODE]})
        if is_fair:
            with redis.Redis.from_url(urls["control"]) as control:
                fairness.enable(control, QUEUE, FairnessSettings(ordinary_weight=float(KEYS)))
        context = multiprocessing.get_context("spawn")
        processes = []
        programs: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            *((_work, (urls["control"], urls[NODE], f"w{number}", seconds)) for number in range(WORKERS)),
            *((_produce, (urls["control"], number, flood_keys, load, seconds)) for number in range(PRODUCERS)),
        ]
        for target, arguments in programs:
            here, there = context.Pipe()
            processes.append((context.Process(target=target, args=(*arguments, there), daemon=True), here))
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
            weights = partial(_return, fair.build_lane_weights() if fair else None)
            consumer = Consumer(spec, Segment(node, QUEUE), handler, name, weights=weights)
            consumer.run()
            if not consumer.report().events:
                time.sleep(0.02)
    latencies = np.concatenate(handler.latencies) if handler.latencies else np.zeros(0)
    pipe.send((latencies, handler.flood_events))


def _return(weights: LaneWeights | None) -> LaneWeights | None:
    return weights


def _produce(control_url: str, number: int, flood_keys: int, load: float, seconds: float, pipe: Connection) -> None:
    """Publish a batch in each interval: as many events as are due since the last one."""
    random = np.random.default_rng(number)
    ordinary = np.array([f"key-{key}" for key in range(KEYS)])
    flood = np.array([f"{FLOOD}-{key}" for key in range(flood_keys)])
    ordinary_per_second = load * WORKERS / EVENT_SECONDS / PRODUCERS
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
            if len(names):
                client.publish(QUEUE, pa.table({"type": ["order"] * len(names), "key": pa.array(names)}))
            time.sleep(max(0.0, EVERY_SECONDS - (time.time() - now)))
