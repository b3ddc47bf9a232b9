"""The cost of an event by the number of tasks of its operator, learned from past sizes.

Tasks that share a resource slow each other down:  service(p) = c + d p,  d ≥ 0, so p tasks pass p / (c + d p) events/s,
which is r p / (1 + σ (p - 1)) with r = 1 / (c + d) and σ = d / (c + d). The line goes through the newest points by
least squares. Measurements are noisy (`NOISE` of the service), so the slope is drawn towards 0, more so the closer the
points are: a slope of `SLOPE` of the service is usual.

The tasks that each operator needs in each forecast window.

The module also says whether the current tasks suffice, and which choices exist.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from controllers.framework.law import Values
from controllers.parallelism.plan import Demand, Ints, Lateness
from controllers.parallelism.task_allocation import (
    EXACT,
    Path,
    QueueingOperator,
    allocate_fewest_tasks,
    find_lacking_path,
)

NOISE, SLOPE, REMEMBERED, NEWEST_WEIGHT = 0.02, 0.02, 4, 0.5


@dataclass(frozen=True)
class ScalingCurve:
    """service(p) = base + slope p, s."""

    base_seconds: float
    slope_seconds: float

    @classmethod
    def fit(cls, points: Mapping[int, float], tasks: int) -> "ScalingCurve":
        """Fit tasks → service (s), exactly through the point of `tasks`, which is measured now."""
        counts, services = np.asarray(list(points), dtype=float), np.asarray(list(points.values()))
        spread = float(((counts - counts.mean()) ** 2).sum())
        slope, now = 0.0, points[tasks]
        if spread > 0 and now > 0:
            slope = float(((counts - counts.mean()) * services).sum()) / spread
            slope *= SLOPE**2 / (SLOPE**2 + NOISE**2 / spread)
        # A task costs something, even where noise says that the others do all of it.
        slope = min(max(0.0, slope), 0.9 * now / tasks)
        return cls(now - slope * tasks, slope)

    def compute_service_seconds(self, tasks: float) -> float:
        return self.base_seconds + self.slope_seconds * tasks

    def compute_capacity_per_second(self, tasks: float) -> float:
        """Return the capacity of all tasks; infinite if service takes no time."""
        service = self.compute_service_seconds(tasks)
        return tasks / service if service > 0 else math.inf

    def compute_fewest_tasks(self, rate_per_second: float, utilisation: float) -> float:
        """Return the fewest tasks that pass this rate at this utilization; infinite if no number does."""
        room = utilisation - rate_per_second * self.slope_seconds
        if room <= 0:
            return math.inf
        return max(1, math.ceil(rate_per_second * self.base_seconds / room * (1 - EXACT)))


def remember(points: Mapping[int, float], tasks: int, service_seconds: float) -> dict[int, float]:
    """Return the points with this one, newest last; an earlier measurement there has half the weight."""
    before = points.get(tasks, service_seconds)
    kept = {count: service for count, service in points.items() if count != tasks}
    kept[tasks] = NEWEST_WEIGHT * service_seconds + (1 - NEWEST_WEIGHT) * before
    return dict(list(kept.items())[-REMEMBERED:])


Floats = npt.NDArray[np.float64]
# Utilization of a task with a backlog: slightly less than always busy.
BUSY = 0.99
# Capacities to choose from, between the lowest and the highest useful one.
LEVELS = 48
# Windows for which the current load is assumed to continue without a forecast.
GOES_ON = 10
# Throughput in events/s where nothing is offered.
UNLIMITED = 1e15
# Five points for a normal distribution (Gauss-Hermite): exact for polynomials up to degree 9.
DEVIATIONS, CHANCES = np.polynomial.hermite_e.hermegauss(5)


@dataclass(frozen=True)
class PlannedOperator:
    name: str
    row: Mapping[str, Any]
    curve: ScalingCurve
    share: float
    blocked_at: int | None  # more tasks than this did not help
    minimum: int
    maximum: int

    @property
    def limit(self) -> int:
        return self.maximum if self.blocked_at is None else self.blocked_at

    def is_within(self, tasks: int) -> bool:
        return self.minimum <= tasks <= self.maximum


def forecast(observation: Values) -> tuple[list[float], list[float]]:
    """Return means and deviations; without a forecast, the current load continues for a while."""
    means = observation["forecast_per_second"] or []
    deviations = observation["deviation_per_second"] or []
    return (
        (means, deviations) if means or deviations else ([observation["source_per_second"]] * GOES_ON, [0.0] * GOES_ON)
    )


def build_demand(parameters: Values, observation: Values, known: Sequence[PlannedOperator]) -> Demand:
    """Return the load that may be offered.

    A rate is never below 0 and errs by a factor rather than a sum, so its distribution is log-normal; that of the first
    step is at least the current load.
    """
    means, deviations = (np.asarray(window) for window in forecast(observation))
    means = np.maximum(means, 1e-9)
    spread = np.sqrt(np.log1p((deviations / means) ** 2))
    rates = means * np.exp(DEVIATIONS[:, None] * spread - spread**2 / 2)
    waiting = compute_largest_backlog(observation["paths"], known)
    again = _estimate_retries_per_second(parameters, observation, known, waiting)
    present = max(0.0, observation["source_per_second"] - again)
    rates[:, 0] = np.maximum(rates[:, 0], present)
    return Demand(rates, CHANCES / CHANCES.sum(), parameters["window_seconds"], present, waiting, again)


def _estimate_retries_per_second(
    parameters: Values, observation: Values, known: Sequence[PlannedOperator], backlog_events: float
) -> float:
    """Return the failed events that return.

    They are as measured, or everything waiting beyond the deadline, once per deadline.
    """
    failed = observation["failed_per_second"]
    if failed is not None:
        return float(failed)
    deadline = float(parameters["deadline_seconds"])
    tasks = np.asarray([operator.row["tasks"] for operator in known])
    return max(0.0, backlog_events / deadline - compute_capacity_per_second(known, tasks))


def compute_largest_backlog(paths: Sequence[Sequence[str]], known: Sequence[PlannedOperator]) -> float:
    """Return the largest backlog in events of the source; backlogs further down come out of it."""
    waiting = {
        operator.name: operator.row["backlog_events"] / operator.share if operator.share else 0.0 for operator in known
    }
    return max(waiting[name] for path in paths for name in path)


def build_lateness(parameters: Values, known: Sequence[PlannedOperator]) -> Lateness:
    """Return what an event costs; its work is that with the current tasks."""
    work = math.fsum(
        operator.share * operator.curve.compute_service_seconds(operator.row["tasks"]) for operator in known
    )
    return Lateness(parameters["deadline_seconds"], work, parameters["missed_cost"])


@dataclass(frozen=True)
class TaskNeeds:
    """The needed tasks (windows by operators), and the levels to choose from.

    The needs say whether the current tasks suffice in each window within the allowed maximum. A level has the tasks of
    each operator, and what they pass (events/s of the source). `short` lists operators of which the first window needs
    more than allowed.
    """

    needed: Ints
    keeps: list[bool]
    levels: Ints
    capacities: Floats
    capacity_now: float
    blocked: list[str]
    short: list[str]

    @classmethod
    def compute(
        cls, parameters: Values, observation: Values, known: Sequence[PlannedOperator], of: Demand
    ) -> "TaskNeeds":
        rates = compute_window_means(parameters, of)
        target = parameters["target_utilisation"]
        most = min(BUSY, target * (1 + parameters["tolerance"]))
        limits = np.asarray([operator.limit for operator in known], dtype=float)
        current = np.asarray([operator.row["tasks"] for operator in known])
        needed = [_keep_within_bound(parameters, observation["paths"], known, rate, target) for rate in rates]
        enough = [np.minimum(_compute_tasks(known, rate, most), limits) for rate in rates]
        asked = [operator.curve.compute_fewest_tasks(rates[0] * operator.share, most) for operator in known]
        may_stay = all(operator.is_within(operator.row["tasks"]) for operator in known)
        levels = _build_task_levels(known, of, limits)
        blocked = [
            each.name
            for each, need in zip(known, np.max(needed, axis=0), strict=True)
            if each.blocked_at is not None and need > each.blocked_at
        ]
        return cls(
            np.minimum(needed, limits).astype(np.int64),
            [may_stay and bool((window <= current).all()) for window in enough],
            levels,
            np.asarray([compute_capacity_per_second(known, level) for level in levels]),
            compute_capacity_per_second(known, current),
            blocked,
            [each.name for each, count in zip(known, asked, strict=True) if count > each.limit],
        )


def compute_steps_per_window(parameters: Values) -> int:
    return max(1, round(float(parameters["interval_seconds"]) / float(parameters["window_seconds"])))


def compute_window_means(parameters: Values, of: Demand) -> list[float]:
    expected, step = of.chances @ of.rates, compute_steps_per_window(parameters)
    return [float(expected[at : at + step].mean()) for at in range(0, expected.size, step)]


def _build_task_levels(known: Sequence[PlannedOperator], of: Demand, limits: Floats) -> Ints:
    """Return tasks for capacities from the forecast's minimum to all that may come with the backlog."""
    least = max(1e-9, float(of.rates.min()))
    most = float(of.rates.max()) * 1.5 + of.backlog_events / of.step_seconds
    rows = [
        np.minimum(_compute_tasks(known, rate, BUSY), limits)
        for rate in np.geomspace(least, max(most, 1.01 * least), LEVELS)
    ]
    return np.unique(np.asarray(rows, dtype=np.int64), axis=0)


def compute_capacity_per_second(known: Sequence[PlannedOperator], tasks: Ints) -> float:
    """Return what all operators pass of the source's events, in events/s."""
    passes = [
        BUSY * each.curve.compute_capacity_per_second(count) / each.share
        for each, count in zip(known, tasks.tolist(), strict=True)
        if each.share
    ]
    return max(1e-9, min([UNLIMITED, *passes]))


def _compute_tasks(known: Sequence[PlannedOperator], source: float, utilisation: float) -> Floats:
    wanted = [operator.curve.compute_fewest_tasks(source * operator.share, utilisation) for operator in known]
    return np.clip(wanted, [operator.minimum for operator in known], [operator.maximum for operator in known])


def _keep_within_bound(
    parameters: Values, paths: Sequence[Sequence[str]], known: Sequence[PlannedOperator], source: float, target: float
) -> Floats:
    least = _compute_tasks(known, source, target)
    operators = {each.name: _build_operator(each, source, int(count)) for each, count in zip(known, least, strict=True)}
    ways = []
    for path in paths:
        spent = math.fsum(operators[name].latency_seconds for name in path)
        ways.append(Path(tuple(path), parameters["bound_seconds"] - spent))
    kept = [way for way in ways if find_lacking_path(operators, [way]) is None]
    if not kept:
        return least
    tasks = allocate_fewest_tasks(operators, kept)
    return np.asarray([max(tasks[each.name], int(count)) for each, count in zip(known, least, strict=True)])


def _build_operator(each: PlannedOperator, source: float, least: int) -> QueueingOperator:
    service = each.curve.compute_service_seconds(least)
    load = source * each.share * service
    weight = load * service * each.row["variability"]
    latency = each.row["latency_seconds"]
    return QueueingOperator(each.name, int(each.row["tasks"]), weight, load, latency, least, each.maximum)


def estimate_slowest_path_seconds(observation: Values, known: Sequence[PlannedOperator], tasks: Ints) -> float | None:
    """Return the expected latency on the slowest path with these tasks and the current load.

    Return None if an operator can't keep up.
    """
    source, seconds = observation["source_per_second"], dict[str, float]()
    for each, count in zip(known, tasks.tolist(), strict=True):
        wait = _build_operator(each, source, count).wait_seconds(count)
        seconds[each.name] = each.row["latency_seconds"] + wait
    slowest = max(math.fsum(seconds[name] for name in path) for path in observation["paths"])
    return round(slowest, 6) if math.isfinite(slowest) else None
