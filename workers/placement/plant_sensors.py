"""Observations of the plant for the laws that place containers, and readings that judge their effects."""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Counters, Measurement
from controllers.rebalancing.allocation import ObservedNode, ObservedQueue, PlantObservation
from controllers.rebalancing.law import RebalancingParameters
from queues.nodes.node_state import OFFLINE, SILENT, smooth
from workers.documents.nodes import NodeStatus
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.placement.plans import BEING_EXECUTED

SMOOTHING = 0.5  # the weight of the newest rate, from decision to decision
DEFAULT_BUSY = RebalancingParameters().busy


def observe_rebalancing(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the nodes and the queues for the rebalancing law.

    capacity [events/s] = declared capacity * busy / the law's default for busy: each node's own threshold, or its
    override, then applies where the law applies its single one. rate [events/s] of a queue = Σ over its containers of
    load * declared capacity: events that cost more than others count as more of them. Rates are smoothed over decisions
    (half the newest, half before), and start again if other nodes count than before. A cordoned node is shown to the
    law as OFFLINE, without the load it keeps, so that it neither gives nor gets.
    """
    nodes = snapshot.nodes
    closed = {name for name, node in nodes.items() if node.cordoned and not node.drained}
    rates, points = dict[str, float](), dict[str, float]()
    for name, queue in snapshot.queues.items():
        counting = _list_counted_containers(queue, nodes, closed)
        points[f"points/{name}"] = float(sum(row.points for row in counting.values()))
        rates[f"rate/{name}"] = _smooth_rate(before, name, points, _queue_rate(counting, nodes))
    observation = PlantObservation(
        nodes=[_build_law_node(name, node, name in closed) for name, node in sorted(nodes.items())],
        queues=[
            ObservedQueue(
                name=name,
                rate=rates[f"rate/{name}"],
                containers={n: row.points for n, row in queue.containers.items() if row.points},
                minimum_containers=min(queue.minimum_containers, len(nodes)) or 1,
            )
            for name, queue in sorted(snapshot.queues.items())
        ],
    )
    valid = check_measurement(snapshot, now_seconds)
    kept = dict(before or {}) if valid.invalid else {**rates, **points}
    return Measurement.of(observation, valid, kept)


def observe_node_scaling(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return what `observe_rebalancing` sees, the load ratio, and whether people have paused a queue.

    The ratio is that of the future load to the present one (1, as it is not forecast yet). While a queue is paused,
    less arrives than there is.
    """
    sensed = observe_rebalancing(target, snapshot, before, now_seconds)
    held_back = any(queue.pauses for queue in snapshot.queues.values())
    more = {"forecast": 1.0, "held_back": held_back}
    return Measurement({**sensed.observation, **more}, sensed.measured, sensed.counters)


def _build_law_node(name: str, node: NodeStatus, closed: bool) -> ObservedNode:
    return ObservedNode(
        name=name,
        capacity=node.capacity_events_per_second * node.busy / DEFAULT_BUSY,
        drained=node.drained,
        state=OFFLINE if closed or node.state is None else node.state,
        # A cordoned node keeps its points: only a node that does not report is lost.
        cordoned=closed and node.state not in SILENT,
    )


def _list_counted_containers(
    queue: QueueStatus, nodes: Mapping[str, NodeStatus], closed: set[str]
) -> dict[str, ContainerStatus]:
    """Return its containers with points, on nodes that report."""
    return {
        name: row
        for name, row in queue.containers.items()
        if row.points and name in nodes and name not in closed and nodes[name].state != OFFLINE
    }


def _queue_rate(containers: Mapping[str, ContainerStatus], nodes: Mapping[str, NodeStatus]) -> float:
    """Return the load of these containers on their nodes, in events/s."""
    rate: float = sum((row.load or 0.0) * nodes[name].capacity_events_per_second for name, row in containers.items())
    return rate


def _smooth_rate(before: Counters | None, queue: str, points: Counters, newest: float) -> float:
    """Smooth the rate with the previous one if that is of as many points: a cordon removes its share."""
    known, key = before or {}, f"points/{queue}"
    old = known.get(f"rate/{queue}") if known.get(key, points[key]) == points[key] else None
    return round(smooth(newest, old, SMOOTHING), 3)


def compute_readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return what judges an effect on the whole plant: the worst reporting node, and its state."""
    heard = [node for node in snapshot.nodes.values() if node.state not in SILENT]
    if not heard:
        return None
    worst = max(heard, key=lambda node: node.utilisation or 0.0)
    return {"worst_utilisation": worst.utilisation, "node_state": worst.state}


def check_measurement(snapshot: Snapshot, now_seconds: float) -> ObservationQuality:
    """Return the age of the plant's oldest measurement that counts, and why no move can be decided on it.

    An OFFLINE node is known to be offline: that is no reason to wait. A node that has missed two beats is in doubt.
    """
    at_seconds = snapshot.at
    if at_seconds is None or not snapshot.nodes:
        return ObservationQuality(None, "no nodes have been observed yet")
    age = abs(now_seconds - at_seconds)
    if (running := [plan for plan in snapshot.plans if plan.state in BEING_EXECUTED]) != []:
        return ObservationQuality(age, f"plan {running[0].id} is being executed")
    for name, node in sorted(snapshot.nodes.items()):
        if node.state == OFFLINE:
            continue
        if node.unreadable is not None:
            return ObservationQuality(None, f"the heartbeat of node {name} can't be read ({node.unreadable})")
        if node.age_seconds is None:
            if not _has_points(name, snapshot):  # declared, and never started
                continue
            return ObservationQuality(None, f"node {name} has not reported yet")
        if node.stale:
            return ObservationQuality(age, f"node {name} has missed two heartbeats")
    for name, queue in snapshot.queues.items():
        if (silent := _find_unmeasured(queue, snapshot.nodes)) is not None:
            return ObservationQuality(age, f"the container of {name} on {silent} is not measured yet")
    ages = [node.age_seconds or 0.0 for node in snapshot.nodes.values() if node.state != OFFLINE]
    return ObservationQuality(age + max(ages, default=0.0))


def _has_points(node: str, snapshot: Snapshot) -> bool:
    containers = (queue.containers.get(node) for queue in snapshot.queues.values())
    return any(row is not None and row.points for row in containers)


def _find_unmeasured(queue: QueueStatus, nodes: Mapping[str, NodeStatus]) -> str | None:
    """Return a node whose container of the queue has points and no known load, though it reports."""
    for name, row in queue.containers.items():
        if row.points and row.load is None and nodes.get(name, NodeStatus()).state != OFFLINE:
            return name
    return None
