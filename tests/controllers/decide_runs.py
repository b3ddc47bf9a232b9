"""Runs of every law, as documents for `decide`: what a sceptic begins with before he changes something."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from controllers import request
from tests.controllers.rebalancing.plants import node, observation, queue
from tests.controllers.shedding import applications

Document = dict[str, Any]
Seen = Callable[[np.random.Generator, Mapping[str, Any] | None], Document]


def flow(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """Free space around the setpoint, and what was admitted of what was commanded."""
    applied = None if action is None else action["admit"] * float(chance.choice([1.0, 0.5]))
    return {"measured": float(chance.uniform(1e8, 7e8)), "applied": applied}


def fair_queue(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """About 1,000 keys, at times unknown, and the weight that was set last."""
    applied = 100.0 if action is None else action["ordinary_weight"]
    return {"active_keys": None if chance.random() < 0.1 else float(chance.integers(800, 1_200)), "applied": applied}


def balance(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """Three replicas, which at times can't be compared, or of which one has too small a share."""
    shares = {"a": 0.3, "b": 0.4, "c": 0.3} if action is None else action["shares"]
    times = {name: float(chance.uniform(0.5, 3)) for name in shares}
    return {
        "response_times_seconds": times,
        "shares": shares,
        "events_per_second": 900.0,
        "utilisation": None,
        "incomparable": "replica a is silent" if chance.random() < 0.2 else None,
        "starved": "replica b gets too few events" if chance.random() < 0.2 else None,
        "error_seconds": float(chance.uniform(0.01, 0.5)) if chance.random() < 0.5 else None,
        "same_cores": bool(chance.random() < 0.2),
    }


def worker_rate(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """A queue that grows and shrinks, on a node that at times is TOOBUSY."""
    return {
        "queue_length": int(chance.integers(0, 20_000)),
        "removed": int(chance.integers(0, 9_000)),
        "started": int(chance.integers(0, 3)),
        "waiting_to_run": int(chance.integers(0, 3)),
        "running": int(chance.integers(0, 5)),
        "service_seconds": float(chance.uniform(0.001, 20.0)),
        "oldest_seconds": float(chance.uniform(0, 90)),
        "expected_per_second": float(chance.uniform(0, 900)),
        "node_state": str(chance.choice(["NORMAL", "TOOBUSY"])),
    }


def plant(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """Five nodes, one of them OFFLINE and one IDLE, with three queues."""
    states = ("NORMAL", "NORMAL", "BUSY", "IDLE", "OFFLINE")
    nodes = [node(f"n{at}", float(chance.choice([1_000, 2_000])), False, each) for at, each in enumerate(states)]
    queues = [
        queue(f"q{at}", float(chance.uniform(0, 1_500)), {f"n{at}": 600, f"n{(at + 1) % 5}": 400}) for at in range(4)
    ]
    if chance.random() < 0.5:
        queues[0]["expected"] = float(chance.uniform(0, 1_500))
        return {**observation(nodes, queues), "forecast_at": 1_790_000_000.0}
    return observation(nodes, queues)


def scaling(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """The same, with a forecast and what was declined."""
    missing = "q1: no forecast yet" if chance.random() < 0.5 else None
    more = {"forecast": float(chance.uniform(0.2, 2)), "forecast_missing": missing}
    return {**plant(chance, action), **more, "declined": {"use": False}, "held_back": False}


def concurrency(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """A pool that saturates at eight processes and loses beyond twelve."""
    threads = 1 if action is None else action["threads"]
    mean = 1 / (min(threads, 8) - 0.4 * max(0, threads - 12)) if threads < 30 else 1.0
    times = (mean * chance.uniform(0.8, 1.2, 130)).tolist()
    seen = {"threads": threads, "interdeparture_seconds": times, "seconds": 90.0}
    return {
        **seen,
        "epoch": 0,
        "mean_threads": 1.0,
        "steered": True,
        "ends_idle": bool(threads % 2),
        "waiting": threads == 5,
        "open_seconds": float(chance.uniform(0, 10)),
        "open_events": float(threads),
    }


def queueing(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """Two paths over three operators."""
    rows = {
        name: {
            "tasks": int(chance.integers(1, 9)),
            "arrival_interval_seconds": float(chance.uniform(0.01, 1)),
            "service_seconds": float(chance.uniform(0.001, 0.3)),
            "arrival_cv2": 1.5,
            "service_cv2": 0.5,
            "correction": 1.0,
            "latency_seconds": 0.01,
        }
        for name in "xyz"
    }
    return {"paths": [["x", "y"], ["x", "z"]], "operators": rows}


def forecast(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """Five windows, with one task to six."""
    missed = np.sort(chance.uniform(0, 900, (5, 6)))[:, ::-1]
    return {"missed": missed.tolist(), "current": int(chance.integers(1, 7)), "first": 1}


def joint(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """The same paths with a forecast; tasks as they were set, and at times much that waits."""
    tasks = dict.fromkeys("xyz", 2) if action is None else action["tasks"]
    rows = {
        name: {
            "tasks": tasks[name],
            "rate_per_second": float(chance.uniform(5, 90)),
            "service_seconds": float(chance.uniform(0.001, 0.1)),
            "backlog_events": float(chance.choice([0, 0, 5_000])),
            "variability": 1.0,
            "latency_seconds": 0.01,
        }
        for name in "xyz"
    }
    return {
        "at_seconds": float(chance.uniform(0, 9_000)),
        "source_per_second": float(chance.uniform(5, 99)),
        "failed_per_second": float(chance.uniform(0, 9)),
        "forecast_per_second": chance.uniform(5, 200, 3).tolist(),
        "deviation_per_second": chance.uniform(0, 9, 3).tolist(),
        "paths": [["x", "y"], ["x", "z"]],
        "operators": rows,
    }


def shedding(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """The running example, permitted to shed."""
    return {**applications.running_example(chance), "permitted": True, "batch_seconds": None}


def ladder(chance: np.random.Generator, action: Mapping[str, Any] | None) -> Document:
    """A demand around the capacity."""
    return {
        "demand_per_second": float(chance.uniform(500, 2_000)),
        "came_per_second": float(chance.uniform(500, 2_000)),
        "capacity_per_second": 1_000.0,
        "backlog_seconds": float(chance.uniform(0, 30)),
        "saturated": {"rebalance": bool(chance.random() < 0.7), "workers": True, "nodes": bool(chance.random() < 0.7)},
        "unavailable": {"throttle": "no producer can wait"} if chance.random() < 0.2 else {},
        "advice": {"nodes": "node scaling would use n3"},
        "interval_seconds": 60.0,
        "latency_slack_seconds": float(chance.uniform(0, 60)),
        "budgets": [{"level": "shed", "name": "orders", "left": float(chance.uniform(0, 1e6)), "share": 0.5}],
    }


ADAPTIVE = {"a": 0.985, "b": -134, "tuning": "adaptive", "kp": -0.002162, "ki": -0.000289, "kd": 0.0}
LOCAL = {"perspective": "local", "utilisation_budget": 0.6, "never_shed": {"0": True}}
PERMANENT = tuple({"workers": "permanent", "method": method} for method in ("forecast", "thesis"))
RUNS: Mapping[str, tuple[Seen, tuple[Document, ...]]] = {
    "flow": (flow, (ADAPTIVE, {"form": "pi", "setpoint": 3e8})),
    "balance": (balance, ({}, {"a_of": {"a": 0.4}, "b_of": {"b": 2.0}, "minimum_share": 0.1})),
    "worker_rate": (worker_rate, ({}, {"method": "thesis", "events_per_worker": 50}, *PERMANENT)),
    "rebalancing": (plant, ({"exact_ways": 15, "branches": 5}, {"goal": "band", "exact_ways": 0})),
    "node_scaling": (scaling, ({}, {"quiet_decisions": 1})),
    "concurrency": (concurrency, ({}, {"method": "explorer"}, {"method": "explorer", "aim": "peak"})),
    "parallelism_queueing": (queueing, ({}, {"use_correction": False, "maximum": 30})),
    "parallelism_forecast": (forecast, ({"minimum": 1}, {"cost_change": 50.0})),
    "parallelism_joint": (joint, ({"maximum": 12}, {"tasks_of": {"x": 3}, "pause_seconds": 0})),
    "shedding": (shedding, ({}, {"perspective": "local", "utilisation_budget": 0.6, "never_shed": {"0": True}})),
    "ladder": (ladder, ({}, {"cap": "throttle", "unmet_decisions": 2})),
    "fairness": (fair_queue, ({}, {"smoothing": 1.0, "deadband": 0.0})),
}
DECISIONS = 14


@cache
def documents(law: str) -> tuple[Document, ...]:
    """Of each of its runs a document for each decision, with the state before it; what comes out is part of
    the next.
    """
    return tuple(_documents(law))


def _documents(law: str) -> Iterator[Document]:
    seen, settings = RUNS[law]
    for seed, parameters in enumerate(settings):
        chance, state, action = np.random.default_rng(seed), None, None
        for _ in range(DECISIONS):
            document = {"parameters": parameters, "state": state, "observations": [seen(chance, action)]}
            yield document
            out = request.answer(law, document)
            state, action = out["state"], out["decisions"][0]["action"] or action
