"""What is shed of an application when nothing else helps.

It may act by itself, since it does only where the ladder of every queue it reads has come to its last level.
Seconds of work are given to the law as shares of what an operator can spend on its patterns
(`OperatorLoad.available`): a utilisation of 1 is all of it, whatever else it does.
"""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed
from controllers.shedding.law import LAW
from workers.control.parts.applications import application, check_measurement, list_application_targets
from workers.control.parts.budgets import budgets, observe_budgets
from workers.control.parts.kind import Display, Lanes, LoopKind, Targets
from workers.control.parts.offered_load import OperatorLoad
from workers.control.parts.pattern_yield import MOST_SECONDS, PatternYield
from workers.control.parts.present import Present
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant
from workers.steering import ladder_level

LASTING_INTERVALS = 10.0
SIGNIFICANT = 4  # digits: a table isn't made anew for the fifth


def sensor(
    target: Mapping[str, Any], snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Sensed:
    """The law's observation of one application; invalid while no pattern that may be shed worked lately, and
    nothing to decide on while it is not known whether anything may be shed.
    """
    row = application(target, snapshot)
    quality = check_measurement(target, snapshot, now_seconds)
    if row is None:
        return Sensed({"arrivals": {}, "patterns": [], "sinks": {}}, quality, dict(before or {}))
    work = OperatorLoad(row, snapshot)
    may_shed = ladder_level.may_shed(row.queues, snapshot)
    names = _list_measured_patterns(work, may_shed is True)
    if not names and quality.invalid is None:
        quality = Measured(quality.age_seconds, "no pattern has worked an event in the last 10 s")
    if may_shed is None and quality.invalid is None:
        quality = Measured(quality.age_seconds, idle="the remedy ladder has no valid measurement")
    yields = {name: PatternYield(name, before) for name in row.patterns}
    for name, pattern_yield in yields.items():
        pattern_yield.add(
            row.patterns[name], now_seconds - (before or {}).get("at", now_seconds - MOST_SECONDS)
        )
    counters = {
        key: value for pattern_yield in yields.values() for key, value in pattern_yield.counters().items()
    }
    observation = {
        "arrivals": {
            operator: {name: _short(rate) for name, rate in types.items()}
            for operator, types in work.arrivals().items()
        },
        "patterns": [_pattern(name, work, yields[name]) for name in names],
        "sinks": {row.patterns[name].emits: 1.0 for name in names if row.sinks.get(row.patterns[name].emits)},
        "service_cv2": row.batch_overhead_cv2,
        "bottleneck": None,
        "batch_seconds": round(work.batch_seconds, 3),
        "latency_seconds": row.latency_p95_seconds,
        "elsewhere_seconds": round(work.elsewhere_seconds, 3),
        "permitted": may_shed is True,
        **observe_budgets(budgets("shed", snapshot, row.queues, {str(target.get("application"))})),
    }
    return Sensed(observation, quality, {**counters, "at": now_seconds})


def _list_measured_patterns(work: OperatorLoad, may_shed: bool) -> list[str]:
    """The patterns that a table is made of: those that have worked lately. To end shedding nothing has to be
    measured: then, or when nothing comes at all, every one.
    """
    every = list(work.sheddable())
    found = [name for name in every if work.has_worked(name)]
    return found or (every if work.is_idle or not may_shed else [])


def _pattern(name: str, work: OperatorLoad, found: PatternYield) -> dict[str, Any]:
    row = work.row.patterns[name]
    operator, wanted = row.operator, work.compute_wanted(name)
    rates = work.rates(operator)
    takes = found.takes(wanted)
    # The law knows one rate of a type at an operator; a pattern may want a part of it only. Given all alike,
    # each match takes as much more of it, and each event costs as much less.
    parts = {event_type: wanted[event_type] / rates[event_type] for event_type in wanted if rates[event_type]}
    whole = sum(rates[event_type] for event_type in wanted)
    part = sum(wanted.values()) / whole if whole else 1.0
    share = part * found.seconds / work.tasks(operator) / work.available(operator)
    return {
        "operator": operator,
        "name": name,
        "expression": row.expression,
        "emits": row.emits,
        "seconds": _short(share),
        "outputs": 1.0,
        "correction": _short(found.correction(row.expression)),
        "limit": None,
        "takes": {
            event_type: _short(takes[event_type] / parts[event_type])
            for event_type in takes
            if parts.get(event_type)
        },
    }


def readings(target: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any] | None:
    """What a table is judged by: how long events take, and what is lost."""
    row = application(target, snapshot)
    if row is None:
        return None
    return {
        "latency_seconds": row.latency_p95_seconds,
        "shed_share": row.shed_share,
        "node_state": None,
    }


def _short(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT}g}")


def shed(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Put the entry's table in place of the one in force; a share of 0 needs no row. By key where the law
    counts what comes per match: so many matches are left as it keeps of their events.
    """
    shares = {
        pattern: {name: share for name, share in types.items() if share > 0}
        for pattern, types in entry.action["shed"].items()
    }
    table = {pattern: types for pattern, types in shares.items() if types}
    unit = "key" if entry.parameters["needs"] == "measured" else "event"
    until = {"shed_until_seconds": _compute_end(entry, loop)}
    plant.steer_pipeline(loop.target["application"], {"shed": table, "shed_by": unit, **until})


def keep_table(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """The loop has measured, and stands behind its table. One that is held, or sees nothing valid, does not:
    its table lapses, since nobody knows whether anything has still to be dropped.
    """
    if entry.mode == Loop.Mode.AUTO and entry.terms.get("work_shed"):
        plant.steer_pipeline(loop.target["application"], {"shed_until_seconds": _compute_end(entry, loop)})


def _compute_end(entry: LedgerEntry, loop: Loop) -> float:
    """The latency bound, but no sooner than some ticks may be missed."""
    bound = float(entry.parameters["latency_bound_seconds"])
    return entry.at.timestamp() + max(bound, LASTING_INTERVALS * loop.interval_seconds)


def targets(present: Present) -> Targets:
    """Each application at work."""
    return list_application_targets(LAW.name, present)


def _most_shed(action: Mapping[str, Any]) -> float:
    shares = (share for types in action.get("shed", {}).values() for share in types.values())
    return max(shares, default=0.0)


def _words(action: Mapping[str, Any]) -> str:
    most = _most_shed(action)
    return f"set shedding to up to {100 * most:.0f} % of a type" if most else "stopped shedding"


KIND = LoopKind(
    law=LAW,
    sensor=sensor,
    readings=readings,
    actuator=shed,
    keeper=keep_table,
    targets=targets,
    interval_seconds=2,
    # Patterns of an application have keys: an event serves its own, and none is too many.
    parameters={"latency_bound_seconds": 15.0, "needs": "measured"},
    display=Display(
        Lanes("Age of events when worked, p95, s", "Share of the work shed", "shed"),
        of_each="application",
        purpose=(
            "Drops the events that the sinks miss least while the pipeline can't keep its latency bound."
        ),
        formula=(
            "maximise Σ weight · output such that work ≤ budget of every operator; budget from "
            "latency_bound_seconds by M/G/1"
        ),
        main=("latency_bound_seconds", "utilisation_budget", "perspective", "spare", "deviation_rates"),
        topics=(
            ("Table", ("deviation_processing", "service_cv2", "needs")),
            ("Error budget", ("budget_seconds",)),
        ),
        title="load shedding",
        measured="observation.latency_seconds",
        setpoints=("latency_bound_seconds", "utilisation_budget"),
        terms=("work_shed", "work_offered"),
        lasting="work_shed",
        amount=_most_shed,
        past=_words,
        brief=_words,
    ),
    scenario="shedding",
)
