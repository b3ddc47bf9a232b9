"""The cheapest path of one operator's tasks through the forecast, for each operator of each application.

The loops advise until a person trusts them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from controllers.design.forecast import compute_missed_events, is_rejected
from controllers.framework.guard import ObservationQuality
from controllers.framework.reason import format_count, format_percent
from controllers.framework.sensed import Counters, Measurement
from controllers.parallelism import inputs
from controllers.parallelism.forecast_law import LAW, ForecastObservation
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from workers.control.parts import kind, operators
from workers.control.parts.applications import find_application
from workers.documents.snapshot import Snapshot
from workers.history.forecasts import WINDOW_SECONDS
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant
from workers.steering.scope import list_active_loops

TARGET_UTILISATION, MAX_DEVIATION = 0.85, 0.3


def measure_target(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the events that one operator would miss in each forecast window with each number of tasks.

    There is no decision on an unreliable forecast: its deviation may be at most `MAX_DEVIATION` of the forecast.
    """
    nothing = ForecastObservation(missed=((0.0,),), current=1)
    topology, measured = operators.build_topology_inputs(target, snapshot, now_seconds, LAW.name)
    if topology is None or measured.invalid or measured.idle:
        return Measurement.of(nothing, measured, {})
    operator = topology.operators.get(f"{target['application']}/{target['operator']}")
    if operator is None:
        gone = f"the application has no operator {target['operator']}"
        return Measurement.of(nothing, ObservationQuality(measured.age_seconds, gone), {})
    why, missed = _compute_missed(target, snapshot, topology, operator)
    if missed is None:
        return Measurement.of(nothing, ObservationQuality(measured.age_seconds, idle=why), {})
    current = min(operator.parallelism, operators.count_useful_tasks(snapshot))
    seen = ForecastObservation(missed=tuple(map(tuple, missed)), current=current, first=1)
    return Measurement.of(seen, measured, {})


def _compute_missed(
    target: Mapping[str, Any], snapshot: Snapshot, topology: MeasuredTopology, operator: MeasuredOperator
) -> tuple[str, list[list[float]] | None]:
    """Return the missed events of each window by number of tasks, or why there is nothing to decide on."""
    rate = inputs.compute_rate_per_second(operator, topology.window_seconds)
    service = inputs.compute_service_seconds(operator)
    if rate is None or not service:
        return f"{operator.name} was not measured", None
    expected = operators.forecast_arrivals(target, snapshot, rate)
    if expected is None:
        return _explain_no_forecast(target, snapshot), None
    mean, deviation = (np.asarray(window_rate) for window_rate in expected)
    if is_rejected(mean, deviation, MAX_DEVIATION):
        share = deviation.sum() / max(mean.sum(), 1e-9)
        return (f"the forecast is too uncertain: its standard deviation is {format_percent(share)} of its mean", None)
    counts = np.arange(1.0, operators.count_useful_tasks(snapshot) + 1)
    window = snapshot.forecasts[target["application"]].window_seconds
    return "", compute_missed_events(mean, deviation, counts, TARGET_UTILISATION / service, window).tolist()


def _explain_no_forecast(target: Mapping[str, Any], snapshot: Snapshot) -> str:
    row = snapshot.forecasts.get(target["application"])
    return (row.refused if row else None) or "no forecast yet, or no arrivals"


def collect_readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which one operator's tasks are judged."""
    topology, _ = operators.build_topology_inputs(target, snapshot, snapshot.at or 0.0)
    name = f"{target['application']}/{target['operator']}"
    if topology is None or name not in topology.operators:
        return None
    operator = topology.operators[name]
    return {
        "tasks": operator.parallelism,
        "backlog_events": inputs.estimate_backlog_events(topology, operator),
        "node_state": None,
    }


def set_operator(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Give one operator the entry's tasks."""
    name = f"{loop.target['application']}/{loop.target['operator']}"
    plant.set_parallelism({name: int(entry.action["tasks"])})


def list_targets(present: kind.PlantInventory) -> kind.Targets:
    """Return one target for each operator of each running application."""
    starts = {
        f"{LAW.name}/{name}/{operator}": kind.LoopStart({"application": name, "operator": operator})
        for name in present.applications
        for operator in _list_operators(name, present)
    }
    return kind.Targets(starts, operators.GONE)


def _list_operators(name: str, present: kind.PlantInventory) -> Iterable[str]:
    """Return the operators in the snapshot; while it shows none, those of the existing loops."""
    row = find_application({"application": name}, present.snapshot)
    if row is not None and row.operators:
        return list(row.operators)
    loops = list_active_loops().filter(law=LAW.name, target__application=name)
    return [loop.target["operator"] for loop in loops]


def _format_tasks(action: Mapping[str, Any]) -> str:
    """Return the tasks of the next window; the loop's page shows the whole path."""
    return format_count(action["tasks"], "task")


KIND = kind.LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    actuator=set_operator,
    targets=list_targets,
    interval_seconds=operators.INTERVAL_SECONDS,
    # An event that is missed costs as much as one task for one second.
    defaults=kind.LoopDefaults(
        Loop.Mode.ADVISE, {"cost_task": WINDOW_SECONDS, "cost_change": WINDOW_SECONDS}, operators.CALM
    ),
    display=kind.Display(
        kind.Lanes("Events missed", "Tasks", "set", has_reference=False),
        of_each="operator of an application",
        purpose="Chooses the number of tasks of an operator that has the lowest cost over the forecast.",
        formula=(
            "minimize Σ cost_missed · missed + cost_task · tasks + cost_change · changes over "
            "the windows of the forecast"
        ),
        main=("cost_missed", "cost_task", "cost_change", "minimum"),
        desired=lambda observation, action: {"tasks": action.get("tasks", observation["current"])},
        brief=_format_tasks,
        changes="tasks",
        past=lambda action: f"set {_format_tasks(action)}",
        title="forecast parallelism",
        about="lowest cost over the forecast",
    ),
    tuning=kind.LoopTuning(scenario="elasticity", advice=operators.TASK_ADVICE),
)
