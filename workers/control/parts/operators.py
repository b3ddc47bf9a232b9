"""Observations and actions of the kinds that set tasks: the topology of an application or a registered plant.

A plant whose tasks are set through the control API gives no valid measurement to the loops here: they hold, and name
the controller. Only one loop acts on each target: the order of `OWNERS` decides, so that a law that a person sets to
auto takes precedence, and the law that acts by default steps back until the other stops.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from common.errors import BadInput, WeirError
from controllers import catalog
from controllers.framework.guard import ObservationQuality
from controllers.parallelism import inputs
from controllers.parallelism.advice_value import AdvisedOperator
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.control.parts import applications
from workers.control.parts.kind import AdviceMeasure, Document
from workers.documents.plants import LoadForecast, PlantHolder
from workers.documents.snapshot import Snapshot
from workers.history.forecasts import PLANT
from workers.models import LedgerEntry, Loop
from workers.plants.foreign.adapters import has_own_controllers, list_kinds, open_plant
from workers.plants.orders import explain_unreached
from workers.plants.plant import ElasticPlant, Plant, PlantUnavailable
from workers.plants.registry import LOCAL, UnknownPlant, explain_unseen, find_topology
from workers.plants.topology import MAX_TASKS, build_application_topology, build_topology

# Precedence of the laws that act; the last one acts by default.
OWNERS = catalog.list_ranked_laws()
UNREPORTED_CORES = 2  # default number of cores of older pipeline versions, which don't report it
BOUND_SECONDS, OTHERS_MAXIMUM = 15.0, 4
# Settings of a loop and the clock of its kind: a plant may request faster ticks.
INTERVAL_SECONDS, CLOCK_SECONDS = 5, 2
# Settings for an application: a change stops nothing, so the remaining concern is not to reverse direction
# with every batch.
CALM: Mapping[str, Any] = {"cooldown_seconds": 30.0}
HOLD_INTERVALS = 6.0
GONE = "the application or plant is not running"


def forecast_arrivals(
    target: Mapping[str, Any], snapshot: Snapshot, now_per_second: float
) -> tuple[list[float], list[float]] | None:
    """Return the forecast of arrivals at the application's queues or the plant.

    It is relative to the present arrivals: the events that rules keep and that operators emit scale with it.
    """
    row, offered = forecast_of(target, snapshot), _compute_offered(target, snapshot)
    if row is None or not row.mean_per_second or not offered:
        return None
    share = now_per_second / offered
    means, deviations = row.mean_per_second, row.deviation_per_second or []
    return [share * mean for mean in means], [share * deviation for deviation in deviations]


def forecast_of(target: Mapping[str, Any], snapshot: Snapshot) -> LoadForecast | None:
    """Return the forecast of the load offered to the application or the registered plant."""
    name = PLANT + target["plant"] if "plant" in target else target.get("application", "")
    return snapshot.forecasts.get(name)


def decides_ahead(target: Mapping[str, Any], snapshot: Snapshot) -> bool:
    """Return whether the joint law plans for the windows of a forecast.

    It does so except at plants with quick changes, where the next tick is soon enough.
    """
    plant = snapshot.plants.get(target.get("plant", ""))
    kind = list_kinds().get(plant.kind) if plant else None
    return kind is None or kind.pace is None


def _compute_offered(target: Mapping[str, Any], snapshot: Snapshot) -> float:
    if "plant" in target:
        plant = snapshot.plants.get(target["plant"])
        return (plant.in_per_second if plant else None) or 0.0
    row, queues = applications.find_application(target, snapshot), snapshot.queues
    return sum(queues[name].in_per_second or 0.0 for name in (row.queues if row else ()) if name in queues)


def build_topology_inputs(
    target: Mapping[str, Any], snapshot: Snapshot, now_seconds: float, law: str | None = None
) -> tuple[MeasuredTopology | None, ObservationQuality]:
    """Return the topology to decide on, and its quality for a law.

    The observation is idle while other controllers set the tasks: the measurement itself is valid.
    """
    if "plant" in target:
        topology, measured = _observe_plant(target["plant"], snapshot, now_seconds)
    else:
        topology, measured = _observe_application(target, snapshot, now_seconds)
    if topology is None or measured.invalid:
        return topology, measured
    there = PlantHolder(holder=topology.holder, until=topology.held_until)
    if (holder := describe_holder(target, snapshot, there) or _describe_prior_loop(law, target, snapshot)) is not None:
        return topology, ObservationQuality(measured.age_seconds, idle=holder)
    if (why := explain_unreached(snapshot.plants.get(target.get("plant", "")))) is not None:
        return topology, ObservationQuality(measured.age_seconds, why)
    if why := next(
        (
            list_steered_operator.unknown_tasks
            for list_steered_operator in inputs.list_steered_operators(topology)
            if list_steered_operator.unknown_tasks
        ),
        None,
    ):
        return topology, ObservationQuality(measured.age_seconds, why)
    if not inputs.list_steered_paths(topology):
        return topology, ObservationQuality(measured.age_seconds, "no operator has tasks that can be set")
    return topology, measured


def describe_holder(target: Mapping[str, Any], snapshot: Snapshot, there: PlantHolder) -> str | None:
    """Return a sentence about another controller of the tasks.

    It sets them through this console or, with `there`, at the plant itself.
    """
    plant = snapshot.plants.get(target.get("plant", ""))
    holder = plant.steered_by if plant and plant.steered_by else there
    if holder.holder is None:
        return None
    until = holder.until
    end = "" if until is None else f" until {datetime.fromtimestamp(until, UTC):%H:%M:%S} UTC"
    return f"{holder.holder} controls the tasks{end}"


def _describe_prior_loop(law: str | None, target: Mapping[str, Any], snapshot: Snapshot) -> str | None:
    """Return a sentence about the loop that acts on this target with precedence over this law's loop."""
    before = OWNERS[: OWNERS.index(law)] if law in OWNERS else ()
    for name, loop in sorted(snapshot.loops.items()):
        is_same = all(loop.target.get(key) == target.get(key) for key in ("application", "plant"))
        if loop.law in before and loop.mode in Loop.ACTING and is_same:
            return f"loop {name} (mode {loop.mode}) already controls the tasks"
    return None


def collect_readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which tasks are judged: their number, their backlog, and the slowest path's latency."""
    topology, _ = build_topology_inputs(target, snapshot, snapshot.at or 0.0)
    if topology is None:
        return None
    steered = inputs.list_steered_operators(topology)
    latencies = [topology.compute_path_latency_seconds(path) for path in topology.paths.values()]
    return {
        "tasks": sum(name.parallelism for name in steered),
        "backlog_events": sum(inputs.estimate_backlog_events(topology, name) for name in steered),
        "latency_seconds": max((latency for latency in latencies if latency is not None), default=None),
        "capacity_per_second": _compute_capacity_per_second(topology),
        "node_state": None,
    }


def _compute_capacity_per_second(topology: MeasuredTopology) -> float | None:
    """Return the rate of source events that the bottleneck operator can process, as measured now."""
    source, passes = inputs.compute_source_per_second(topology), []
    for operator in inputs.list_steered_operators(topology):
        rate = inputs.compute_rate_per_second(operator, topology.window_seconds)
        service = inputs.compute_service_seconds(operator)
        if rate and service and source:
            passes.append(operator.parallelism / service * source / rate)
    return min(passes, default=None)


def _observe_plant(
    name: str, snapshot: Snapshot, now_seconds: float
) -> tuple[MeasuredTopology | None, ObservationQuality]:
    at_seconds = snapshot.at
    if at_seconds is None:
        return None, ObservationQuality(None, "no snapshot yet")
    age = abs(now_seconds - at_seconds)
    try:
        topology = find_topology(snapshot, name)
    except (UnknownPlant, PlantUnavailable) as error:
        return None, ObservationQuality(age, str(error))
    row = snapshot.plants.get(name)
    if row is not None and row.error:
        return topology, ObservationQuality(age, explain_unseen(name, row))
    # A plant is observed every 2 s; an observation within that time is current.
    return topology, ObservationQuality(age)


def _observe_application(
    target: Mapping[str, Any], snapshot: Snapshot, now_seconds: float
) -> tuple[MeasuredTopology | None, ObservationQuality]:
    measured = applications.check_measurement(target, snapshot, now_seconds)
    if measured.invalid:
        return None, measured
    try:
        whole = build_topology(snapshot)
    except BadInput as error:
        return None, ObservationQuality(measured.age_seconds, str(error))
    topology, most = build_application_topology(whole, target["application"]), count_useful_tasks(snapshot)
    operators = {
        name: operator if operator.fixed else replace(operator, maximum=min(operator.maximum, most))
        for name, operator in topology.operators.items()
    }
    return replace(topology, operators=operators), measured


def count_useful_tasks(snapshot: Snapshot) -> int:
    """Return the maximum number of tasks that can work at the same time: the number of Spark's cores."""
    return min(MAX_TASKS, snapshot.pipeline.cores or UNREPORTED_CORES)


def set_tasks(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Set the operators' tasks; at an attached plant, also keep its own controllers stopped."""
    with open_elastic(loop, plant) as elastic:
        elastic.set_parallelism(entry.action["tasks"])


def keep_plant(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Keep an attached plant's own controllers stopped while the loop controls its tasks.

    If another controller has taken over, the next observation says so. A plant without controllers, or without a valid
    measurement, is not called: it may be silent, and other loops wait.
    """
    if (entry.observation or {}).get("unfit"):
        return
    if "plant" in loop.target and has_own_controllers(loop.target["plant"]):
        with suppress(WeirError), open_elastic(loop, plant) as elastic:
            elastic.hold(HOLD_INTERVALS * loop.interval_seconds)


def open_elastic(loop: Loop, plant: Plant) -> AbstractContextManager[ElasticPlant]:
    """Return the object whose tasks the loop sets: a local application or a registered plant."""
    return open_plant(loop.target.get("plant", LOCAL), plant, f"loop {loop.name}", by_loop=True)


def _list_advised_tasks(observed: Document, action: Document, terms: Document) -> dict[str, AdvisedOperator]:
    """Return the tasks of each operator and the advised ones; nothing if the arrivals of one are not known."""
    rows, advised = observed.get("operators") or {}, action.get("tasks", {})
    rates = {name: _find_arrival_rate(row) for name, row in rows.items()}
    return {
        name: AdvisedOperator(
            tasks=row["tasks"],
            advised=advised.get(name, row["tasks"]),
            rate_per_second=rates[name] or 0.0,
            service_seconds=row["service_seconds"] or 0.0,
            waiting_events=row.get("backlog_events"),
            variability=row.get("variability", 1.0),
        )
        for name, row in (rows.items() if None not in rates.values() else ())
    }


def _find_arrival_rate(row: Document) -> float | None:
    """Return the arrival rate of the operator from either law's record."""
    if row.get("service_seconds") is None:
        return None
    interval = row.get("arrival_interval_seconds")
    rate = row.get("rate_per_second", row["tasks"] / interval if interval else None)
    return None if rate is None else float(rate)


TASK_ADVICE = AdviceMeasure("task", _list_advised_tasks)
