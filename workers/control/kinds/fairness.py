"""The weight of the ordinary keys of a fair queue."""

from collections.abc import Mapping
from typing import Any

from controllers.fairness.law import LAW, ORDINARY_WEIGHT, FairnessObservation
from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Counters, Measurement
from workers.control.parts import kind
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant

INTERVAL_SECONDS = 10


def measure_target(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the number of keys, and the weight in force."""
    row = snapshot.queues.get(target["queue"])
    observation = FairnessObservation(
        active_keys=row.active_keys if row else None, applied=row.ordinary_weight if row else None
    )
    age = None if snapshot.at is None else abs(now_seconds - snapshot.at)
    if row is None:
        quality = ObservationQuality(age, f"queue {target['queue']} is not observed")
    elif row.ordinary_weight is None:
        quality = ObservationQuality(age, f"queue {target['queue']} is not fair")
    elif row.active_keys is None:
        quality = ObservationQuality(age, idle="no producer has published keys recently")
    else:
        quality = ObservationQuality(age)
    return Measurement.of(observation, quality, {})


def collect_readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which the effect of a weight is judged."""
    row = snapshot.queues.get(target["queue"])
    return None if row is None else {"wait_seconds": row.wait_seconds}


def set_weight(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Set the weight, which stays until the next one."""
    plant.set_ordinary_weight(loop.target["queue"], entry.action[ORDINARY_WEIGHT])


def list_targets(present: kind.PlantInventory) -> kind.Targets:
    """Return one target for each fair jobs queue."""
    starts = {f"{LAW.name}/{name}": kind.LoopStart({"queue": name}) for name in present.fair_queues}
    return kind.Targets(starts, "the queue is not fair")


KIND = kind.LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    actuator=set_weight,
    targets=list_targets,
    interval_seconds=INTERVAL_SECONDS,
    display=kind.Display(
        kind.Lanes("Active keys", "Weight of the ordinary keys", "set", has_reference=False),
        of_each="fair queue",
        purpose="Gives the ordinary keys of a queue as many shares as there are keys, so that all keys are equal.",
        formula="weight = smoothed number of keys, if it differs from the weight in force by more than deadband",
        main=("smoothing", "deadband", "minimum", "maximum"),
        measured="observation.active_keys",
        lasting="applied",
        brief=lambda action: f"weight {action[ORDINARY_WEIGHT]:,.4g}" if ORDINARY_WEIGHT in action else "",
        changes="the weight",
    ),
)
