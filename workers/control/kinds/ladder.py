"""The observation of a queue's remedy ladder: whether its demand is met, and which remedies are exhausted.

    capacity = out/s                            a jobs queue with a backlog: it works at its limit
             = out/s / share of busy slots      a jobs queue that keeps up
             = in/s * FULL / utilisation        a pipeline queue; utilisation: the share of the operators'
                                                time that all arrivals would take, shed or not

Capacity is computed from arrivals: events that producers hold back take no processing time. A replica that falls behind
shows in the backlog, because most of its time is Spark's own, whatever the load. While publishers over HTTP are
throttled, the offered load is the arrivals divided by the share of time without throttling.

The ladder advises until a person trusts it, because its upper levels cost delay and events. At an attached plant it
only advises (`workers.control.parts.plant_ladder`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from common.errors import BadInput
from controllers import catalog
from controllers.framework import guard
from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Counters, Measurement
from controllers.parallelism.advice_value import AdvisedOperator
from controllers.shedding.ladder import LAW, LadderObservation, allows, get_level_name
from queues.waiting import AT_CAPACITY_SECONDS
from workers.control.parts import plant_ladder
from workers.control.parts.kind import (
    AdviceMeasure,
    Display,
    Lanes,
    LoopDefaults,
    LoopKind,
    LoopStart,
    LoopTuning,
    PlantInventory,
    Targets,
)
from workers.control.parts.offered_load import OperatorLoad
from workers.documents.loops import LoopStatus
from workers.documents.parts import CONSUMERS, find_settling
from workers.documents.pipeline import ApplicationStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.objectives.error_budget import list_budgets
from workers.placement.plans import BEING_EXECUTED
from workers.plants.plant import Plant
from workers.steering import scope

# Above this utilization, a batch or a worker waits for its predecessor for longer than it takes itself.
FULL = 0.9
MIN_UTILISATION = 0.01
# Publishers over HTTP, which can be throttled.
THROTTLED_PRODUCER = "api"
NOTHING_DONE = (None, "no action")
UNKNOWN = QueueStatus()
Document = Mapping[str, Any]


def measure_target(target: Document, snapshot: Snapshot, before: Counters | None, now_seconds: float) -> Measurement:
    """Return the demand, arrivals, capacity, backlog, and saturation of one queue."""
    if "plant" in target:
        return plant_ladder.observe_plant(target, snapshot, now_seconds)
    name = str(target.get("queue"))
    row = snapshot.queues.get(name, UNKNOWN)
    came = row.in_per_second or 0.0
    demand = came + _compute_held_back(name, snapshot)
    readers = {reader for reader, application in snapshot.pipeline.applications.items() if name in application.queues}
    # The error budgets for throttling this queue and for shedding its applications' events.
    budgets = list_budgets("throttle", snapshot, {name}, ()) + list_budgets("shed", snapshot, {name}, readers)
    observation = LadderObservation(
        demand_per_second=round(demand, 3),
        came_per_second=round(came, 3),
        # Without arrivals nothing is measured; the offered load is then taken to be within capacity.
        capacity_per_second=round(_estimate_capacity(name, row, came or demand, snapshot), 3),
        backlog_seconds=_compute_late_seconds(row),
        saturated=find_exhausted_levels(name, row, snapshot),
        budgets=tuple(budgets) or None,
    )
    return Measurement.of(observation, _check_measurement(name, row, snapshot, now_seconds), {})


def _compute_held_back(queue: str, snapshot: Snapshot) -> float:
    """Return the load held back by recent throttling, in events/s; advice throttles no one."""
    closed = scope.compute_closed_share(queue, snapshot)
    if closed >= 1.0:
        return 0.0  # a manual change has closed the queue, so its arrivals are unknown
    return _compute_http_rate(queue, snapshot) * closed / (1 - min(0.99, closed))


def _compute_http_rate(queue: str, snapshot: Snapshot) -> float:
    producer = snapshot.producers.get(THROTTLED_PRODUCER)
    return float((producer.queues.get(queue) if producer else None) or 0.0)


def _estimate_capacity(name: str, row: QueueStatus, came: float, snapshot: Snapshot) -> float:
    if row.kind == "pipeline":
        used = [
            OperatorLoad(application, snapshot).compute_utilization()
            for application in list_reading_applications(name, snapshot)
        ]
        return came * FULL / max([MIN_UTILISATION, *used])
    out = row.out_per_second or 0.0
    if _compute_late_seconds(row) > AT_CAPACITY_SECONDS:
        return float(out)
    totals = snapshot.totals
    slots = totals.worker_slots or 0
    busy = (totals.workers_busy or 0) / slots if slots else 1.0
    return max(out, came) / max(busy, 1 / max(1, slots))


def _compute_late_seconds(row: QueueStatus) -> float:
    """Return how far behind the queue is.

    This is at most the wait of the oldest event (rates are unreliable at a low output) and at most the time to clear
    the backlog at the present rate (a single event may wait for its next attempt).
    """
    known = [seconds for seconds in (row.wait_seconds, row.clearing_seconds) if seconds is not None]
    return min(known, default=0.0)


def list_reading_applications(queue: str, snapshot: Snapshot) -> list[ApplicationStatus]:
    """Return the applications that read a queue."""
    return [row for row in snapshot.pipeline.applications.values() if queue in row.queues]


def find_exhausted_levels(name: str, row: QueueStatus, snapshot: Snapshot) -> dict[str, bool]:
    """Return, for each level, whether its loops are exhausted.

    Loops are exhausted if there is nothing to move, all resources are in use, or none may act.
    """
    return {
        "rebalance": _are_all_idle("rebalance", snapshot),
        "workers": _explain_no_more_workers(name, row, snapshot),
        "nodes": _are_all_idle("nodes", snapshot) or _are_all_in_use(snapshot),
        "throttle": not _compute_http_rate(name, snapshot),  # producers there cannot be throttled
        "shed": False,
    }


def _list_all_inputs(target: Document) -> bool:
    return True


def _are_all_idle(level: str, snapshot: Snapshot, helps: Callable[[Document], bool] = _list_all_inputs) -> bool:
    """Return whether the loops of a level have nothing to do; only loops whose target helps count."""
    rows = snapshot.loops.values()
    return all(_is_idle(row, snapshot) for row in rows if _is_of(row, level) and helps(row.target))


def _is_of(row: LoopStatus, level: str) -> bool:
    remedy = catalog.find_remedy_by_name(row.law)
    return remedy is not None and remedy.level == level


def _is_idle(row: LoopStatus, snapshot: Snapshot) -> bool:
    """Return whether a loop may not act, or last had nothing to do and has no action in progress."""
    if row.mode != Loop.Mode.AUTO:
        return True
    remedy = catalog.find_remedy_by_name(row.law)
    lasts = remedy is not None and remedy.lasts
    acted = row.verdict not in NOTHING_DONE if lasts else row.actuator
    return not acted and not any(plan.state in BEING_EXECUTED for plan in snapshot.plans)


def _are_all_in_use(snapshot: Snapshot) -> bool:
    return snapshot.totals.nodes_in_use == snapshot.totals.nodes


def _explain_no_more_workers(name: str, row: QueueStatus, snapshot: Snapshot) -> bool:
    if row.kind == "pipeline":
        applications = snapshot.pipeline.applications
        ours = {reader for reader, application in applications.items() if name in application.queues}
        return _are_all_idle("workers", snapshot, lambda target: target.get("application") in ours)
    totals = snapshot.totals
    if (totals.workers_busy or 0) >= (totals.worker_slots or 0):
        return _are_all_idle("workers", snapshot, lambda target: "host" in target)
    return _are_all_idle("workers", snapshot, lambda target: target.get("queue") == name)


def _check_measurement(name: str, row: QueueStatus, snapshot: Snapshot, now_seconds: float) -> ObservationQuality:
    at_seconds = snapshot.at
    if at_seconds is None or name not in snapshot.queues:
        return ObservationQuality(None, f"queue {name} is not in the snapshot")
    age = abs(now_seconds - at_seconds)
    if row.in_per_second is None:
        return ObservationQuality(age, f"the arrivals of {name} are not measured yet")
    if (part := find_settling(snapshot.parts, [CONSUMERS[row.kind]] if row.kind in CONSUMERS else [])) is not None:
        # A backlog from before the start says nothing about the demand and is cleared.
        return ObservationQuality(age, idle=f"{part} has just started")
    silent = [
        application for application in list_reading_applications(name, snapshot) if application.state != "running"
    ]
    if row.kind == "pipeline" and silent and silent[0].state == "stopped":
        return ObservationQuality(age, idle=f"a user has stopped an application that reads {name}")
    if row.kind == "pipeline" and silent:
        return ObservationQuality(age, f"an application that reads {name} is {silent[0].state}")
    if row.kind == "jobs" and row.out_per_second is None:
        return ObservationQuality(age, f"the output of {name} is not measured yet")
    if row.kind == "jobs" and not snapshot.totals.worker_slots:
        why = scope.explain_no_slots(snapshot)
        return ObservationQuality(age, idle=f"{why}: the capacity of {name} is unknown")
    return ObservationQuality(age)


def collect_readings(target: Document, snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which a level is judged: how far behind the queue or the plant is."""
    if "plant" in target:
        return plant_ladder.collect_readings(target, snapshot)
    row = snapshot.queues.get(target.get("queue", ""))
    if row is None:
        return None
    return {"wait_seconds": row.wait_seconds, "node_state": None}


def engage(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Throttle producers for the entry's share of an interval, at the level that does so and above.

    A level that is set manually throttles them all the time. The permissions of other levels are read from the loop's
    last entry (`workers.steering.scope`).
    """
    by_hand = 1.0 if entry.mode == Loop.Mode.MANUAL else 0.0
    _throttle(int(entry.action["rung"]), entry.action.get("closed_share", by_hand), loop, plant)


def keep_throttling(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Keep the present level in force while another level cools down."""
    if entry.mode == Loop.Mode.AUTO and entry.limited_by == guard.COOL_DOWN:
        _throttle(int(entry.terms.get("rung", 0)), entry.terms.get("closed_share", 0.0), loop, plant)


def _throttle(rung: int, closed_share: float, loop: Loop, plant: Plant) -> None:
    if "plant" in loop.target:
        raise BadInput("mode", scope.LADDER_ADVISES)
    closed = closed_share if allows(rung, "throttle") else 0.0
    plant.throttle_queue(loop.target["queue"], closed * loop.interval_seconds)


def list_targets(present: PlantInventory) -> Targets:
    """Return one target for each queue and each attached plant."""
    topology = present.topology
    starts = {f"{LAW.name}/{queue}": LoopStart({"queue": queue}) for queue in topology.queues}
    elsewhere = plant_ladder.build_loop_starts(LAW.name, present)
    return Targets({**starts, **elsewhere}, f"removed in revision {topology.revision}, or the plant no longer exists")


def _level_of(action: Document) -> float:
    return float(action.get("rung", 0))


def _describe_action(action: Document) -> str:
    rung = int(action.get("rung", 0))
    return f"enabled {get_level_name(rung)}" if rung else "disabled all levels"


def _is_engaged(row: LoopStatus) -> str:
    of = row.target.get("queue") or row.target.get("plant")
    return f"the remedy ladder of {of} has enabled {get_level_name(int(row.actuator or 0))}"


def _list_advised_levels(observed: Document, action: Document, terms: Document) -> dict[str, AdvisedOperator]:
    return {"ladder": AdvisedOperator(tasks=0, advised=int(terms.get("rung", 0)))}


KIND = LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    actuator=engage,
    keeper=keep_throttling,
    targets=list_targets,
    interval_seconds=5,
    # A measured rate lags by some seconds: a single check with less capacity than demand is no shortage.
    defaults=LoopDefaults(mode=Loop.Mode.ADVISE, parameters={"unmet_decisions": 3}),
    display=Display(
        Lanes("Unmet demand, %", "Level", "enabled", scale=100.0, has_reference=False),
        of_each="queue, attached plant (advice only)",
        purpose=("Enables remedies for an overload, cheapest first, and disables them in reverse order."),
        formula=(
            "unmet = 1 - capacity / demand; one level up while unmet or backlog > "
            "backlog_bound_seconds, down while demand ≤ release_share · capacity"
        ),
        main=("cap", "backlog_bound_seconds", "release_share", "settling_decisions", "effective_share"),
        topics=(("Error budget", ("budget_seconds",)),),
        title="remedy ladder",
        measured="terms.unmet",
        terms=("rung", "unmet", "closed_share"),
        lasting="rung",
        is_news=False,
        amount=_level_of,
        past=_describe_action,
        brief=_describe_action,
        engaged=_is_engaged,
    ),
    tuning=LoopTuning(scenario="ladder", advice=AdviceMeasure("level", _list_advised_levels)),
)
