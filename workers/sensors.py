"""What a law observes, picked out of the plant's snapshot for its target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controllers.guard import Measured

Counters = Mapping[str, float]
CUMULATIVE = ("removed_events", "workers_started")


@dataclass(frozen=True)
class Sensed:
    """An observation in the law's words, how good it is, and the counters the next one is counted from."""

    observation: dict[str, Any]
    measured: Measured
    counters: dict[str, float]


def container(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The target's container in the snapshot, or None when it is not there."""
    queue = snapshot.get("queues", {}).get(target.get("queue"), {})
    return queue.get("containers", {}).get(target.get("node"))


def readings(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an effect is judged by: the container's queue length and counters, and its node's state."""
    row = container(target, snapshot)
    if row is None:
        return None
    node = snapshot.get("nodes", {}).get(target["node"], {})
    return {
        "queue_length": row["waiting_events"],
        "removed_events": row["removed_events"],
        "workers_started": row["workers_started"],
        "node_state": node.get("state"),
    }


def worker_rate(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """{queue_length, removed, started, waiting_to_run} of one container since the observation before.

    What is missing (an OFFLINE node, a container not yet measured) reads 0 and is unfit: the guard holds on
    it.
    """
    row = container(target, snapshot) or {}
    counters = {key: row.get(key) for key in CUMULATIVE}
    observation = {
        "queue_length": row.get("waiting_events") or 0,
        "removed": _since(before, counters, "removed_events"),
        "started": _since(before, counters, "workers_started"),
        "waiting_to_run": row.get("waiting_to_run") or 0,
    }
    known = {key: value for key, value in counters.items() if value is not None}
    return Sensed(observation, measured(target, snapshot, row, now_seconds), {**(before or {}), **known})


# The sensor of each law.
SENSORS = {"worker_rate": worker_rate}


def _since(before: Counters | None, counters: Mapping[str, float | None], key: str) -> float:
    """The growth of a counter; after a reset (a server came back empty) all it counts is new."""
    value = counters[key]
    if value is None or before is None or key not in before:
        return 0
    return value - before[key] if value >= before[key] else value


def measured(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], row: Mapping[str, Any], now_seconds: float
) -> Measured:
    """The age of what was measured: of the snapshot, plus that of the node's heartbeat in it; and why it is
    unfit.
    """
    name = target.get("node")
    node = snapshot.get("nodes", {}).get(name)
    at_seconds = snapshot.get("at")
    # A clock set back between snapshot and tick makes no measurement younger than it is: the distance counts.
    age = None if at_seconds is None else abs(now_seconds - at_seconds)
    if node is None:
        return Measured(age, f"node {name} is not in the snapshot")
    if node.get("age_seconds") is None or age is None:
        return Measured(None, f"node {name} has not reported yet")
    age += node["age_seconds"]
    if node.get("state") == "OFFLINE":
        return Measured(age, f"node {name} is OFFLINE, last heard {node['age_seconds']:.0f} s ago")
    if node.get("stale"):
        return Measured(age, f"node {name} has missed two heartbeats")
    if row.get("waiting_events") is None:
        return Measured(age, f"the container on {name} is not measured yet")
    return Measured(age)
