"""The share of events of each replica of the pipeline, by response times."""

from collections.abc import Mapping
from math import hypot
from typing import Any

from controllers.flow.balance import LAW, BalanceObservation
from controllers.flow.prediction import predict_balance
from controllers.framework.sensed import Counters, Measurement
from workers.control.parts import kind
from workers.control.parts.applications import check_measurement, find_application, list_application_targets
from workers.documents.pipeline import ReplicaStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.pipeline.dispatch.assignment import MIN_PIECE_EVENTS
from workers.pipeline.status.status import WINDOW_SECONDS
from workers.plants.plant import Plant

INTERVAL_SECONDS = 5
# A share changes the number of events in a replica at once. A response time is a mean over RESPONSE_SECONDS, which
# equals the interval, so it reflects half of the last change and half of the change before it.
DELAY, AVERAGING = 0, 2
# A fraction of an equal share. A replica with less than this, and with less than one batch of its own in the
# status window, is silent because of its share.
STARVED_SHARE = 0.5


def measure_target(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the observation of the replicas that have a share.

    They are `incomparable` if a replica reports nothing, and `starved` if its small share is the reason. The law
    decides whether the load is high enough for a comparison, and whether the differences may be random variation.
    """
    rows = _list_replicas(target, snapshot)
    application_row = find_application(target, snapshot)
    events_per_second = application_row.in_per_second if application_row else None
    observation = BalanceObservation(
        response_times_seconds={name: row.response_seconds or 0.0 for name, row in rows.items()},
        shares={name: row.share for name, row in rows.items()},
        events_per_second=events_per_second,
        utilisation=max((row.utilisation for row in rows.values()), default=None),
        incomparable=_explain_silence(rows),
        starved=_list_starved_replicas(rows, events_per_second),
        error_seconds=_compute_error(rows),
        same_cores=application_row is not None and application_row.same_cores,
    )
    return Measurement.of(observation, check_measurement(target, snapshot, now_seconds), {})


def _list_replicas(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, ReplicaStatus]:
    application_row = find_application(target, snapshot)
    replicas = sorted(application_row.replicas.items()) if application_row else ()
    return {name: row for name, row in replicas if row.share > 0}


def _explain_silence(rows: Mapping[str, ReplicaStatus]) -> str | None:
    silent = [name for name, row in rows.items() if row.response_seconds is None]
    return f"replica {silent[0]} has reported no response time recently" if silent else None


def _list_starved_replicas(rows: Mapping[str, ReplicaStatus], events_per_second: float | None) -> str | None:
    """Return why a replica is silent because of its small share, or None.

    Where the share is too small for a piece of every dispatch, the replica receives a whole piece occasionally and is
    silent for longer than the status window.
    """
    whole = sum(row.share for row in rows.values())
    for name, row in rows.items():
        share = row.share / whole
        events = share * (events_per_second or 0.0) * WINDOW_SECONDS
        if row.response_seconds is None and share * len(rows) < STARVED_SHARE and events < MIN_PIECE_EVENTS:
            return f"replica {name} receives too few events to measure its response time"
    return None


def _compute_error(rows: Mapping[str, ReplicaStatus]) -> float:
    """Return the standard error of the difference between the slowest and the fastest replica."""
    ordered = sorted(rows.values(), key=lambda row: row.response_seconds or 0.0)
    return hypot(*(row.response_error_seconds or 0.0 for row in (ordered[0], ordered[-1]))) if ordered else 0.0


def collect_readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which the effect of shares is judged."""
    rows = _list_replicas(target, snapshot).values()
    times = [row.response_seconds for row in rows if row.response_seconds is not None]
    spread = max(times) - min(times) if times else None
    return {"response_spread_seconds": spread, "node_state": None}


def share(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Give each replica the share of events in the entry."""
    plant.steer_pipeline(loop.target["application"], {"shares": entry.action["shares"]})


def list_targets(present: kind.PlantInventory) -> kind.Targets:
    """Return one target for each running application."""
    return list_application_targets(LAW.name, present)


KIND = kind.LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    actuator=share,
    targets=list_targets,
    interval_seconds=INTERVAL_SECONDS,
    defaults=kind.LoopDefaults(
        parameters={"interval_seconds": float(INTERVAL_SECONDS), "delay": DELAY, "averaging": AVERAGING}
    ),
    display=kind.Display(
        # The setpoint is the mean of the measured values and moves with it.
        kind.Lanes("Slowest minus fastest response, s", "Share moved, %", "moved", has_reference=False),
        of_each="application",
        purpose=("Distributes events among the replicas so that their response times are equal."),
        formula=(
            "LQR on y(k+1) = a·y(k) + b·(mean of u(k-delay), …): share = -K·(difference, its integral, earlier shares),"
            " weighted by q, integral, and r"
        ),
        main=("resolution_seconds", "minimum_share", "q", "integral", "r"),
        topics=(
            ("Model", ("a", "b", "delay", "averaging", "interval_seconds")),
            ("Adaptive tuning", ("tuning", "forgetting")),
        ),
        title="load balancing",
        is_news=False,
        brief=kind.describe_shares,
        changes="shares",
    ),
    tuning=kind.LoopTuning(
        promise=kind.PromisedResponse(
            "Correction of a persistent response-time difference, as a share", predict_balance
        ),
        scenario="balance",
    ),
)
