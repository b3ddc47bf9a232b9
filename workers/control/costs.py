"""Costs of a loop and its baselines on the recorded load, and of holds; in money where priced.

The load is the arrivals of each second from the ledger's observations. It is processed on the plant model that responds
to decisions (`LoadReplay`): by the law with the values in force, by each baseline, and by the law with the recorded
holds, during which no decisions were applied. The amounts are therefore comparable. They are not a bill: effects that
the model lacks (a slow handler, a failing node) are not included.

    worker-hours = runs · seconds of a run / 3600,   seconds of a run = Σ running·Δt / Σ started (recorded)
    cost = worker-hours · price.worker_hour + late seconds · price.delay_second

A late second is one in which the oldest event waits longer than allowed. Without a price, the amount is None, never 0.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import redis
from numpy.typing import NDArray

from common.errors import BadInput
from common.parameter import build
from controllers import catalog
from workers.control.kinds.registry import KINDS
from workers.control.ledger import folds
from workers.control.parts.kind import LoadReplay, Observed, Seconds
from workers.documents.pipeline import ApplicationStatus, PatternStatus
from workers.documents.snapshot import Snapshot
from workers.history import metric_history, snapshot_archive
from workers.models import Loop
from workers.steering import overrides
from workers.steering.prices import Prices, compute_cost, load_prices, sum_known

FIRST_HOURS = 1.0
MAX_HOURS = 6.0
MAX_PLANT_HOURS = 2.0  # longest range read by the second (workers.history.metric_history)
BUSY = ("totals.workers_at_work", "totals.nodes_in_use")
MIN_SECONDS = 60
BUDGET_SECONDS = 10.0
# A longer pause in the record does not mean an even load, so it is left out.
MAX_GAP_SECONDS = 30.0
MAX_ROW_SECONDS = 5.0  # the longest time that a row of the history represents


@dataclass(frozen=True, kw_only=True)
class CostSide:
    """Result of one law or baseline on the load. worker_hours: None where no run duration is recorded."""

    name: str
    words: str
    runs: float
    worker_hours: float | None
    late_seconds: float
    workers_cost: float | None
    late_cost: float | None
    cost: float | None


@dataclass(frozen=True, kw_only=True)
class CostDifference:
    """Additional cost of an alternative compared with the law, negative where the alternative is cheaper.

    Money is None where a price is missing.
    """

    side: CostSide
    worker_hours: float | None
    late_seconds: float
    cost: float | None


@dataclass(frozen=True, kw_only=True)
class LoopCosts:
    """Costs of a loop and its alternatives.

    recorded_seconds: the part of the requested hours that the record covers. run_seconds: average duration of a run.
    held_seconds: time during which the loop was on hold. holds: the law with those holds; None without any.
    """

    hours: float
    recorded_seconds: int
    run_seconds: float | None
    prices: Prices
    law: CostSide
    baselines: Sequence[CostDifference]
    held_seconds: int
    holds: CostDifference | None


@dataclass(frozen=True)
class RecordedTimeRange:
    """A part of the record without a gap: its load, and the seconds during which the loop was on hold."""

    inflow: NDArray[np.float64]
    hold_seconds: Seconds


def compute_loop_costs(
    loop: Loop, hours: float, now: datetime, monotonic: Callable[[], float], budget_seconds: float = BUDGET_SECONDS
) -> LoopCosts:
    """Compute the costs of a loop and its baselines.

    Raises BadInput naming `hours`, or naming `loop` where its kind has no baseline, no record, or too long a record.
    """
    if not 0.0 < hours <= MAX_HOURS:
        raise BadInput("hours", f"must be above 0 and at most {MAX_HOURS:g}, not {hours:g}.")
    kind = KINDS.get(loop.law)
    replay = None if kind is None or "plant" in loop.target else kind.tuning.replay
    if replay is None:
        known = ", ".join(name for name, kind in KINDS.items() if kind.tuning.replay is not None)
        raise BadInput("loop", f"{loop.name} has no baseline to replay. Laws with a baseline: {known}.")
    entries = folds.iterate_ticks(
        loop.entries.all(), now - timedelta(hours=hours), now, only=("at", "mode", "observation")
    )
    rows = sorted(((entry.at, entry.mode, entry.observation) for entry in entries), key=itemgetter(0))
    rows = [(at, mode, seen) for at, mode, seen in rows if seen and not seen.get("unfit")]
    parts: list[list[Row]] = []
    for row in rows:
        if not replay.reads <= row[2].keys():
            continue
        if not parts or (row[0] - parts[-1][-1][0]).total_seconds() > MAX_GAP_SECONDS:
            parts.append([])
        parts[-1].append(row)
    ranges = (_build_time_range(part, replay) for part in parts)
    stretches = [range_ for range_ in ranges if len(range_.inflow)]
    seconds = sum(len(stretch.inflow) for stretch in stretches)
    if seconds < MIN_SECONDS:
        raise BadInput(
            "loop",
            f"{loop.name} has only {seconds} s of recorded data in that time. At least {MIN_SECONDS} s are needed.",
        )
    law = catalog.get_law(loop.law)
    values = overrides.get_effective_parameters(law, loop.parameters, overrides.list_effective(loop, now), now)
    parameters = build(law.Parameters, values)
    run_seconds = compute_run_seconds(rows)
    prices, end = load_prices(), monotonic() + budget_seconds

    def replay_side(name: str, words: str, with_holds: bool = False) -> CostSide:
        if monotonic() >= end:
            raise BadInput("hours", f"take longer than {budget_seconds:g} s to replay. Request fewer hours.")
        done = [
            replay.worked(parameters, stretch.inflow, name, stretch.hold_seconds if with_holds else None)
            for stretch in stretches
        ]
        runs, late = sum(worked.runs for worked in done), sum(worked.late_seconds for worked in done)
        hours = None if run_seconds is None else runs * run_seconds / 3600
        workers_cost, late_cost = compute_cost(hours, prices.worker_hour), compute_cost(late, prices.delay_second)
        return CostSide(
            name=name,
            words=words,
            runs=runs,
            worker_hours=hours,
            late_seconds=late,
            workers_cost=workers_cost,
            late_cost=late_cost,
            cost=sum_known((workers_cost, late_cost)),
        )

    ours = replay_side(loop.law, "the law with the current values")
    held = int(sum(stretch.hold_seconds.sum() for stretch in stretches))
    with_holds = replay_side(loop.law, "the law with the recorded holds", with_holds=True) if held else None
    return LoopCosts(
        hours=hours,
        recorded_seconds=seconds,
        run_seconds=run_seconds,
        prices=prices,
        law=ours,
        baselines=[_compute_excess(ours, replay_side(name, words)) for name, words in replay.baselines.items()],
        held_seconds=held,
        holds=None if with_holds is None else _compute_excess(ours, with_holds),
    )


class LostEvents(NamedTuple):
    """Shed events. by_type: how often patterns lost an event of a type; an event may serve several patterns."""

    total: int
    by_type: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class PlantCosts:
    """Resources that the plant used in some hours.

    measured_seconds: the part of them that was observed. task_hours: of the operators that exist now. lost_events: the
    number of shed events; None where no snapshot is left to count from.
    """

    hours: float
    measured_seconds: float
    worker_hours: float | None
    node_hours: float | None
    task_hours: float | None
    lost_events: int | None
    workers_cost: float | None
    nodes_cost: float | None
    tasks_cost: float | None
    lost_cost: float | None


def compute_plant_costs(
    control: redis.Redis, data: Path, newest: Snapshot | None, hours: float, now: datetime
) -> PlantCosts:
    """Compute the resources used in the last hours. Raises BadInput naming `hours`."""
    if not 0.0 < hours <= MAX_PLANT_HOURS:
        raise BadInput("hours", f"must be above 0 and at most {MAX_PLANT_HOURS:g}, not {hours:g}.")
    until = now.timestamp()
    since, prices = until - 3600 * hours, load_prices()
    applications = newest.pipeline.applications if newest is not None else {}
    tasks = [
        f"pipeline.applications.{name}.operators.{operator}.parallelism"
        for name, application in applications.items()
        for operator in application.operators
    ]
    rows = metric_history.read_columns(control, data, since, until, (*BUSY, *tasks))
    measured, used = compute_used_seconds(rows["at"], [rows[name] for name in (*BUSY, *tasks)])
    worker_hours, node_hours, *operators = (None if usage is None else usage / 3600 for usage in used)
    known = [hours for hours in operators if hours is not None]
    task_hours = sum(known) if known else None
    lost = count_lost_events(snapshot_archive.snapshot_at(data, since), newest)
    return PlantCosts(
        hours=hours,
        measured_seconds=measured,
        worker_hours=worker_hours,
        node_hours=node_hours,
        task_hours=task_hours,
        lost_events=lost.total if lost else None,
        workers_cost=compute_cost(worker_hours, prices.worker_hour),
        nodes_cost=compute_cost(node_hours, prices.node_hour),
        tasks_cost=compute_cost(task_hours, prices.task_hour),
        lost_cost=compute_cost(lost.total, prices.compute_lost_event_price(lost.by_type)) if lost else None,
    )


def compute_used_seconds(
    at: Sequence[float | None], columns: Sequence[Sequence[float | None]]
) -> tuple[float, list[float | None]]:
    """Return the observed seconds and, for each column, the integral of its value over time.

    Each row counts until the next one, but for at most MAX_ROW_SECONDS. The integral is None for a column that was
    never known.
    """
    times = np.array(at, dtype=float)
    lasted = np.minimum(np.diff(times), MAX_ROW_SECONDS)
    sums: list[float | None] = []
    for column in columns:
        values = np.array(column, dtype=float)[:-1]
        known = ~np.isnan(values)
        sums.append(float(np.sum(values[known] * lasted[known])) if known.any() else None)
    return float(lasted.sum()), sums


def count_lost_events(then: Snapshot | None, now: Snapshot | None) -> LostEvents | None:
    """Count the events that were shed between two snapshots. A counter that was reset counts from zero."""
    if then is None or now is None:
        return None
    total, by_type = 0, Counter[str]()
    for name, application in now.pipeline.applications.items():
        before = then.pipeline.applications.get(name, ApplicationStatus())
        total += _compute_growth(before.shed_events, application.shed_events)
        for pattern, row in application.patterns.items():
            counted = before.patterns.get(pattern, PatternStatus()).shed_events
            for kind, count in row.shed_events.items():
                by_type[kind] += _compute_growth(counted.get(kind, 0), count)
    return LostEvents(total, by_type)


def _compute_growth(before: int, after: int) -> int:
    return after - before if after >= before else after


def _compute_excess(ours: CostSide, other: CostSide) -> CostDifference:
    hours = (other.worker_hours, ours.worker_hours)
    return CostDifference(
        side=other,
        worker_hours=None if None in hours else (hours[0] or 0.0) - (hours[1] or 0.0),
        late_seconds=other.late_seconds - ours.late_seconds,
        cost=None if other.cost is None or ours.cost is None else other.cost - ours.cost,
    )


Row = tuple[datetime, str, Mapping[str, Any]]


def compute_run_seconds(rows: Sequence[Row]) -> float | None:
    """Return the average duration of a worker run: busy process time divided by the runs started.

    None where either is not recorded.
    """
    busy, started = 0.0, 0.0
    for (before, _, _), (at, _, seen) in itertools.pairwise(rows):
        lasted = (at - before).total_seconds()
        if lasted <= MAX_GAP_SECONDS and "running" in seen:
            busy, started = busy + seen["running"] * lasted, started + seen.get("started", 0)
    return busy / started if busy and started else None


def _build_time_range(rows: Sequence[Row], replay: LoadReplay) -> RecordedTimeRange:
    observed: list[Observed] = [(at.timestamp(), seen) for at, _, seen in rows]
    inflow = replay.load(observed)
    # The mode of each second is the mode of the last tick before it.
    at = np.array([when for when, _ in observed])
    is_held = np.array([mode == Loop.Mode.HOLD for _, mode, _ in rows])
    seconds = np.floor(at[0]) + np.arange(len(inflow)) if len(rows) else np.zeros(0)
    last = np.clip(np.searchsorted(at, seconds, side="right") - 1, 0, None)
    return RecordedTimeRange(inflow, is_held[last] if len(inflow) else np.zeros(0, dtype=bool))
