"""The minimum number of tasks that keeps every path within its bound at the current arrivals.

There is one loop for each running application and each registered plant. The loops advise until a person trusts them.
"""

from collections.abc import Mapping
from typing import Any

from controllers.framework.sensed import Counters, Measurement
from controllers.parallelism.queueing_law import LAW, QueueingObservation, observe
from workers.control.parts import operators
from workers.control.parts.kind import (
    Display,
    Lanes,
    LoopDefaults,
    LoopKind,
    LoopStart,
    LoopTuning,
    PlantInventory,
    Targets,
    compute_tasks_in_force,
    describe_tasks,
)
from workers.documents.snapshot import Snapshot
from workers.models import Loop
from workers.plants.foreign.kind import PlantPace
from workers.plants.topology import MAX_TASKS


def measure_target(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the observation of all operators (`controllers.parallelism.queueing_law`)."""
    topology, measured = operators.build_topology_inputs(target, snapshot, now_seconds, LAW.name)
    nothing = QueueingObservation(paths=(), operators={})
    return Measurement.of(nothing if topology is None else observe(topology), measured, {})


def list_targets(present: PlantInventory) -> Targets:
    """Return the running applications (at most one task per core of Spark) and the registered plants."""
    here = {
        f"{LAW.name}/{name}": LoopStart(
            {"application": name},
            parameters={"maximum": MAX_TASKS},
            guard=operators.CALM,
            interval_seconds=operators.INTERVAL_SECONDS,
        )
        for name in present.applications
    }
    elsewhere = {
        f"{LAW.name}/plant:{name}": LoopStart(
            {"plant": name},
            Loop.Mode.ADVISE,
            _build_parameters(kind.pace),
            interval_seconds=operators.INTERVAL_SECONDS if kind.pace is None else kind.pace.tick_seconds,
        )
        for name, kind in present.plants.items()
    }
    return Targets({**here, **elsewhere}, operators.GONE)


def _build_parameters(pace: PlantPace | None) -> dict[str, Any]:
    if pace is None:
        return {"maximum": operators.OTHERS_MAXIMUM}
    return {"maximum": pace.maximum, "bound_seconds": pace.bound_seconds}


KIND = LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=operators.collect_readings,
    actuator=operators.set_tasks,
    keeper=operators.keep_plant,
    targets=list_targets,
    interval_seconds=operators.CLOCK_SECONDS,
    defaults=LoopDefaults(Loop.Mode.ADVISE, {"bound_seconds": operators.BOUND_SECONDS, "only_changes": True}),
    display=Display(
        Lanes("Latency of the slowest path, s", "Tasks", "set", bounded=True),
        of_each="application, registered plant",
        purpose=("Chooses the minimum task count of every operator that meets the latency bound at the current load."),
        formula="minimum p such that batching + Σ W(p) ≤ bound_seconds, W by Kingman's formula",
        main=("bound_seconds", "minimum", "maximum", "batching_share", "bottleneck_threshold"),
        topics=(("Estimate", ("use_correction", "only_changes")),),
        title="queueing parallelism",
        setpoints=("bound_seconds",),
        desired=compute_tasks_in_force,
        brief=describe_tasks,
        changes="tasks",
        about="minimum tasks within the latency bound at the current load",
    ),
    tuning=LoopTuning(scenario="elasticity", advice=operators.TASK_ADVICE),
)
