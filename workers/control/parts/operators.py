"""What the kinds that set tasks observe and do alike: the topology of an application, or of a registered
plant.

A plant whose tasks somebody steers through the control API gives no valid measurement to the loops here: they
hold, and say who. And of the loops of one target only one acts: `OWNERS` in their order, so that who puts
another law on auto has it steer, and the law that does so by default steps back until it is no more.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import Any

from controllers import catalog
from controllers.framework.guard import Measured
from controllers.parallelism import inputs
from controllers.parallelism.measured_topology import MeasuredTopology
from queues.errors import BadInput, WeirError
from workers.control.parts import applications
from workers.documents.plants import LoadForecast, PlantHolder
from workers.documents.snapshot import Snapshot
from workers.history.load_forecasts import PLANT
from workers.models import LedgerEntry, Loop
from workers.plants.foreign.adapters import has_own_controllers, kinds, plant_named
from workers.plants.orders import why_unreached
from workers.plants.plant import Elastic, Plant, PlantSilent
from workers.plants.registry import LOCAL, UnknownPlant, seen, why_unseen
from workers.plants.topology import of_application, topology_of

# Who acts before whom; the last does so by default.
OWNERS = catalog.ranked()
# More tasks than cores only wait for one another.
CORES = max(2, len(os.sched_getaffinity(0)))
BOUND_SECONDS, OTHERS_MAXIMUM = 15.0, 4
# Of a loop, and of the clock of its kind: a plant may ask for quicker ticks.
INTERVAL_SECONDS, CLOCK_SECONDS = 5, 2
# Of an application: nothing stops for a change, so what is left is not to turn round with every batch.
CALM: Mapping[str, Any] = {"cooldown_seconds": 30.0}
HOLD_INTERVALS = 6.0
GONE = "it is not at work"
NOTHING: dict[str, Any] = {"paths": [], "operators": {}}


def ahead(
    target: Mapping[str, Any], snapshot: Snapshot, now_per_second: float
) -> tuple[list[float], list[float]] | None:
    """The forecast of arrivals at the application's queues, or at the plant, as many times as what comes
    there now: what rules keep, and what an operator emits, goes with it."""
    row, offered = forecast_of(target, snapshot), _offered(target, snapshot)
    if row is None or not row.mean_per_second or not offered:
        return None
    share = now_per_second / offered
    means, deviations = row.mean_per_second, row.deviation_per_second or []
    return [share * each for each in means], [share * each for each in deviations]


def forecast_of(target: Mapping[str, Any], snapshot: Snapshot) -> LoadForecast | None:
    """Of what will be offered to the application, or to the registered plant."""
    name = PLANT + target["plant"] if "plant" in target else target.get("application", "")
    return snapshot.forecasts.get(name)


def decides_ahead(target: Mapping[str, Any], snapshot: Snapshot) -> bool:
    """Whether the joint law plans for the windows of a forecast: for all but plants of quick changes, where
    the next tick is soon enough."""
    plant = snapshot.plants.get(target.get("plant", ""))
    kind = kinds().get(plant.kind) if plant else None
    return kind is None or kind.pace is None


def _offered(target: Mapping[str, Any], snapshot: Snapshot) -> float:
    if "plant" in target:
        plant = snapshot.plants.get(target["plant"])
        return (plant.in_per_second if plant else None) or 0.0
    row, queues = applications.application(target, snapshot), snapshot.queues
    return sum(queues[name].in_per_second or 0.0 for name in (row.queues if row else ()) if name in queues)


def topology_inputs(
    target: Mapping[str, Any], snapshot: Snapshot, now_seconds: float, law: str | None = None
) -> tuple[MeasuredTopology | None, Measured]:
    """What there is to decide on, and how good it is for a law. Idle while others steer the tasks: nothing is
    wrong with what was measured.
    """
    if "plant" in target:
        topology, measured = _of_plant(target["plant"], snapshot, now_seconds)
    else:
        topology, measured = _of_application(target, snapshot, now_seconds)
    if topology is None or measured.invalid:
        return topology, measured
    there = PlantHolder(holder=topology.holder, until=topology.held_until)
    if (holder := holder_of(target, snapshot, there) or _owner_before(law, target, snapshot)) is not None:
        return topology, Measured(measured.age_seconds, idle=holder)
    if (why := why_unreached(snapshot.plants.get(target.get("plant", "")))) is not None:
        return topology, Measured(measured.age_seconds, why)
    if why := next((each.unknown_tasks for each in inputs.steered(topology) if each.unknown_tasks), None):
        return topology, Measured(measured.age_seconds, why)
    if not inputs.steered_paths(topology):
        return topology, Measured(measured.age_seconds, "there is no operator whose tasks can be set")
    return topology, measured


def holder_of(target: Mapping[str, Any], snapshot: Snapshot, there: PlantHolder) -> str | None:
    """Who else steers the tasks, in a sentence: through this console, or (`there`) at the plant itself."""
    plant = snapshot.plants.get(target.get("plant", ""))
    found = plant.steered_by if plant and plant.steered_by else there
    if found.holder is None:
        return None
    until = found.until
    end = "" if until is None else f" until {datetime.fromtimestamp(until, UTC):%H:%M:%S} UTC"
    return f"{found.holder} steers the tasks{end}"


def _owner_before(law: str | None, target: Mapping[str, Any], snapshot: Snapshot) -> str | None:
    """The loop that acts on this target before one of this law, in a sentence."""
    before = OWNERS[: OWNERS.index(law)] if law in OWNERS else ()
    for name, loop in sorted(snapshot.loops.items()):
        is_same = all(loop.target.get(key) == target.get(key) for key in ("application", "plant"))
        if loop.law in before and loop.mode in Loop.ACTING and is_same:
            return f"{name} is on {loop.mode} and steers the tasks; they have one owner"
    return None


def readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """What tasks are judged by: their number, what waits for them, and the slowest path's latency."""
    topology, _ = topology_inputs(target, snapshot, snapshot.at or 0.0)
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


def _capacity_per_second(topology: MeasuredTopology) -> float | None:
    """What the narrowest operator lets through of what comes from the source, as it is measured now."""
    source, passes = inputs.source_per_second(topology), []
    for operator in inputs.steered(topology):
        rate = inputs.rate_per_second(operator, topology.window_seconds)
        service = inputs.service_seconds(operator)
        if rate and service and source:
            passes.append(operator.parallelism / service * source / rate)
    return min(passes, default=None)


def _of_plant(name: str, snapshot: Snapshot, now_seconds: float) -> tuple[MeasuredTopology | None, Measured]:
    at_seconds = snapshot.at
    if at_seconds is None:
        return None, Measured(None, "there is no snapshot yet")
    age = abs(now_seconds - at_seconds)
    try:
        topology = seen(snapshot, name)
    except (UnknownPlant, PlantSilent) as error:
        return None, Measured(age, str(error))
    row = snapshot.plants.get(name)
    if row is not None and row.error:
        return topology, Measured(age, why_unseen(name, row))
    # A plant is observed each 2 s; what was seen within that time is what it is now.
    return topology, Measured(age)


def _of_application(
    target: Mapping[str, Any], snapshot: Snapshot, now_seconds: float
) -> tuple[MeasuredTopology | None, Measured]:
    measured = applications.measured(target, snapshot, now_seconds)
    if measured.invalid:
        return None, measured
    try:
        whole = topology_of(snapshot)
    except BadInput as error:
        return None, Measured(measured.age_seconds, str(error))
    return of_application(whole, target["application"]), measured


def set_tasks(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Give the operators the entry's tasks; at another plant, and keep its own controllers off them."""
    with elastic_of(loop, plant) as elastic:
        elastic.set_parallelism(entry.action["tasks"])


def keep_plant(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """The loop is alive, and goes on steering the other plant's tasks: its own controllers stand still. Where
    another has taken it, the next observation says so. A plant that has none, or gave no valid measurement,
    is not asked: it may be silent, and other loops wait.
    """
    if (entry.observation or {}).get("unfit"):
        return
    if "plant" in loop.target and has_own_controllers(loop.target["plant"]):
        with suppress(WeirError), elastic_of(loop, plant) as elastic:
            elastic.hold(HOLD_INTERVALS * loop.interval_seconds)


def elastic_of(loop: Loop, plant: Plant) -> AbstractContextManager[Elastic]:
    """Whose tasks the loop sets: ours, or those of a registered plant."""
    return plant_named(loop.target.get("plant", LOCAL), plant, f"loop {loop.name}", by_loop=True)
