"""The number of workers started at each container, so that its events are handled in time.

The law also sets the number of workers in each pool of an attached plant (`controllers.worker_rate.permanent_pool`),
where the loop advises until a person trusts it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from controllers.framework.guard import ObservationQuality
from controllers.framework.reason import format_count
from controllers.framework.sensed import Counters, Measurement, count_growth
from controllers.parallelism.advice_value import AdvisedOperator
from controllers.retries.circuit import OPEN
from controllers.simulation import recorded_container
from controllers.worker_rate.law import LAW
from controllers.worker_rate.shared import WorkerRateObservation, WorkerRateParameters
from queues.nodes.node_state import OFFLINE, TOOBUSY
from queues.points import TOTAL
from workers.control.parts import attached_pools, permanent_pools
from workers.control.parts.kind import (
    AdviceMeasure,
    ChartLane,
    ChartSeries,
    Display,
    Floats,
    Lanes,
    LoadReplay,
    LoopDefaults,
    LoopKind,
    LoopStart,
    LoopTuning,
    Observed,
    PlantInventory,
    Targets,
    compute_amounts,
)
from workers.control.parts.operators import keep_plant
from workers.control.parts.permanent_pools import is_permanent
from workers.documents.hosts import explain_missing_capabilities
from workers.documents.queues import ContainerStatus
from workers.documents.snapshot import Snapshot
from workers.history.expected_load import predict_arrivals
from workers.history.forecasts import QUEUE
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant
from workers.steering.scope import explain_all_drained, list_missing_capabilities

# As often as there is a snapshot: with 2 s, events waited much longer (p99 at 20,000/s: 2.5 s instead of 1.6 s).
INTERVAL_SECONDS = 1
CUMULATIVE = ("removed_events", "workers_started")


def measure_target(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the observation of one container since the last one.

    Missing values (an OFFLINE node, a container not yet measured) are 0 and invalid: the guard holds.
    """
    if "plant" in target:
        return permanent_pools.observe_pool(LAW.name, target, snapshot, before, now_seconds)
    row = _find_container(target, snapshot) or ContainerStatus()
    node = snapshot.nodes.get(target.get("node", ""))
    counters = {key: getattr(row, key) for key in CUMULATIVE}
    observation = WorkerRateObservation(
        queue_length=row.waiting_events or 0,
        removed=count_growth(before, counters, "removed_events"),
        started=count_growth(before, counters, "workers_started"),
        waiting_to_run=row.waiting_to_run or 0,
        running=row.workers_busy,
        oldest_seconds=row.oldest_seconds,
        expected_per_second=_predict_arrivals(target, snapshot, row, now_seconds),
        node_state=node.state if node else None,
        is_circuit_open=_is_circuit_open(target, snapshot),
    )
    known = {key: value for key, value in counters.items() if value is not None}
    return Measurement.of(
        observation, _check_measurement(target, snapshot, row, now_seconds), {**(before or {}), **known}
    )


def _predict_arrivals(
    target: Mapping[str, Any], snapshot: Snapshot, row: ContainerStatus, now_seconds: float
) -> float | None:
    """Return the forecast arrivals of a container: its share of those of its queue."""
    queue = target.get("queue", "")
    if QUEUE + queue not in snapshot.forecasts:
        return None
    expected = predict_arrivals(snapshot, queue, INTERVAL_SECONDS, now_seconds)
    return None if expected is None else round(expected * row.points / TOTAL, 3)


def _find_container(target: Mapping[str, Any], snapshot: Snapshot) -> ContainerStatus | None:
    """Return the target's container in the snapshot, or None when it is missing."""
    queue = snapshot.queues.get(target.get("queue", ""))
    return queue.containers.get(target.get("node", "")) if queue else None


def _check_measurement(
    target: Mapping[str, Any], snapshot: Snapshot, row: ContainerStatus, now_seconds: float
) -> ObservationQuality:
    """Return the age of the measurement, and why it is invalid.

    The age is that of the snapshot plus that of the node's heartbeat in it.
    """
    name = target.get("node", "")
    node = snapshot.nodes.get(name)
    at_seconds = snapshot.at
    # A clock set back between snapshot and tick must not make a measurement look younger, so the absolute
    # difference counts.
    age = None if at_seconds is None else abs(now_seconds - at_seconds)
    if node is None:
        return ObservationQuality(age, f"node {name} is not in the snapshot")
    if node.age_seconds is None or age is None:
        return ObservationQuality(None, f"node {name} has not reported yet")
    age += node.age_seconds
    if node.state == OFFLINE:
        return ObservationQuality(age, f"node {name} is OFFLINE, last report {node.age_seconds:.0f} s ago")
    if node.stale:
        return ObservationQuality(age, f"node {name} has missed two heartbeats")
    if row.waiting_events is None:
        return ObservationQuality(age, f"the container on {name} is not measured yet")
    # A worker that no host takes expires, one that may make no call ends at once: its effect would be judged as none.
    no_host = explain_all_drained(snapshot) or _explain_no_fitting_host(target, snapshot)
    return ObservationQuality(age, idle=no_host or _explain_held_circuit(target, snapshot))


def _is_circuit_open(target: Mapping[str, Any], snapshot: Snapshot) -> bool:
    """Return whether the workers of a queue make only test calls to their destination."""
    queue = snapshot.queues.get(target.get("queue", ""))
    if queue is None or queue.destination is None or queue.circuit_hold is not None:
        return False
    destination = snapshot.destinations.get(queue.destination)
    return destination is not None and destination.circuit == OPEN


def _explain_held_circuit(target: Mapping[str, Any], snapshot: Snapshot) -> str | None:
    """Return that a person lets the workers of a queue make no calls; None if they may make some."""
    queue = snapshot.queues.get(target.get("queue", ""))
    if queue is None or queue.circuit_hold is None or queue.circuit_hold.circuit != OPEN:
        return None
    return f"{queue.circuit_hold.by} holds the circuit of {target['queue']} open"


def _explain_no_fitting_host(target: Mapping[str, Any], snapshot: Snapshot) -> str | None:
    missing = list_missing_capabilities(target.get("queue", ""), snapshot)
    return explain_missing_capabilities(missing, "jobs") if missing else None


def collect_readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which an effect is judged.

    For a container: its queue length and counters, and its node's state. For a pool: its backlog and tasks.
    """
    if "plant" in target:
        return permanent_pools.collect_readings(target, snapshot)
    row = _find_container(target, snapshot)
    if row is None:
        return None
    node = snapshot.nodes.get(target["node"])
    return {
        "queue_length": row.waiting_events,
        "removed_events": row.removed_events,
        "workers_started": row.workers_started,
        "node_state": node.state if node else None,
    }


def start_workers(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Submit the entry's number of workers.

    Their ids are derived from the entry, so that a repeated submission is recognized. A pool of an attached plant is
    set to the entry's number of processes.
    """
    count = int(entry.action["start"])
    if "plant" in loop.target:
        attached_pools.set_pool(count, loop, plant)
        return
    ids = [f"e{entry.pk}-{number}" for number in range(count)]
    plant.start_workers(loop.target["queue"], loop.target["node"], count, ids, int(entry.terms.get("ahead", 0)))


def keep_plant_of(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Keep an attached plant's own controllers stopped; workers of a container need no keeping."""
    if "plant" in loop.target:
        keep_plant(entry, loop, plant)


def list_targets(present: PlantInventory) -> Targets:
    """Return the containers of the jobs queues, including draining ones, and the attached plants' pools."""
    topology = present.topology
    starts = {
        f"{LAW.name}/{queue.name}/{node}": LoopStart(
            {"queue": queue.name, "node": node}, follows={"events_per_worker": queue.events_per_worker}
        )
        for queue in topology.queues.values()
        if queue.kind == "jobs"
        for node in queue.points
    }
    elsewhere = {
        name: attached_pools.start_of(
            plant,
            operator,
            **permanent_pools.build_start_values(kind.pace, attached_pools.find_visible_pool(plant, operator, present)),
            interval_seconds=permanent_pools.INTERVAL_SECONDS,
        )
        for name, plant, operator, kind in attached_pools.iterate_adjustable_pools(LAW.name, present, lambda kind: True)
    }
    gone = f"the container was removed in topology revision {topology.revision}, or {attached_pools.GONE}"
    return Targets({**starts, **elsewhere}, gone)


def is_at_rest(target: Mapping[str, Any], snapshot: Snapshot) -> bool:
    """Return whether there is nothing to decide.

    For a container: nothing waits and no worker runs, on a healthy node. For a pool: nothing arrives or waits, and it
    has its minimum size.
    """
    if "plant" in target:
        return permanent_pools.is_at_rest(target, snapshot)
    row, node = _find_container(target, snapshot), snapshot.nodes.get(target.get("node", ""))
    is_well = node is not None and not node.stale and node.state not in (OFFLINE, TOOBUSY)
    return is_well and row is not None and row.waiting_events == 0 and not row.waiting_to_run and not row.workers_busy


def load(observed: Sequence[Observed]) -> Floats:
    """Return the events that arrived at the container in each second."""
    return recorded_container.compute_arrivals(
        [at for at, _ in observed],
        [observation["queue_length"] for _, observation in observed],
        [observation["removed"] for _, observation in observed],
    )


def compute_run_hours(target: Mapping[str, Any], snapshot: Snapshot, values: WorkerRateParameters) -> float | None:
    """Return the hours of a full worker's run at the current time per event.

    A worker that finds fewer events ends sooner. A pool of an attached plant has no price.
    """
    queue = snapshot.queues.get(target.get("queue", ""))
    if queue is None or queue.service_seconds is None:
        return None
    return values.events_per_worker * queue.service_seconds / 3600


def compute_desired(observation: Mapping[str, Any], action: Mapping[str, Any]) -> dict[str, float]:
    """Return the workers to start; for a pool, the workers that it is to have."""
    permanent = {"start": float(observation["running"])} if is_permanent(observation) else {}
    return {**permanent, **compute_amounts(observation, action)}


def _list_advised_processes(
    observed: Mapping[str, Any], action: Mapping[str, Any], terms: Mapping[str, Any]
) -> dict[str, AdvisedOperator]:
    """Return the current and the advised processes of a pool. Workers that end after their work have no such number."""
    if not is_permanent(observed):
        return {}
    running = int(observed["running"])
    return {"pool": AdvisedOperator(tasks=running, advised=running + int(action.get("start", 0)))}


def _describe_action(action: Mapping[str, Any]) -> str:
    count = action.get("start", 0)
    return f"started {count} worker{'' if count == 1 else 's'}"


def build_chart(target: Mapping[str, str], parameters: Mapping[str, Any]) -> list[ChartLane]:
    """Return what limits the loop: the wait of the oldest event, or the queue length of the thesis method."""
    container = f"queues.{target['queue']}" + (f".containers.{target['node']}" if "node" in target else "")
    if parameters["method"] == "thesis":
        waiting = ChartSeries(f"{container}.waiting_events", "measured")
        limit = ChartSeries("limit", "limit", "limit", parameters["upper_limit"], "above")
        bounded = ChartLane("Events waiting, events", [waiting, limit], whole=True)
    else:
        oldest = ChartSeries(f"{container}.oldest_seconds", "measured")
        limit = ChartSeries("limit", "wait limit", "limit", parameters["max_wait_seconds"], "above")
        bounded = ChartLane("Oldest event, s", [oldest, limit])
    running = ChartSeries(f"{container}.workers_busy", "running", "step")
    waiting_for_slot = ChartSeries(f"{container}.waiting_to_run", "waiting for a slot", "wanted")
    return [bounded, ChartLane("Workers", [waiting_for_slot, running], whole=True)]


DISPLAY = Display(
    Lanes("Waiting, events", "Workers started", "started", bounded=True),
    of_each="container of a jobs queue, pool of an attached plant",
    purpose=("Starts short-lived workers for a container, so that its events are handled within the wait limit."),
    formula=(
        "start = ⌈(waiting + arriving) / events_per_worker⌉ full workers, earlier if an "
        "event would wait longer than max_wait_seconds"
    ),
    main=("method", "upper_limit", "max_wait_seconds", "events_per_worker", "maximum_waiting_to_run"),
    topics=(
        ("Forecast", ("limit_wait_seconds", "fill_share", "lead_seconds", "trend_gain", "caution", "start_when")),
        (
            "Thesis method",
            (
                "lower_share",
                "raise_factor",
                "lower_factor",
                "history",
                "low_count",
                "backlog_factor",
                "backlog_workers",
                "initial_rate",
                "minimum_rate",
                "maximum_rate",
            ),
        ),
        ("Permanent workers", ("workers", "life_seconds", "target_utilisation")),
        ("Pool and node", ("pool_patience", "pool_allowance", "toobusy_share", "interval_seconds")),
    ),
    joint=" on ",
    measured="observation.queue_length",
    setpoints=("upper_limit",),
    # parameters of the forecast and its bounds
    terms=(
        "method",
        "rate_per_second",
        "arrivals_per_second",
        "trend_per_second",
        "coming",
        "backlog_events",
        "full_workers",
        "executed",
        "cap",
        "started",
        "removed",
        "workers",
    ),
    past=_describe_action,
    brief=lambda action: f"start {format_count(action['start'], 'worker')}" if "start" in action else "",
    changes="workers",
    summed=("start", "started", "worker"),
    desired=compute_desired,
    chart=build_chart,
)
# parameters of a pool of an attached plant
ELSEWHERE = replace(
    DISPLAY,
    lanes=Lanes("Waiting, events", "Workers", "set", has_reference=False),
    chart=None,
    setpoints=(),
    purpose="Sets the number of workers of a pool, so that its backlog is processed within their lifetime.",
    formula="⌈(λ + q / life_seconds) s / target_utilisation⌉ workers",
    main=("method", "life_seconds", "target_utilisation", "maximum_rate", "max_wait_seconds"),
    lasting="running",
    brief=lambda action: format_count(action["start"], "worker") if "start" in action else "",
    summed=None,
    past=lambda action: f"set {format_count(action.get('start', 0), 'worker')}",
)


KIND = LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    cumulative=CUMULATIVE,
    actuator=start_workers,
    keeper=keep_plant_of,
    targets=list_targets,
    interval_seconds=INTERVAL_SECONDS,
    defaults=LoopDefaults(parameters={"interval_seconds": INTERVAL_SECONDS}),
    followed={"events_per_worker": "its queue"},
    seeded=True,
    separable=True,
    at_rest=is_at_rest,
    display=replace(DISPLAY, elsewhere=ELSEWHERE),
    tuning=LoopTuning(
        scenario="manager",
        unit_hours=compute_run_hours,
        advice=AdviceMeasure("worker", _list_advised_processes),
        replay=LoadReplay(
            frozenset({"queue_length", "removed"}),
            load,
            recorded_container.replay,
            {
                "thesis": "the worker manager of the thesis, every 5 s",
                "static": "permanent workers for the busiest second, known in advance",
            },
        ),
    ),
)
