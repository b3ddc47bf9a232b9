"""What a law observes, picked out of the snapshot for its target; and what its effect is judged by."""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed, since
from controllers.rebalancing.law import PARAMETERS as REBALANCING_PARAMETERS
from queues.nodes.node_state import smooth
from workers.control.kinds import (
    ladder_sensor,
    parallelism_sensors,
    pipeline_sensors,
    pool_sensors,
    shedding_sensor,
)

CUMULATIVE = ("removed_events", "workers_started")
SMOOTHING = 0.5  # the weight of the newest rate, from decision to decision
DEFAULT_BUSY = next(float(each.default) for each in REBALANCING_PARAMETERS if each.name == "busy")
BEING_EXECUTED = ("approved", "running")


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


def rebalancing(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """{nodes [{name, capacity, drained, state}], queues [{name, rate, containers, minimum_containers}]}.

    capacity [events/s] = declared capacity * busy / the law's default for busy: each node's own threshold,
    and what it is overridden by, then holds where the law applies its one. rate [events/s] of a queue = Σ
    over its containers of load * declared capacity: events that cost more than others count as more of them.
    Rates are smoothed over decisions (half the newest, half before). A cordoned node is shown to the law as
    OFFLINE, with the load it keeps left out: that neither gives nor gets.
    """
    nodes = snapshot.get("nodes", {})
    closed = {name for name, node in nodes.items() if node.get("cordoned") and not node["drained"]}
    rates = {
        f"rate/{name}": _smoothed(before, f"rate/{name}", _queue_rate(queue, nodes, closed))
        for name, queue in snapshot.get("queues", {}).items()
    }
    observation = {
        "nodes": [_law_node(name, node, name in closed) for name, node in sorted(nodes.items())],
        "queues": [
            {
                "name": name,
                "rate": rates[f"rate/{name}"],
                "containers": {n: row["points"] for n, row in queue["containers"].items() if row["points"]},
                "minimum_containers": min(queue["minimum_containers"], len(nodes)) or 1,
            }
            for name, queue in sorted(snapshot.get("queues", {}).items())
        ],
    }
    return Sensed(observation, plant_measured(snapshot, now_seconds), rates)


def node_scaling(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """What `rebalancing` sees, and the load to come over that of now: 1, as nothing foretells it yet."""
    sensed = rebalancing(target, snapshot, before, now_seconds)
    return Sensed({**sensed.observation, "forecast": 1.0}, sensed.measured, sensed.counters)


def _law_node(name: str, node: Mapping[str, Any], closed: bool) -> dict[str, Any]:
    state = "OFFLINE" if closed or node["state"] is None else node["state"]
    capacity = node["capacity_events_per_second"] * node["busy"] / DEFAULT_BUSY
    return {"name": name, "capacity": capacity, "drained": node["drained"], "state": state}


def _queue_rate(queue: Mapping[str, Any], nodes: Mapping[str, Any], closed: set[str]) -> float:
    """What the queue's containers cause on nodes that are heard, in events/s."""
    return sum(
        (row.get("load") or 0.0) * nodes[name]["capacity_events_per_second"]
        for name, row in queue["containers"].items()
        if row["points"] and name in nodes and name not in closed and nodes[name]["state"] != "OFFLINE"
    )


def _smoothed(before: Counters | None, key: str, newest: float) -> float:
    old = (before or {}).get(key)
    return round(smooth(newest, old, SMOOTHING), 3)


def plant_readings(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an effect on the whole plant is judged by: the worst node that is heard, and its state."""
    heard = [node for node in snapshot.get("nodes", {}).values() if node["state"] not in ("OFFLINE", None)]
    if not heard:
        return None
    worst = max(heard, key=lambda node: node["utilisation"] or 0.0)
    return {"worst_utilisation": worst["utilisation"], "node_state": worst["state"]}


def plant_measured(snapshot: Mapping[str, Any], now_seconds: float) -> Measured:
    """The age of the plant's oldest measurement that counts; and why no move can be decided on it, if so.

    A node that is OFFLINE is known to be: that is no reason to wait. One that has missed two beats is in
    doubt.
    """
    at_seconds = snapshot.get("at")
    if at_seconds is None or not snapshot.get("nodes"):
        return Measured(None, "no node is known yet")
    age = abs(now_seconds - at_seconds)
    if (running := [plan for plan in snapshot.get("plans", ()) if plan["state"] in BEING_EXECUTED]) != []:
        return Measured(age, f"plan {running[0]['id']} is being executed")
    for name, node in sorted(snapshot["nodes"].items()):
        if node["state"] == "OFFLINE":
            continue
        if node["age_seconds"] is None:
            return Measured(None, f"node {name} has not reported yet")
        if node.get("stale"):
            return Measured(age, f"node {name} has missed two heartbeats")
    for name, queue in snapshot.get("queues", {}).items():
        if (silent := _unmeasured(queue, snapshot["nodes"])) is not None:
            return Measured(age, f"the container of {name} on {silent} is not measured yet")
    ages = [node["age_seconds"] for node in snapshot["nodes"].values() if node["state"] != "OFFLINE"]
    return Measured(age + max(ages, default=0.0))


def _unmeasured(queue: Mapping[str, Any], nodes: Mapping[str, Any]) -> str | None:
    """A node whose container of the queue has points and no known load, though it is heard."""
    for name, row in queue["containers"].items():
        if row["points"] and row.get("load") is None and nodes.get(name, {}).get("state") != "OFFLINE":
            return name
    return None


# The sensor of each law, and what its effects are judged by.
SENSORS = {
    "worker_rate": worker_rate,
    "rebalancing": rebalancing,
    "node_scaling": node_scaling,
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
    "rebalancing": plant_readings,
    "node_scaling": plant_readings,
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
