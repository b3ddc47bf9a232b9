"""Shedding of an application's events when no other remedy helps.

The loop may act without approval, since it sheds only when the ladder of a queue that the application reads has
reached its last level. It keeps the types of the application's other queues (`list_protected_types`). The law receives
seconds of work as shares of what an operator can spend on its patterns (`OperatorLoad.available`): a utilization of 1
is all of it, whatever other work the operator has.
"""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Counters, Measurement
from controllers.shedding.inputs import PatternRow, ReducedTakes, Shares, SheddingObservation
from controllers.shedding.ladder import LEVELS
from controllers.shedding.law import LAW
from workers.control.parts.applications import check_measurement, find_application, list_application_targets
from workers.control.parts.kind import Display, Lanes, LoopDefaults, LoopKind, LoopTuning, PlantInventory, Targets
from workers.control.parts.offered_load import DRAIN_SECONDS, OperatorLoad, compute_latency_slack
from workers.control.parts.pattern_yield import MAX_SECONDS, PatternYield
from workers.documents.pipeline import ApplicationStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.objectives.error_budget import list_budgets
from workers.plants.plant import Plant
from workers.steering import scope

LASTING_INTERVALS = 20.0
SIGNIFICANT = 4  # digits of a share; a change of the fifth digit is not worth a new table


def measure_target(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return the law's observation of one application.

    It is invalid while no pattern that may be shed has worked recently. There is nothing to decide while it is unknown
    whether anything may be shed.
    """
    row = find_application(target, snapshot)
    quality = check_measurement(target, snapshot, now_seconds)
    if row is None:
        return Measurement.of(SheddingObservation(arrivals={}, patterns=(), sinks={}), quality, dict(before or {}))
    slack = compute_latency_slack(str(target.get("application")), snapshot)
    work = OperatorLoad(row, snapshot, max(DRAIN_SECONDS, slack or 0.0))
    shedding = scope.list_shedding_queues(row.queues, snapshot)
    names = _list_measured_patterns(work, bool(shedding))
    if not names and quality.invalid is None:
        quality = ObservationQuality(quality.age_seconds, "no pattern has processed an event in the last 10 s")
    if shedding is None and quality.invalid is None:
        quality = ObservationQuality(quality.age_seconds, idle="the remedy ladder has no valid measurement")
    yields = {name: PatternYield(name, before) for name in row.patterns}
    for name, pattern_yield in yields.items():
        pattern_yield.add(row.patterns[name], now_seconds - (before or {}).get("at", now_seconds - MAX_SECONDS))
    counters = {key: value for pattern_yield in yields.values() for key, value in pattern_yield.get_counters().items()}
    budgets = list_budgets("shed", snapshot, row.queues, {str(target.get("application"))})
    observation = SheddingObservation(
        arrivals={
            operator: {name: _round_significant(rate) for name, rate in types.items()}
            for operator, types in work.compute_arrivals().items()
        },
        patterns=tuple(_build_pattern(name, work, yields[name]) for name in names),
        sinks={
            row.patterns[name].emits: row.patterns[name].weight
            for name in names
            if row.sinks.get(row.patterns[name].emits)
        },
        service_cv2=row.batch_overhead_cv2,
        batch_seconds=round(work.batch_seconds, 3),
        rows_per_second=_round_significant(work.rows_per_second) or None,
        latency_seconds=row.latency_p95_seconds,
        elsewhere_seconds=round(work.elsewhere_seconds, 3),
        permitted=bool(shedding),
        protected=dict.fromkeys(list_protected_types(row, shedding or [], snapshot), True),
        budgets=tuple(budgets) or None,
    )
    return Measurement.of(observation, quality, {**counters, "at": now_seconds})


def list_protected_types(row: ApplicationStatus, shedding: list[str], snapshot: Snapshot) -> list[str]:
    """Return the types that must be kept, because they come from queues that do not shed.

    The samples of producers show the types of a queue. A type that also comes from a queue that sheds may be dropped,
    unless a person has capped the ladder of its other queue: such a queue loses no events, so while its types are
    unknown, all types are kept.
    """
    others = [queue for queue in row.queues if queue not in shedding] if shedding else []
    capped = [queue for queue in others if (ladder := scope.find_ladder(queue, snapshot)) and ladder.cap != LEVELS[-1]]
    if any(_has_arrivals(queue, snapshot) and not _list_sampled_types(queue, snapshot) for queue in capped):
        return sorted({name for pattern in row.patterns.values() for name in pattern.types})
    shed = {name for queue in shedding for name in _list_sampled_types(queue, snapshot)}
    kept = {name for queue in others for name in _list_sampled_types(queue, snapshot)} - shed
    return sorted(kept | {name for queue in capped for name in _list_sampled_types(queue, snapshot)})


def _has_arrivals(queue: str, snapshot: Snapshot) -> bool:
    status = snapshot.queues.get(queue)
    return status is not None and status.in_per_second != 0


def _list_sampled_types(queue: str, snapshot: Snapshot) -> set[str]:
    samples = (producer.samples.get(queue) for producer in snapshot.producers.values())
    return {name for sample in samples if sample is not None for name in sample.type}


def _list_measured_patterns(work: OperatorLoad, may_shed: bool) -> list[str]:
    """List the patterns for a new table: those that have worked recently.

    Ending shedding requires no measurement: then, and when nothing arrives at all, the list has every pattern.
    """
    every = list(work.iterate_sheddable_patterns())
    measured = [name for name in every if work.has_worked(name)]
    return measured or (every if work.is_idle or not may_shed else [])


def _build_pattern(name: str, work: OperatorLoad, found: PatternYield) -> PatternRow:
    row = work.row.patterns[name]
    operator, wanted = row.operator, work.compute_wanted(name)
    rates = work.compute_rates(operator)
    counts_events = found.is_crowded and found.knows_needs(row.expression)
    takes = {} if counts_events else found.takes(wanted)
    ways = [takes]
    for kept, survival in found.list_reduced(wanted) if takes else ():
        ways.append({event_type: takes[event_type] * share / survival for event_type, share in kept.items()})
    # The law knows one rate of a type at an operator, but a pattern may need only a part of it. If a pattern receives
    # all events, each match consumes proportionally more of them and each event costs proportionally less.
    parts = {event_type: wanted[event_type] / rates[event_type] for event_type in wanted if rates[event_type]}
    whole = sum(rates[event_type] for event_type in wanted)
    part = sum(wanted.values()) / whole if whole else 1.0
    share = part * found.seconds / work.count_tasks(operator) / work.compute_availability(operator)
    rounded = [
        {
            event_type: _round_significant(events / parts[event_type])
            for event_type, events in way.items()
            if parts.get(event_type)
        }
        for way in ways
    ]
    return PatternRow(
        operator=operator,
        name=name,
        expression=row.expression,
        emits=row.emits,
        seconds=_round_significant(share),
        correction=_round_significant(found.compute_correction(row.expression)),
        takes=rounded[0],
        reduced=tuple(ReducedTakes(takes=takes) for takes in rounded[1:]),
    )


def collect_readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which a table is judged: latency and loss."""
    row = find_application(target, snapshot)
    if row is None:
        return None
    return {"latency_seconds": row.latency_p95_seconds, "shed_share": row.shed_share, "node_state": None}


def _round_significant(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT}g}")


def shed(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Replace the table in force with the entry's table; a pattern that sheds nothing needs no row.

    Where the law counts arrivals per match, events are shed by key: the share of kept matches then equals the share of
    kept keys. Where it counts the events that an expression needs, single events are shed. The smallest share of a
    pattern is that of the keys (`patterns.shedding`), so a protected type, of which nothing is shed, is left out.
    """
    declared = {**entry.parameters["never_shed"], **entry.observation.get("protected", {})}
    protected = {name for name, is_protected in declared.items() if is_protected}
    table, reduced = (_build_table(entry.action.get(name, {}), protected) for name in ("shed", "reduced"))
    unit = "key" if entry.parameters["needs"] == "measured" else "event"
    until = {"shed_until_seconds": _compute_end(entry, loop)}
    rows = entry.observation["patterns"]
    events_of = {row["name"]: True for row in rows if row["name"] in {*table, *reduced} and not row.get("takes")}
    how = {"shed": table, "shed_by": unit, "shed_events_of": events_of}
    limit = {"shed_rows": entry.action.get("rows"), "shed_reduced": reduced}
    plant.steer_pipeline(loop.target["application"], {**how, **limit, **until})


def _build_table(shares: Shares, protected: set[str]) -> dict[str, dict[str, float]]:
    """Return the rows of the patterns that shed, without protected types."""
    return {
        pattern: {name: share for name, share in types.items() if protected.isdisjoint((name, name.partition("[")[0]))}
        for pattern, types in shares.items()
        if any(share > 0 for share in types.values())
    }


def keep_table(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Extend the table in force while the loop measures.

    The table of a loop that is on hold or has no valid observation expires, because it is unknown whether shedding is
    still needed.
    """
    if entry.mode == Loop.Mode.AUTO and entry.terms.get("work_shed"):
        plant.steer_pipeline(loop.target["application"], {"shed_until_seconds": _compute_end(entry, loop)})


def _compute_end(entry: LedgerEntry, loop: Loop) -> float:
    """Return the expiry: the latency bound, but at least some missed ticks."""
    bound = float(entry.parameters["latency_bound_seconds"])
    return entry.at.timestamp() + max(bound, LASTING_INTERVALS * loop.interval_seconds)


def list_targets(present: PlantInventory) -> Targets:
    """Return one target for each running application."""
    return list_application_targets(LAW.name, present)


def _find_max_shed_share(action: Mapping[str, Any]) -> float:
    shares = (share for types in action.get("shed", {}).values() for share in types.values())
    return max(shares, default=0.0)


def _describe_action(action: Mapping[str, Any]) -> str:
    most = _find_max_shed_share(action)
    return f"set shedding to up to {100 * most:.0f} % of a type" if most else "stopped shedding"


KIND = LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    actuator=shed,
    keeper=keep_table,
    targets=list_targets,
    # With each snapshot: the law itself reacts only to what has changed.
    interval_seconds=1,
    # Patterns of an application have keys, and an event serves its own key only.
    defaults=LoopDefaults(parameters={"latency_bound_seconds": 15.0, "needs": "measured", "spare": "admit"}),
    display=Display(
        Lanes("Age of processed events, p95, s", "Share of the work shed", "shed", bounded=True),
        of_each="application",
        purpose=("Drops the least valuable events while the pipeline cannot meet its latency bound."),
        formula=(
            "maximize Σ weight · output such that work ≤ budget of every operator; budget from "
            "latency_bound_seconds by M/G/1"
        ),
        main=("latency_bound_seconds", "utilisation_budget", "perspective", "spare", "deviation_rates"),
        topics=(("Table", ("deviation_processing", "service_cv2", "needs")), ("Error budget", ("budget_seconds",))),
        title="load shedding",
        measured="observation.latency_seconds",
        setpoints=("latency_bound_seconds", "utilisation_budget"),
        terms=("work_shed", "work_offered"),
        lasting="work_shed",
        amount=_find_max_shed_share,
        past=_describe_action,
        brief=_describe_action,
        changes="shedding",
    ),
    tuning=LoopTuning(scenario="shedding"),
)
