"""Observations of the plant for the laws that place containers, and readings that judge their effects."""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Counters, Measurement
from controllers.rebalancing.allocation import ObservedNode, ObservedQueue, PlantObservation
from controllers.rebalancing.law import RebalancingParameters
from controllers.rebalancing.node_scaling import ACTS
from queues.nodes.node_state import OFFLINE, SILENT, smooth
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.history.expected_load import ExpectedLoad, find_peak
from workers.models import Loop, Plan
from workers.placement.plans import BEING_EXECUTED

# Interval and cool-down of the loops; the next decision can be made after both.
REBALANCING_SECONDS, NODE_SCALING_SECONDS = (15, 60), (60, 600)
SMOOTHING = 0.5  # the weight of the newest rate, from decision to decision
DEFAULT_BUSY = RebalancingParameters().busy
NOT_APPROVED = (Plan.State.PROPOSED, Plan.State.REJECTED, Plan.State.VOID)
LOAD_CHANGE = 0.1
LOAD_RATIO = 1.25
MAX_GROWTH = 1_000.0
Observation = Mapping[str, Any]


def observe_rebalancing(
    target: Mapping[str, Any],
    snapshot: Snapshot,
    before: Counters | None,
    now_seconds: float,
    horizon_seconds: float = sum(REBALANCING_SECONDS),
) -> Measurement:
    """Return the nodes and the queues for the rebalancing law.

    capacity [events/s] = declared capacity * busy / the law's default for busy: each node's own threshold, or its
    override, then applies where the law applies its single one. rate [events/s] of a queue = Σ over its containers of
    load * declared capacity: events that cost more than others count as more of them. Rates are smoothed over decisions
    (half the newest, half before), and start again if other nodes count than before. A cordoned node is shown to the
    law as OFFLINE, without the load it keeps, so that it neither gives nor gets.

    measured, measured_rate [events/s]: the same with the measured capacity of the nodes, if that is lower.

    expected [events/s]: the rate of a queue at the highest load that is forecast within the horizon.
    """
    counters = _measure_queues(snapshot, before)
    expected = _expect_load(snapshot, counters, horizon_seconds, now_seconds)
    is_measured = any(node.measured_capacity_per_second for node in snapshot.nodes.values())
    observation = PlantObservation(
        nodes=_build_law_nodes(snapshot),
        queues=[
            ObservedQueue(
                name=name,
                rate=counters[f"rate/{name}"],
                measured_rate=counters[f"measured/{name}"] if is_measured else None,
                containers={n: row.points for n, row in queue.containers.items() if row.points},
                minimum_containers=min(queue.minimum_containers, len(snapshot.nodes)) or 1,
                expected=None if expected.at is None else round(expected.rates[name], 3),
            )
            for name, queue in sorted(snapshot.queues.items())
        ],
        forecast_at=expected.at,
    )
    valid = check_measurement(snapshot, now_seconds)
    return Measurement.of(observation, valid, dict(before or {}) if valid.invalid else counters)


def observe_node_scaling(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return what `observe_rebalancing` sees, the load ratio, and whether people have paused a queue.

    The load ratio is the highest expected load until the next decision, divided by the current load. While a queue is
    paused, fewer events arrive than are offered.
    """
    horizon = sum(NODE_SCALING_SECONDS)
    sensed = observe_rebalancing(target, snapshot, before, now_seconds, horizon)
    expected = _expect_load(snapshot, _measure_queues(snapshot, before), horizon, now_seconds)
    queues = sensed.observation["queues"]
    load = sum(queue["rate"] for queue in queues)
    growth = min(sum(expected.rates.values()) / load, MAX_GROWTH) if load else 1.0
    more = {"forecast": round(growth, 4), "held_back": any(queue.pauses for queue in snapshot.queues.values())}
    missing = {"forecast_missing": expected.missing} if expected.missing else {}
    # The law applies the ratio to the current rates.
    current = {"queues": [{**queue, "expected": None} for queue in queues]}
    return Measurement({**sensed.observation, **current, **more, **missing}, sensed.measured, sensed.counters)


def _measure_queues(snapshot: Snapshot, before: Counters | None) -> dict[str, float]:
    """Return each queue's smoothed load and arrivals, and the points that count."""
    nodes = snapshot.nodes
    closed = _list_cordoned(snapshot)
    known, counters = before or {}, dict[str, float]()
    for name, queue in snapshot.queues.items():
        counting = {
            node: row
            for node, row in queue.containers.items()
            if row.points and node in nodes and node not in closed and nodes[node].state != OFFLINE
        }
        points = counters[f"points/{name}"] = float(sum(row.points for row in counting.values()))
        load = sum((row.load or 0.0) * nodes[node].capacity_events_per_second for node, row in counting.items())
        measured = sum((row.load or 0.0) * nodes[node].usable_per_second for node, row in counting.items())
        is_same = known.get(f"points/{name}", points) == points
        arrivals = queue.in_per_second or 0.0
        for kind, value in (("rate", load), ("measured", measured), ("arrivals", arrivals)):
            key = f"{kind}/{name}"
            counters[key] = round(smooth(value, known.get(key) if is_same else None, SMOOTHING), 3)
    return counters


def _expect_load(snapshot: Snapshot, counters: Counters, horizon_seconds: float, now_seconds: float) -> ExpectedLoad:
    rates, arrivals = (
        {name: counters[f"{kind}/{name}"] for name in sorted(snapshot.queues)} for kind in ("rate", "arrivals")
    )
    return find_peak(snapshot, rates, arrivals, horizon_seconds, now_seconds)


def _list_cordoned(snapshot: Snapshot) -> set[str]:
    return {name for name, node in snapshot.nodes.items() if node.cordoned and not node.drained}


def _build_law_nodes(snapshot: Snapshot) -> list[ObservedNode]:
    closed = _list_cordoned(snapshot)
    return [_build_law_node(name, node, name in closed) for name, node in sorted(snapshot.nodes.items())]


def _build_law_node(name: str, node: NodeStatus, closed: bool) -> ObservedNode:
    return ObservedNode(
        name=name,
        capacity=node.capacity_events_per_second * node.busy / DEFAULT_BUSY,
        measured=node.measured_capacity_per_second and node.measured_capacity_per_second * node.busy / DEFAULT_BUSY,
        drained=node.drained,
        state=OFFLINE if closed or node.state is None else node.state,
        # A cordoned node keeps its points: only a node that does not report is lost.
        cordoned=closed and node.state not in SILENT,
    )


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
            containers = (queue.containers.get(name) for queue in snapshot.queues.values())
            if not any(row is not None and row.points for row in containers):  # declared, and never started
                continue
            return ObservationQuality(None, f"node {name} has not reported yet")
        if node.stale:
            return ObservationQuality(age, f"node {name} has missed two heartbeats")
    for name, queue in snapshot.queues.items():
        if (silent := _find_unmeasured(queue, snapshot.nodes)) is not None:
            return ObservationQuality(age, f"the container of {name} on {silent} is not measured yet")
    ages = [node.age_seconds or 0.0 for node in snapshot.nodes.values() if node.state != OFFLINE]
    return ObservationQuality(age + max(ages, default=0.0))


def _find_unmeasured(queue: QueueStatus, nodes: Mapping[str, NodeStatus]) -> str | None:
    """Return a node whose container of the queue has points and no known load, though it reports."""
    for name, row in queue.containers.items():
        if row.points and row.load is None and nodes.get(name, NodeStatus()).state != OFFLINE:
            return name
    return None


def list_declined(loop: Loop, mode: str, observation: Observation) -> dict[str, Any]:
    """Return {"declined": {act: True}} of an advising loop; a loop that acts automatically asks nobody.

    People are not asked the same again: a proposal counts as declined while it waits, and after it was rejected,
    expired, or void, until the plant has changed: its nodes, which of them are present, the points, or the load by more
    than `LOAD_CHANGE` of what is in use and a quarter of what it was.
    """
    if mode != Loop.Mode.ADVISE:
        return {}
    declined = {}
    for act in ACTS:
        plan = Plan.objects.filter(law=loop.law, kind=act, owner=None).select_related("entry").order_by("-pk").first()
        if plan is None or plan.state not in NOT_APPROVED or plan.entry is None:
            continue
        if not has_changed(plan.entry.observation, observation):
            declined[act] = True
    return {"declined": declined}


def has_changed(before: Observation, now: Observation) -> bool:
    """Return whether the plant that node scaling observed differs so that another answer may be given."""
    if _extract_plant_shape(before) != _extract_plant_shape(now):
        return True
    loads = sorted(sum(float(queue["rate"]) for queue in plant["queues"]) for plant in (before, now))
    capacity = sum(float(node["capacity"]) for node in now["nodes"])
    return loads[1] - loads[0] > LOAD_CHANGE * capacity and loads[1] > LOAD_RATIO * loads[0]


def _extract_plant_shape(observation: Observation) -> object:
    """Return what of a plant does not depend on its load: present nodes, and points."""
    nodes = sorted(
        (node["name"], node["capacity"], node["drained"], node["state"] == OFFLINE) for node in observation["nodes"]
    )
    return nodes, sorted((queue["name"], sorted(queue["containers"].items())) for queue in observation["queues"])
