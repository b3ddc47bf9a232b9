"""Disturbances of the pipeline: a CPU hog (flow and balance), a ramp (parallelism), and surplus types (shedding).

They share one application. Its patterns find a B after an A of the same key, and each B comes with ten A.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psutil

from bench.laws.on_plant.disturbed_plant import DisturbedPlant, Snapshot, Stream
from bench.laws.on_plant.metrics import Comparison, compute_mean, compute_recall, compute_rms
from workers.pipeline.declaration.controls import steer

QUEUE, APPLICATION, PATTERN, OPERATOR = "surplus", "disturbed", "surplus", "finder"
TYPES = (*["A"] * 10, "B")
START_SECONDS, SETTLING_SECONDS = 120.0, 15.0
STEADY_PER_SECOND, HOG_PER_SECOND, RAMP_PER_SECOND = 4_000.0, 30_000.0, (2_500.0, 40_000.0)
HOG = "while True: pass"
MEGABYTE = 1e6
DECLARATION = f"""
name: {APPLICATION}
queues: [{QUEUE}]
sink: alert
replicas: 2
lateness_seconds: 1
operators:
  - name: {OPERATOR}
    key: key
    patterns:
      - name: {PATTERN}
        pattern: SEQ(A; B)
        within_seconds: 10
        emits: found
"""
SHEDDING = ("shedding", "ladder")
BASELINE = "advise"  # the loops set nothing, and their earlier settings expire
EXPIRY_SECONDS = 30.0


def open_application(plant: DisturbedPlant) -> None:
    """Declare the application and wait until it runs. Do nothing if it exists."""
    if APPLICATION in ((plant.snapshot() or {}).get("pipeline") or {}).get("applications", {}):
        return
    plant.ask(f"queues/{QUEUE}/create", kind="pipeline")
    plant.ask("applications", text=DECLARATION)
    plant.wait_until(lambda snapshot: get_application(snapshot).get("state") == "running", START_SECONDS, "it runs")


def get_application(snapshot: Snapshot) -> Mapping[str, Any]:
    row: Mapping[str, Any] = (snapshot.get("pipeline") or {}).get("applications", {}).get(APPLICATION, {})
    return row


def measure_hog(plant: DisturbedPlant, seconds: float) -> list[Comparison]:
    """Run a CPU hog per core (Xu, section 4) with equal shares and no limit, then with the flow and balance loops.

    delay_mean_seconds: mean response time of the slowest replica. rms_megabytes: root mean square distance of the
    result queue's free space from the setpoint.
    """
    open_application(plant)
    delays, distances, minima = [], [], []
    for mode in (BASELINE, "auto"):
        with plant.use_mode(["flow", "balance"], mode), plant.publish(QUEUE, lambda at: HOG_PER_SECOND, TYPES):
            time.sleep(EXPIRY_SECONDS)
            with run_hogs(psutil.cpu_count() or 1):
                rows = plant.sample(seconds, get_application)
        delays.append(compute_mean(get_slowest_response(row) for row in rows))
        free = [get_free_megabytes(row) for row in rows]
        capacity = next((row["result_queue"]["capacity_bytes"] for row in reversed(rows) if row), None) or 0
        distances.append(compute_rms(free, capacity / 2 / MEGABYTE))
        minima.append(min((value for value in free if value is not None), default=None))
    return [
        Comparison("hog_delay_mean_seconds", *reversed(delays)),
        Comparison("hog_rms_megabytes", *reversed(distances)),
        Comparison("hog_minimum_free_megabytes", *reversed(minima), is_higher_better=True),
    ]


def measure_ramp(plant: DisturbedPlant, seconds: float) -> list[Comparison]:
    """Raise the load sixteenfold (Stutz) with fixed tasks, then with the loop that sets tasks."""
    open_application(plant)
    low, high = RAMP_PER_SECOND
    latencies, tasks = [], []
    for mode in (BASELINE, "auto"):
        ramp = lambda at: low + (high - low) * min(1.0, at / seconds)  # noqa: E731
        with plant.use_mode(["parallelism_joint"], mode), plant.publish(QUEUE, ramp, TYPES):
            rows = plant.sample(seconds, get_application)
        latencies.append(compute_mean(row.get("latency_p95_seconds") for row in rows))
        tasks.append(compute_mean(get_tasks(row) for row in rows))
    return [
        Comparison("ramp_latency_p95_seconds", *reversed(latencies)),
        Comparison("ramp_tasks_mean", *reversed(tasks)),
    ]


def measure_surplus(plant: DisturbedPlant, seconds: float) -> list[Comparison]:
    """Shed half of the work (Röger) with the law's choice of types, then with the same share of all types.

    The metric is the recall: each B completes a match unless it, or all A of its key, were shed.
    """
    open_application(plant)
    recalls: list[float | None] = []
    with plant.publish(QUEUE, lambda at: STEADY_PER_SECOND, TYPES) as stream:
        rows = plant.sample(SETTLING_SECONDS, get_application)
        used = compute_mean(get_utilization(row) for row in rows[-5:]) or 0.0
        budget = {"utilisation_budget": max(0.01, used / 2)}
        with enable_shedding(plant), plant.override("shedding", budget):
            time.sleep(SETTLING_SECONDS)
            recalls.append(_measure_recall(plant, stream, seconds))
            share = compute_mean([get_application(plant.snapshot() or {}).get("shed_share")]) or 0.0
        with plant.use_mode(SHEDDING, BASELINE):
            shed = {PATTERN: dict.fromkeys(("A", "B"), share)}
            steer(plant.control, APPLICATION, {"shed": shed, "shed_by": "event", "shed_until_seconds": None})
            time.sleep(SETTLING_SECONDS)
            recalls.append(_measure_recall(plant, stream, seconds))
            steer(plant.control, APPLICATION, {"shed": {}})
    return [
        Comparison("surplus_recall", *recalls, is_higher_better=True),
        Comparison("surplus_shed_share", share, share),
    ]


def _measure_recall(plant: DisturbedPlant, stream: Stream, seconds: float) -> float | None:
    published, matches = stream.published, count_matches(plant.snapshot() or {})
    time.sleep(seconds)
    possible = (stream.published - published) / len(TYPES)
    return compute_recall(count_matches(plant.snapshot() or {}) - matches, possible)


@contextmanager
def enable_shedding(plant: DisturbedPlant) -> Iterator[None]:
    """Set the queue's ladder to the shedding level until the context exits."""
    loops = plant.answer("loops")["loops"]
    ladder = next(row for row in loops if row["law"] == "ladder" and row["target"].get("queue") == QUEUE)
    plant.ask(f"loops/{ladder['id']}/mode", mode="manual", value=5, minutes=30)
    try:
        with plant.use_mode(["shedding"], "auto"):
            yield
    finally:
        plant.ask(f"loops/{ladder['id']}/mode", mode=ladder["base_mode"])


@contextmanager
def run_hogs(count: int) -> Iterator[None]:
    """Run processes that compute without a pause until the context exits."""
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def get_slowest_response(row: Mapping[str, Any]) -> float | None:
    known = [replica["response_seconds"] for replica in row.get("replicas", {}).values()]
    return max((value for value in known if value is not None), default=None)


def get_free_megabytes(row: Mapping[str, Any]) -> float | None:
    free = row.get("result_queue", {}).get("free_bytes")
    return None if free is None else free / MEGABYTE


def get_tasks(row: Mapping[str, Any]) -> float | None:
    tasks = [operator["parallelism"] for operator in row.get("operators", {}).values()]
    return float(sum(tasks)) if tasks else None


def get_utilization(row: Mapping[str, Any]) -> float | None:
    used = [operator["utilisation"] for operator in row.get("operators", {}).values()]
    return max((value for value in used if value is not None), default=None)


def count_matches(snapshot: Snapshot) -> float:
    return float(get_application(snapshot).get("patterns", {}).get(PATTERN, {}).get("matches", 0))
