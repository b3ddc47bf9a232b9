"""The number of events that the pipeline admits, by the free space of the result queue."""

from collections.abc import Mapping
from typing import Any

from controllers.design import placement
from controllers.flow.admission import ADMIT, LAW, FlowObservation
from controllers.flow.prediction import predict_flow
from controllers.framework import guard
from controllers.framework.sensed import Counters, Measurement, count_growth
from queues.events.block import BLOCK_EVENTS
from workers.control.parts import kind
from workers.control.parts.applications import check_measurement, find_application, is_idle, list_application_targets
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.pipeline.declaration.controls import Controls
from workers.plants.plant import Plant

INTERVAL_SECONDS = 2
# Longer than REST_SECONDS: while the loop is at rest, its last limit stays in force.
LASTING_INTERVALS = 12.0
MIN_INTERVALS = 0.25  # a shorter time says too little about the events of an interval
# The result queue fills by admission and empties on its own. It keeps all of its free space (a = 1) except
# for about 100 bytes per event, which is measured one sample late: an event takes a second to pass, and the
# status is another second old. The combiner's batches add a sawtooth that must not be learned.
MODEL = placement.Model(1.0, -100.0, 1)
POLES = (0.6, 0.6, 0.2)
RESOLUTION = 0.05
DEADBAND = 0.2
GAINS = placement.place(MODEL, POLES)


def measure_target(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the free bytes of the result queue, and the events dispatched per interval recently."""
    row = find_application(target, snapshot)
    admitted, said_at = row.admitted_events if row else None, _read_status_time(snapshot)
    counters: dict[str, float] = {}
    if admitted is not None and said_at is not None:
        counters = {"admitted_events": admitted, "said_at": said_at}
    observation = FlowObservation(
        measured=(row.result_queue.free_bytes if row else None) or 0, applied=_compute_admitted(before or {}, counters)
    )
    return Measurement.of(observation, check_measurement(target, snapshot, now_seconds), {**(before or {}), **counters})


def _read_status_time(snapshot: Snapshot) -> float | None:
    """Return when the pipeline reported the snapshot's values, in s since 1970."""
    age_seconds = snapshot.pipeline.age_seconds
    return None if snapshot.at is None or age_seconds is None else snapshot.at - age_seconds


def _compute_admitted(before: Counters, now: Counters) -> float | None:
    """Return the admitted events per interval, from those since the last observation.

    Ticks may be left out or come early, so the elapsed time is taken into account. None where the pipeline has reported
    nothing new, or was silent for long.
    """
    if "said_at" not in before or "said_at" not in now:
        return None
    elapsed_seconds = now["said_at"] - before["said_at"]
    if not MIN_INTERVALS <= elapsed_seconds / INTERVAL_SECONDS <= LASTING_INTERVALS:
        return None
    return count_growth(before, now, "admitted_events") * INTERVAL_SECONDS / elapsed_seconds


def collect_readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which the effect of admission is judged."""
    row = find_application(target, snapshot)
    if row is None:
        return None
    return {"free_bytes": row.result_queue.free_bytes, "node_state": None}


def admit(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Admit the entry's events per interval, as a rate, and reserve the setpoint for that time.

    Both expire, so a loop that dies does not throttle the pipeline permanently.
    """
    rate = entry.action["admit"] / loop.interval_seconds
    changes = {"admit_events_per_second": rate, "reserve_bytes": float(entry.parameters["setpoint"])}
    plant.steer_pipeline(loop.target["application"], {**changes, **_is_latched(entry, loop)})


def keep_admission(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Extend the limit in force on hold and during a cool-down.

    A limit that is unknown to the loop expires: it must not throttle the pipeline.
    """
    law = (entry.state_before or {}).get("law") or {}
    if entry.limited_by in guard.UNASKED or law.get("limit") is None:
        return
    plant.steer_pipeline(loop.target["application"], _is_latched(entry, loop))


def _is_latched(entry: LedgerEntry, loop: Loop) -> dict[str, float]:
    return {"admit_until_seconds": entry.at.timestamp() + LASTING_INTERVALS * loop.interval_seconds}


def list_targets(present: kind.PlantInventory) -> kind.Targets:
    """Return one target for each running application."""
    return list_application_targets(LAW.name, present)


KIND = kind.LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    actuator=admit,
    keeper=keep_admission,
    targets=list_targets,
    at_rest=is_idle,
    interval_seconds=INTERVAL_SECONDS,
    # Half of the result queue is kept free. One block is always admitted: event time advances with arrivals,
    # and results that wait for it would otherwise never leave the queue.
    defaults=kind.LoopDefaults(
        parameters={
            "setpoint": Controls().result_bytes / 2,
            "minimum": float(BLOCK_EVENTS),
            "kp": GAINS.kp,
            "ki": GAINS.ki,
            "kd": GAINS.kd,
            "a": MODEL.a,
            "b": MODEL.b,
            "delay": MODEL.delay,
            "tuning": "adaptive",
            "resolution": RESOLUTION,
            "deadband": DEADBAND,
            "interval_seconds": float(INTERVAL_SECONDS),
        }
    ),
    display=kind.Display(
        kind.Lanes("Free space of the result queue, MiB", "Events admitted", "admitted", scale=kind.MEBIBYTES),
        of_each="application",
        purpose=("Limits admitted events so that half of the result queue stays free and it never overflows."),
        formula=("admit(k) = u(k-1) + ki·e(k) + kp·(x(k) - x(k-1)) - kd·(u(k-1) - u(k-2)), e = setpoint - measured"),
        main=("setpoint", "kp", "ki", "kd", "minimum"),
        topics=(
            ("Shape and limit", ("form", "maximum", "deadband", "interval_seconds")),
            ("Queue model", ("a", "b", "delay")),
            ("Adaptive tuning", ("tuning", "forgetting", "resolution")),
        ),
        title="flow control",
        measured="terms.measured",  # an application that starts has no status: its free space is not 0
        setpoints=("setpoint",),
        lasting=ADMIT,
        is_news=False,
        brief=lambda action: f"limit {action[ADMIT]:,.0f} events" if ADMIT in action else "",
        changes="the limit",
    ),
    tuning=kind.LoopTuning(
        promise=kind.PromisedResponse("Free space after a setpoint change, as a share of the step", predict_flow),
        scenario="flow",
    ),
)
