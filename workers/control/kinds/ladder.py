"""The observation of a queue's remedy ladder: whether its demand is met, and which remedies are exhausted.

    capacity = out/s                            a jobs queue with a backlog: it works at its limit
             = out/s / share of busy slots      a jobs queue that keeps up
             = in/s * FULL / utilisation        a pipeline queue; utilisation: the share of the operators'
                                                time that all arrivals would take, shed or not

Capacity is computed from arrivals: events that producers hold back take no processing time. A replica that falls behind
shows in the backlog, because most of its time is Spark's own, whatever the load. While producers are
throttled, the offered load is the arrivals divided by the share of time without throttling. Arrivals are counted from
one decision to the next, which is one cycle of throttling: a shorter window would see too much of its open part. At the
level shed, throttling was not enough because producers hold back no more, and the arrivals are the offered load.

A level that cannot help the queue is not offered: throttling needs a producer that can wait, shedding an application
that may drop events, and the other levels a loop (`workers.control.parts.level_loops`). Enabling a level with loops
makes these decide at once.

The ladder advises until a person trusts it, because its upper levels cost delay and events. At an attached plant it
only advises (`workers.control.parts.plant_ladder`).
"""

import math
from collections.abc import Mapping
from typing import Any

from common.errors import BadInput
from controllers.framework import guard
from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Counters, Measurement, count_growth
from controllers.parallelism.advice_value import AdvisedOperator
from controllers.shedding.ladder import LAW, LEVELS, SHED, LadderObservation, allows, get_level_name
from controllers.shedding.law import LAW as SHEDDING
from queues.waiting import AT_CAPACITY_SECONDS
from workers.control.parts import kind, plant_ladder
from workers.control.parts.level_loops import LOOP_LEVELS, LevelStatus, assess_level, find_helping_loops
from workers.control.parts.offered_load import OperatorLoad, compute_latency_slack
from workers.documents.loops import LoopStatus
from workers.documents.parts import CONSUMERS, find_settling
from workers.documents.pipeline import ApplicationStatus
from workers.documents.queues import PIPELINE_PRODUCER, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.objectives.error_budget import list_budgets
from workers.plants.plant import Plant
from workers.steering import scope

# Above this utilization, a batch or a worker waits for its predecessor for longer than it takes itself.
FULL = 0.9
MIN_UTILISATION = 0.01
INTERVAL_SECONDS, MAX_INTERVALS = 5, 3
UNKNOWN = QueueStatus()
Document = Mapping[str, Any]


def measure_target(target: Document, snapshot: Snapshot, before: Counters | None, now_seconds: float) -> Measurement:
    """Return the demand, arrivals, capacity, backlog, and saturation of one queue."""
    if "plant" in target:
        return plant_ladder.observe_plant(target, snapshot, now_seconds)
    name = str(target.get("queue"))
    row = snapshot.queues.get(name, UNKNOWN)
    came, counters = _measure_arrivals(row, before, now_seconds)
    demand = came + _compute_held_back(name, row, came, snapshot)
    readers = {reader for reader, application in snapshot.pipeline.applications.items() if name in application.queues}
    # The error budgets for throttling this queue and for shedding its applications' events.
    levels = assess_levels(name, snapshot)
    budgets = list_budgets("throttle", snapshot, {name}, ()) + list_budgets("shed", snapshot, {name}, readers)
    observation = LadderObservation(
        demand_per_second=round(demand, 3),
        came_per_second=round(came, 3),
        # Without arrivals nothing is measured; the offered load is then taken to be within capacity.
        capacity_per_second=round(_estimate_capacity(name, row, row.in_per_second or demand, snapshot), 3),
        backlog_seconds=_compute_late_seconds(row),
        saturated={level: status.exhausted for level, status in levels.items()},
        unavailable={level: status.unavailable for level, status in levels.items() if status.unavailable},
        advice={level: status.advice for level, status in levels.items() if status.advice},
        interval_seconds=_find_interval_seconds(name, snapshot),
        latency_slack_seconds=_compute_latency_slack(name, snapshot),
        budgets=tuple(budgets) or None,
    )
    return Measurement.of(observation, _check_measurement(name, row, snapshot, now_seconds), counters)


def _measure_arrivals(row: QueueStatus, before: Counters | None, now_seconds: float) -> tuple[float, dict[str, float]]:
    """Return the events/s that producers inserted since the last decision, and the counters of this one.

    Without counters of about an interval ago, the rate is that of the last seconds.
    """
    counts = {node: container.inserted_events for node, container in row.containers.items()}
    counters = {f"inserted@{node}": float(count) for node, count in counts.items() if count is not None}
    seconds = now_seconds - before.get("at", now_seconds) if before else 0.0
    inserted = sum(count_growth(before, counters, key) for key in counters)
    is_known = len(counters) == len(counts) > 0 and 0 < seconds <= MAX_INTERVALS * INTERVAL_SECONDS
    return inserted / seconds if is_known else row.in_per_second or 0.0, {**counters, "at": now_seconds}


def _compute_held_back(queue: str, row: QueueStatus, came: float, snapshot: Snapshot) -> float:
    """Return the load held back by recent throttling, in events/s; advice throttles no one."""
    closed = scope.compute_closed_share(queue, snapshot)
    if closed >= 1.0 or (scope.find_active_level(queue, snapshot) or 0) >= SHED:
        return 0.0  # a manual change has closed the queue, so its arrivals are unknown; or producers don't wait
    waiting_share = min(1.0, _compute_throttleable_rate(queue, snapshot) / (row.in_per_second or math.inf))
    return came * waiting_share * closed / (1 - min(0.99, closed))


def _compute_throttleable_rate(queue: str, snapshot: Snapshot) -> float:
    """Return the events/s of producers that wait while the queue is throttled: all but pipelines."""
    rates = (
        producer.queues.get(queue) or 0.0
        for name, producer in snapshot.producers.items()
        if not name.startswith(PIPELINE_PRODUCER)
    )
    return float(sum(rates))


def _compute_latency_slack(queue: str, snapshot: Snapshot) -> float | None:
    """Return how far the latency of the queue's readers is below their bound; None if not known."""
    readers = [name for name, row in snapshot.pipeline.applications.items() if queue in row.queues]
    known = [slack for name in readers if (slack := compute_latency_slack(name, snapshot)) is not None]
    return min(known, default=None)


def _find_interval_seconds(queue: str, snapshot: Snapshot) -> float:
    loop = scope.find_ladder(queue, snapshot)
    return INTERVAL_SECONDS if loop is None else loop.interval_seconds or INTERVAL_SECONDS


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
    return [row for row in snapshot.pipeline.applications.values() if queue in row.queues]


def assess_levels(queue: str, snapshot: Snapshot) -> dict[str, LevelStatus]:
    """Return what each level can do for a queue."""
    return {
        **{level: assess_level(level, queue, snapshot) for level in LOOP_LEVELS},
        "throttle": LevelStatus(unavailable=_explain_no_throttling(queue, snapshot)),
        "shed": LevelStatus(unavailable=_explain_no_shedding(queue, snapshot)),
    }


def _explain_no_throttling(queue: str, snapshot: Snapshot) -> str:
    return "" if _compute_throttleable_rate(queue, snapshot) else f"no producer of {queue} can wait"


def _explain_no_shedding(queue: str, snapshot: Snapshot) -> str:
    if snapshot.queues.get(queue, UNKNOWN).kind == "jobs":
        return "events of a jobs queue are never shed"
    readers = {name: row for name, row in snapshot.pipeline.applications.items() if queue in row.queues}
    if not any(pattern.sheddable for row in readers.values() for pattern in row.patterns.values()):
        return f"no pattern that reads {queue} may drop events"
    loops = [loop for loop in snapshot.loops.values() if loop.law == SHEDDING.name]
    ours = [loop for loop in loops if loop.target.get("application") in readers]
    if ours and not any(loop.mode in Loop.ACTING for loop in ours):
        return f"load shedding is in {ours[0].mode}"
    return ""


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

    A level that is set manually throttles them all the time. A level with loops makes these decide at once when it is
    enabled. Shedding reads its permission from the loop's last entry (`workers.steering.scope`).
    """
    rung, by_hand = int(entry.action["rung"]), 1.0 if entry.mode == Loop.Mode.MANUAL else 0.0
    _throttle(rung, entry.action.get("closed_share", by_hand), loop, plant)
    if 0 < rung <= len(LOOP_LEVELS):
        queue, snapshot = loop.target["queue"], plant.observe()
        if rung > (scope.find_active_level(queue, snapshot) or 0):
            plant.request_decisions(find_helping_loops(LEVELS[rung - 1], queue, snapshot).keys())


def keep_throttling(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Keep the present level in force while another level cools down."""
    if entry.mode == Loop.Mode.AUTO and entry.limited_by == guard.COOL_DOWN:
        _throttle(int(entry.terms.get("rung", 0)), entry.terms.get("closed_share", 0.0), loop, plant)


def _throttle(rung: int, closed_share: float, loop: Loop, plant: Plant) -> None:
    if "plant" in loop.target:
        raise BadInput("mode", scope.LADDER_ADVISES)
    closed = closed_share if allows(rung, "throttle") else 0.0
    plant.throttle_queue(loop.target["queue"], closed * loop.interval_seconds)


def list_targets(present: kind.PlantInventory) -> kind.Targets:
    """Return one target for each queue and each attached plant."""
    topology = present.topology
    starts = {f"{LAW.name}/{queue}": kind.LoopStart({"queue": queue}) for queue in topology.queues}
    elsewhere = plant_ladder.build_loop_starts(LAW.name, present)
    return kind.Targets(
        {**starts, **elsewhere}, f"removed in revision {topology.revision}, or the plant no longer exists"
    )


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


KIND = kind.LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    actuator=engage,
    keeper=keep_throttling,
    targets=list_targets,
    interval_seconds=INTERVAL_SECONDS,
    # A measured rate lags by some seconds: a single check with less capacity than demand is no shortage.
    defaults=kind.LoopDefaults(mode=Loop.Mode.ADVISE, parameters={"unmet_decisions": 3}),
    display=kind.Display(
        kind.Lanes("Unmet demand, %", "Level", "enabled", scale=100.0, has_reference=False),
        of_each="queue, attached plant (advice only)",
        purpose=("Enables remedies for an overload, cheapest first, and disables them in reverse order."),
        formula=(
            "unmet = 1 - capacity / demand; one level up while unmet or backlog > "
            "backlog_bound_seconds, down while demand ≤ release_share · capacity"
        ),
        main=("cap", "backlog_bound_seconds", "release_share", "settling_decisions", "advice_seconds"),
        topics=(("Error budget", ("budget_seconds",)),),
        title="remedy ladder",
        measured="terms.unmet",
        terms=("rung", "unmet", "closed_share"),
        lasting="rung",
        is_news=False,
        amount=_level_of,
        past=_describe_action,
        brief=_describe_action,
        changes="the level",
        engaged=_is_engaged,
    ),
    tuning=kind.LoopTuning(scenario="ladder", advice=kind.AdviceMeasure("level", _list_advised_levels)),
)
