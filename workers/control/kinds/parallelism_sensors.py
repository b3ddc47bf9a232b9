"""What the laws of parallelism observe: the topology of an application, or of a registered plant, in the
snapshot.

A plant whose tasks somebody steers through the control API is unfit for the loops here: they hold, and say
who. And of the loops of one target only one acts: `OWNERS` in their order, so that who puts another law on
auto has it steer, and the law that does so by default steps back until it is no more.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from controllers.design.forecast import is_rejected, missed_events
from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed
from controllers.parallelism import inputs
from controllers.parallelism.measured_topology import Operator, Topology
from queues.errors import BadInput
from workers.control.kinds import pipeline_sensors
from workers.plants.plant import PlantSilent
from workers.plants.registry import UnknownPlant, seen, why_unseen
from workers.plants.topology import of_application, topology_of

# Who acts before whom; the last does so by default.
OWNERS = ("parallelism_queueing", "parallelism_forecast", "parallelism_joint")
ACTING = ("auto", "manual")
# More tasks than cores only wait for one another.
CORES = max(2, len(os.sched_getaffinity(0)))
TARGET_UTILISATION, MOST_DEVIATION = 0.85, 0.3
NOTHING: dict[str, Any] = {"paths": [], "operators": {}}


def queueing(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """See `controllers.parallelism.inputs`."""
    topology, measured = topology_inputs(target, snapshot, now_seconds, "parallelism_queueing")
    return Sensed(NOTHING if topology is None else inputs.queueing(topology), measured, {})


def joint(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """The same, of all operators together, with what is foreseen of what comes to them."""
    topology, measured = topology_inputs(target, snapshot, now_seconds, "parallelism_joint")
    if topology is None:
        return Sensed({"at_seconds": now_seconds, "source_per_second": 0.0, **NOTHING}, measured, {})
    ahead = _ahead(target, snapshot, inputs.source_per_second(topology))
    means, deviations = ahead or ((), ())
    observation = inputs.joint(topology, means, deviations)
    return Sensed({**observation, "at_seconds": now_seconds}, measured, {})


def forecast(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """What one operator would miss in each window foreseen with each number of tasks. A way that rests on
    guesses is not decided on: the deviation may be `MOST_DEVIATION` of what is foreseen."""
    nothing = {"missed": [[0.0]], "current": 1}
    topology, measured = topology_inputs(target, snapshot, now_seconds, "parallelism_forecast")
    if topology is None or measured.invalid:
        return Sensed(nothing, measured, {})
    operator = topology.operators.get(f"{target['application']}/{target['operator']}")
    if operator is None:
        gone = f"the application has no operator {target['operator']}"
        return Sensed(nothing, Measured(measured.age_seconds, gone), {})
    why, missed = _missed(target, snapshot, topology, operator)
    if missed is None:
        return Sensed(nothing, Measured(measured.age_seconds, idle=why), {})
    return Sensed({"missed": missed, "current": min(operator.parallelism, CORES)}, measured, {})


def _missed(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], topology: Topology, operator: Operator
) -> tuple[str, list[list[float]] | None]:
    """Windows by tasks; or why there is nothing to decide on."""
    rate = inputs.rate_per_second(operator, topology.window_seconds)
    service = inputs.service_seconds(operator)
    if rate is None or not service:
        return f"{operator.name} was not measured", None
    ahead = _ahead(target, snapshot, rate)
    if ahead is None:
        return _why_unforeseen(target, snapshot), None
    mean, deviation = (np.asarray(each) for each in ahead)
    if is_rejected(mean, deviation, MOST_DEVIATION):
        share = deviation.sum() / max(mean.sum(), 1e-9)
        return f"the forecast is too uncertain: its deviation is {share:.0%} of its mean", None
    counts = np.arange(1.0, CORES + 1)
    window = snapshot["forecasts"][target["application"]]["window_seconds"]
    return "", missed_events(mean, deviation, counts, TARGET_UTILISATION / service, window).tolist()


def _ahead(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], now_per_second: float
) -> tuple[list[float], list[float]] | None:
    """What is foreseen at the application's queues, as many times as what comes there now: what rules keep,
    and what an operator emits, goes with it."""
    row = (snapshot.get("forecasts") or {}).get(target.get("application")) or {}
    offered = _offered(target, snapshot)
    if not row.get("mean_per_second") or not offered:
        return None
    share = now_per_second / offered
    return tuple([share * each for each in row[name]] for name in ("mean_per_second", "deviation_per_second"))  # type: ignore[return-value]


def _offered(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> float:
    application = pipeline_sensors.application(target, snapshot) or {}
    queues = snapshot.get("queues") or {}
    return sum((queues.get(name) or {}).get("in_per_second") or 0.0 for name in application.get("queues", ()))


def _why_unforeseen(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> str:
    row = (snapshot.get("forecasts") or {}).get(target["application"]) or {}
    return row.get("refused") or "there is no forecast yet, or no arrivals"


def topology_inputs(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], now_seconds: float, law: str | None = None
) -> tuple[Topology | None, Measured]:
    """What there is to decide on, and how good it is for a law."""
    if "plant" in target:
        topology, measured = _of_plant(target["plant"], snapshot, now_seconds)
    else:
        topology, measured = _of_application(target, snapshot, now_seconds)
    if topology is None or measured.invalid:
        return topology, measured
    if (holder := holder_of(target, snapshot, topology) or _owner_before(law, target, snapshot)) is not None:
        return topology, Measured(measured.age_seconds, holder)
    if not inputs.steered_paths(topology):
        return topology, Measured(measured.age_seconds, "there is no operator whose tasks can be set")
    return topology, measured


def holder_of(target: Mapping[str, Any], snapshot: Mapping[str, Any], topology: Topology) -> str | None:
    """Who else steers the tasks, in a sentence: through this console, or at the plant itself."""
    here = ((snapshot.get("plants") or {}).get(target.get("plant")) or {}).get("steered_by")
    holder = here or {"holder": topology.holder, "until": topology.held_until}
    if holder["holder"] is None:
        return None
    until = holder["until"]
    end = "" if until is None else f" until {datetime.fromtimestamp(until, UTC):%H:%M:%S} UTC"
    return f"{holder['holder']} steers the tasks{end}"


def _owner_before(law: str | None, target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> str | None:
    """The loop that acts on this target before one of this law, in a sentence."""
    before = OWNERS[: OWNERS.index(law)] if law in OWNERS else ()
    for name, loop in sorted((snapshot.get("loops") or {}).items()):
        is_same = all(loop["target"].get(key) == target.get(key) for key in ("application", "plant"))
        if loop["law"] in before and loop["mode"] in ACTING and is_same:
            return f"{name} is on {loop['mode']} and steers the tasks; they have one owner"
    return None


def readings(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any] | None:
    """What tasks are judged by: their number, what waits for them, and the slowest path's latency."""
    topology, _ = topology_inputs(target, snapshot, snapshot.get("at") or 0.0)
    if topology is None:
        return None
    steered = inputs.steered(topology)
    latencies = [topology.path_latency_seconds(path) for path in topology.paths.values()]
    return {
        "tasks": sum(each.parallelism for each in steered),
        "backlog_events": sum(inputs.backlog_events(topology, each) for each in steered),
        "latency_seconds": max((each for each in latencies if each is not None), default=None),
        "capacity_per_second": _capacity_per_second(topology),
        "node_state": None,
    }


def operator_readings(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any] | None:
    """What one operator's tasks are judged by."""
    topology, _ = topology_inputs(target, snapshot, snapshot.get("at") or 0.0)
    name = f"{target['application']}/{target['operator']}"
    if topology is None or name not in topology.operators:
        return None
    operator = topology.operators[name]
    return {
        "tasks": operator.parallelism,
        "backlog_events": inputs.backlog_events(topology, operator),
        "node_state": None,
    }


def _capacity_per_second(topology: Topology) -> float | None:
    """What the narrowest operator lets through of what comes from the source, as it is measured now."""
    source, passes = inputs.source_per_second(topology), []
    for operator in inputs.steered(topology):
        rate = inputs.rate_per_second(operator, topology.window_seconds)
        service = inputs.service_seconds(operator)
        if rate and service and source:
            passes.append(operator.parallelism / service * source / rate)
    return min(passes, default=None)


def _of_plant(name: str, snapshot: Mapping[str, Any], now_seconds: float) -> tuple[Topology | None, Measured]:
    at_seconds = snapshot.get("at")
    if at_seconds is None:
        return None, Measured(None, "there is no snapshot yet")
    age = abs(now_seconds - at_seconds)
    try:
        topology = seen(snapshot, name)
    except (UnknownPlant, PlantSilent) as error:
        return None, Measured(age, str(error))
    row = (snapshot.get("plants") or {}).get(name) or {}
    if row.get("error"):
        return topology, Measured(age, why_unseen(name, row))
    # A plant is looked at each 2 s; what was seen within that time is what it is now.
    return topology, Measured(age)


def _of_application(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], now_seconds: float
) -> tuple[Topology | None, Measured]:
    measured = pipeline_sensors.measured(target, snapshot, now_seconds)
    if measured.invalid:
        return None, measured
    try:
        whole = topology_of(snapshot)
    except BadInput as error:
        return None, Measured(measured.age_seconds, str(error))
    return of_application(whole, target["application"]), measured
