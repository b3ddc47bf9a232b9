"""The tasks of all operators together, ahead of the forecast arrivals.

The loop controls local applications from the start: rescaling costs them nothing, since it happens between two batches.
At attached plants it advises until a person trusts it.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from controllers.framework.sensed import Counters, Measurement
from controllers.parallelism import inputs
from controllers.parallelism.joint_law import LAW, observe
from controllers.parallelism.needs import JointObservation
from workers.control.parts import operators
from workers.control.parts.kind import (
    Display,
    Lanes,
    LoopKind,
    LoopStart,
    LoopTuning,
    PlantInventory,
    Targets,
    compute_tasks_in_force,
    describe_tasks,
)
from workers.documents.snapshot import Snapshot
from workers.history.forecasts import WINDOW_SECONDS
from workers.models import Loop
from workers.plants.foreign.kind import PlantPace
from workers.plants.topology import MAX_TASKS

OWN: Mapping[str, Any] = {
    "bound_seconds": operators.BOUND_SECONDS,
    "maximum": MAX_TASKS,
    "deadline_seconds": operators.BOUND_SECONDS,
    "pause_seconds": 0.0,
    "change_seconds": 20.0,
    "window_seconds": WINDOW_SECONDS,
    "interval_seconds": WINDOW_SECONDS,
}
OTHERS: Mapping[str, Any] = {"bound_seconds": operators.BOUND_SECONDS, "maximum": operators.OTHERS_MAXIMUM}


def measure_target(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the observation of all operators and the forecast of their arrivals."""
    topology, measured = operators.build_topology_inputs(target, snapshot, now_seconds, LAW.name)
    if topology is None:
        nothing = JointObservation(at_seconds=now_seconds, source_per_second=0.0, paths=(), operators={})
        return Measurement.of(nothing, measured, {})
    source_per_second = inputs.compute_source_per_second(topology)
    foreseen = (
        operators.forecast_arrivals(target, snapshot, source_per_second)
        if operators.decides_ahead(target, snapshot)
        else None
    )
    means, deviations = foreseen or ((), ())
    return Measurement.of(replace(observe(topology, means, deviations), at_seconds=now_seconds), measured, {})


def list_targets(present: PlantInventory) -> Targets:
    """Return the running applications (at most one task per core of Spark) and the registered plants."""
    here = {
        f"{LAW.name}/{name}": LoopStart(
            {"application": name}, parameters=OWN, guard=operators.CALM, interval_seconds=operators.INTERVAL_SECONDS
        )
        for name in present.applications
    }
    elsewhere = {
        f"{LAW.name}/plant:{name}": LoopStart(
            {"plant": name},
            Loop.Mode.ADVISE,
            OTHERS if kind.pace is None else _build_quick_settings(kind.pace),
            interval_seconds=operators.INTERVAL_SECONDS if kind.pace is None else kind.pace.tick_seconds,
        )
        for name, kind in present.plants.items()
    }
    return Targets({**here, **elsewhere}, operators.GONE)


def _build_quick_settings(pace: PlantPace) -> dict[str, Any]:
    """Return settings for quick changes.

    Twice the bound is too late, and both the interval of decisions and the horizon are one tick.
    """
    return {
        "bound_seconds": pace.bound_seconds,
        "maximum": pace.maximum,
        "missed_cost": pace.missed_cost,
        "deadline_seconds": 2 * pace.bound_seconds,
        "pause_seconds": pace.pause_seconds,
        "change_seconds": pace.change_seconds,
        "window_seconds": pace.tick_seconds,
        "interval_seconds": pace.tick_seconds,
    }


KIND = LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=operators.collect_readings,
    actuator=operators.set_tasks,
    keeper=operators.keep_plant,
    targets=list_targets,
    interval_seconds=operators.CLOCK_SECONDS,
    display=Display(
        Lanes("Latency of the slowest path, s", "Tasks", "set", bounded=True),
        of_each="application, registered plant",
        purpose=("Chooses the task counts of all operators together, before events arrive, to keep the latency bound."),
        formula=(
            "minimize tasks + missed_cost · events missed, over the forecast's spread, such "
            "that the mean keeps target_utilisation and latency ≤ bound_seconds"
        ),
        main=("bound_seconds", "target_utilisation", "maximum", "missed_cost", "tolerance"),
        topics=(
            ("Plan", ("minimum", "deadline_seconds", "window_seconds", "interval_seconds")),
            ("Changes", ("pause_seconds", "change_seconds", "effective_share", "blocked_seconds")),
        ),
        title="joint parallelism",
        about="all operators together, before events arrive",
        measured="terms.path_seconds",
        setpoints=("bound_seconds",),
        terms=("tasks_total", "path_seconds", "capacity_per_second", "by_hand", "blocked"),
        lasting="tasks_total",
        desired=compute_tasks_in_force,
        brief=describe_tasks,
        changes="tasks",
    ),
    tuning=LoopTuning(scenario="elasticity", advice=operators.TASK_ADVICE),
)
