"""What the laws of parallelism observe: the topology of an application, or of a registered plant, in the
snapshot.

A plant whose tasks somebody steers through the control API is unfit for the loops here: they hold, and say
who.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from controllers import topology_sight
from controllers.guard import Measured
from controllers.measured_topology import Topology
from queues.errors import BadInput
from workers import pipeline_sensors
from workers.plants.plant import PlantSilent
from workers.plants.registry import UnknownPlant, seen, why_unseen
from workers.plants.topology import of_application, topology_of
from workers.sensed import Counters, Sensed

NOTHING: dict[str, Any] = {"paths": [], "operators": {}}


def queueing(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """See `controllers.topology_sight`."""
    topology, measured = sight(target, snapshot, now_seconds)
    return Sensed(NOTHING if topology is None else topology_sight.queueing(topology), measured, {})


def joint(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """The same, of all operators together."""
    topology, measured = sight(target, snapshot, now_seconds)
    if topology is None:
        return Sensed({"at_seconds": now_seconds, "source_per_second": 0.0, **NOTHING}, measured, {})
    return Sensed({**topology_sight.joint(topology), "at_seconds": now_seconds}, measured, {})


def sight(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], now_seconds: float
) -> tuple[Topology | None, Measured]:
    """What there is to decide on, and how good it is."""
    if "plant" in target:
        topology, measured = _of_plant(target["plant"], snapshot, now_seconds)
    else:
        topology, measured = _of_application(target, snapshot, now_seconds)
    if topology is None or measured.unfit:
        return topology, measured
    if (holder := holder_of(target, snapshot, topology)) is not None:
        return topology, Measured(measured.age_seconds, holder)
    if not topology_sight.steered_paths(topology):
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


def readings(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any] | None:
    """What tasks are judged by: their number, what waits for them, and the slowest path's latency."""
    topology, _ = sight(target, snapshot, snapshot.get("at") or 0.0)
    if topology is None:
        return None
    steered = topology_sight.steered(topology)
    latencies = [topology.path_latency_seconds(path) for path in topology.paths.values()]
    return {
        "tasks": sum(each.parallelism for each in steered),
        "backlog_events": sum(topology_sight.backlog_events(topology, each) for each in steered),
        "latency_seconds": max((each for each in latencies if each is not None), default=None),
        "node_state": None,
    }


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
    if measured.unfit:
        return None, measured
    try:
        whole = topology_of(snapshot)
    except BadInput as error:
        return None, Measured(measured.age_seconds, str(error))
    return of_application(whole, target["application"]), measured
