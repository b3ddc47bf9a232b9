"""The sensor of each law: what it observes, picked out of the snapshot; and what its effect is judged by."""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed, since
from workers.control.kinds import concurrency as pool_sensors
from workers.control.kinds import ladder as ladder_sensor
from workers.control.kinds import shedding as shedding_sensor
from workers.control.parts import applications as pipeline_sensors
from workers.control.parts import operators as parallelism_sensors
from workers.placement import plant_sensors

CUMULATIVE = ("removed_events", "workers_started")


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
    """{queue_length, removed, started, waiting_to_run} of one container since the observation before; and,
    where they are known, {running, oldest_seconds, node_state}: the law does without them.

    What is missing (an OFFLINE node, a container not yet measured) reads 0 and is unfit: the guard holds on
    it.
    """
    row = container(target, snapshot) or {}
    counters = {key: row.get(key) for key in CUMULATIVE}
    observation = {
        "queue_length": row.get("waiting_events") or 0,
        "removed": since(before, counters, "removed_events"),
        "started": since(before, counters, "workers_started"),
        "waiting_to_run": row.get("waiting_to_run") or 0,
        **_if_known(running=row.get("workers_busy"), oldest_seconds=row.get("oldest_seconds")),
        **_if_known(node_state=snapshot.get("nodes", {}).get(target.get("node"), {}).get("state")),
    }
    known = {key: value for key, value in counters.items() if value is not None}
    return Sensed(observation, measured(target, snapshot, row, now_seconds), {**(before or {}), **known})


def _if_known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


# The sensor of each law, and what its effects are judged by.
SENSORS = {
    "worker_rate": worker_rate,
    "rebalancing": plant_sensors.rebalancing,
    "node_scaling": plant_sensors.node_scaling,
    "flow": pipeline_sensors.flow,
    "balance": pipeline_sensors.balance,
    "concurrency": pool_sensors.concurrency,
    "shedding": shedding_sensor.shedding,
    "ladder": ladder_sensor.ladder,
    "parallelism_queueing": parallelism_sensors.queueing,
    "parallelism_forecast": parallelism_sensors.forecast,
    "parallelism_joint": parallelism_sensors.joint,
}
READINGS = {
    "worker_rate": readings,
    "rebalancing": plant_sensors.readings,
    "node_scaling": plant_sensors.readings,
    "flow": pipeline_sensors.flow_readings,
    "balance": pipeline_sensors.balance_readings,
    "concurrency": pool_sensors.readings,
    "shedding": shedding_sensor.readings,
    "ladder": ladder_sensor.readings,
    "parallelism_queueing": parallelism_sensors.readings,
    "parallelism_forecast": parallelism_sensors.operator_readings,
    "parallelism_joint": parallelism_sensors.readings,
}


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
