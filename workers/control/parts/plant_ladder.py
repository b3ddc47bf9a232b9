"""The remedy ladder at an attached plant: remedies for an overload there, as advice.

    workers     more tasks, set by a loop of the plant or a person; exhausted where each overloaded operator
                has its maximum
    throttle    pausing a less important queue, where people can do that at the plant; requires at least two
                queues

Points, nodes, and events of attached plants cannot be moved, added, or dropped from here: the other levels are not
offered. A person chooses the less important queue, since Weir does not know it; the ladder applies nothing. When both
levels are exhausted there is nothing to advise.
"""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Measurement
from controllers.parallelism import inputs
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from controllers.shedding.ladder import LadderObservation
from workers.control.parts.kind import LoopStart, PlantInventory
from workers.control.parts.operators import BOUND_SECONDS, build_topology_inputs
from workers.documents.snapshot import Snapshot
from workers.models import Loop
from workers.plants.foreign.adapters import list_kinds
from workers.plants.foreign.kind import AdapterKind

PAUSE = "pause"  # name of an adapter's intervention
INTERVAL_SECONDS = 5.0
# The plant's loops keep the bound of waiting; a wait this many times longer is an overload.
BACKLOG_BOUNDS, MIN_BACKLOG_SECONDS = 2.0, 10.0
NOTHING_LEFT = "every overloaded operator has its maximum tasks, and no queue can be paused"
NOT_FROM_HERE, NO_PAUSE = "Weir cannot do this at an attached plant", "no other queue can be paused"
NOTHING = LadderObservation(demand_per_second=0.0, capacity_per_second=0.0)
Target = Mapping[str, Any]


def observe_plant(target: Target, snapshot: Snapshot, now_seconds: float) -> Measurement:
    """Return the demand, arrivals, capacity, backlog, and saturation of one plant."""
    topology, measured = build_topology_inputs(target, snapshot, now_seconds)
    if topology is None or measured.invalid or measured.idle:
        return Measurement.of(NOTHING, measured, {})
    came, passes = inputs.compute_source_per_second(topology), _compute_operator_capacity(topology)
    if not passes or not came:
        idle = ObservationQuality(
            measured.age_seconds, idle="no arrivals, or the capacity of the operators is not measured"
        )
        return Measurement.of(NOTHING, idle, {})
    short = [name for name, per_second in passes.items() if per_second < came] or list(passes)
    row = snapshot.plants[target["plant"]]
    is_full = all(_is_at_most(topology.operators[name], list_kinds().get(row.kind)) for name in short)
    can_pause = _can_pause(topology, list_kinds().get(row.kind))
    unavailable = dict.fromkeys(("rebalance", "nodes", "shed"), NOT_FROM_HERE)
    if not can_pause:
        unavailable["throttle"] = NO_PAUSE
    if is_full and not can_pause:
        measured = ObservationQuality(measured.age_seconds, idle=NOTHING_LEFT)
    observation = LadderObservation(
        demand_per_second=round(came, 3),
        came_per_second=round(came, 3),
        capacity_per_second=round(min(passes.values()), 3),
        backlog_seconds=round(compute_backlog_seconds(topology), 3),
        saturated={"workers": is_full},
        unavailable=unavailable,
    )
    return Measurement.of(observation, measured, {})


def _compute_operator_capacity(topology: MeasuredTopology) -> dict[str, float]:
    """Return operator → source events/s that it can process."""
    source, passes = inputs.compute_source_per_second(topology), {}
    for operator in inputs.list_steered_operators(topology):
        rate = inputs.compute_rate_per_second(operator, topology.window_seconds)
        service = inputs.compute_service_seconds(operator)
        if rate and service and source:
            passes[operator.name] = operator.parallelism / service * source / rate
    return passes


def compute_backlog_seconds(topology: MeasuredTopology) -> float:
    """Return the longest wait before any adjustable operator."""
    steered = {operator.name for operator in inputs.list_steered_operators(topology)}
    waits = [link.latency_seconds for link in topology.links if link.target in steered]
    return max((wait for wait in waits if wait is not None), default=0.0)


def _is_at_most(operator: MeasuredOperator, kind: AdapterKind | None) -> bool:
    """Return whether the operator has its maximum tasks: that of the plant, or the initial maximum of its loops."""
    usual = operator.maximum if kind is None or kind.pace is None else kind.pace.maximum
    return operator.parallelism >= min(operator.maximum, usual)


def _can_pause(topology: MeasuredTopology, kind: AdapterKind | None) -> bool:
    can = kind is not None and any(intervention.name == PAUSE for intervention in kind.interventions)
    return can and sum(operator.kind == "source" for operator in topology.operators.values()) > 1


def collect_readings(target: Target, snapshot: Snapshot) -> dict[str, Any] | None:
    """Return how far behind the plant is."""
    topology, _ = build_topology_inputs(target, snapshot, snapshot.at or 0.0)
    if topology is None:
        return None
    return {"wait_seconds": compute_backlog_seconds(topology), "node_state": None}


def build_loop_starts(law: str, present: PlantInventory) -> dict[str, LoopStart]:
    """Return a start for each plant with anything adjustable."""
    return {
        f"{law}/plant:{name}": LoopStart(
            {"plant": name},
            Loop.Mode.ADVISE,
            {"cap": "throttle", "backlog_bound_seconds": _read_bound_seconds(kind)},
            interval_seconds=INTERVAL_SECONDS,
        )
        for name, kind in present.plants.items()
    }


def _read_bound_seconds(kind: AdapterKind) -> float:
    bound = BOUND_SECONDS if kind.pace is None else kind.pace.bound_seconds
    return max(MIN_BACKLOG_SECONDS, BACKLOG_BOUNDS * bound)
