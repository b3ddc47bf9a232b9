"""The inputs of the joint law, and the tasks that each operator needs in each forecast window.

The module also says whether the current tasks suffice, and which choices exist. The cost of an event by the number of
tasks of its operator is learned from past sizes (`ScalingCurve`). Tasks that share a resource slow each other down:

    service(p) = c + d p,  d ≥ 0

so p tasks pass p / (c + d p) events/s, which is r p / (1 + σ (p - 1)) with r = 1 / (c + d) and σ = d / (c + d). The
line goes through the newest points by least squares. Measurements are noisy (`NOISE` of the service), so the slope is
drawn towards 0, more so the closer the points are: a slope of `SLOPE` of the service is usual.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from common.parameter import value
from controllers.parallelism.inputs import Paths, PlantMaximum, PlantMinimum
from controllers.parallelism.measured_topology import MAX_TASKS
from controllers.parallelism.plan import Demand, Ints, Lateness
from controllers.parallelism.task_allocation import (
    EXACT,
    Path,
    QueueingOperator,
    allocate_fewest_tasks,
    find_lacking_path,
)

Floats = npt.NDArray[np.float64]
NOISE, SLOPE, REMEMBERED, NEWEST_WEIGHT = 0.02, 0.02, 4, 0.5
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


class JointParameters(msgspec.Struct, frozen=True, kw_only=True):
    bound_seconds: Annotated[float, value("s", "Maximum latency of every path under the expected load.", 1e-9, 1e6)] = (
        1.0
    )
    minimum: Annotated[int, value("tasks", "Minimum tasks of each operator.", 1, MAX_TASKS)] = 1
    maximum: Annotated[int, value("tasks", "Maximum tasks of each operator.", 1, MAX_TASKS)] = 10
    target_utilisation: Annotated[
        float, value("utilization", "Target utilization of each task after a change.", 0.1, 0.99)
    ] = 0.8
    tolerance: Annotated[
        float, value("share of the target", "Excess above the target up to which the current tasks suffice.", 0, 1)
    ] = 0.2
    missed_cost: Annotated[float, value("multiple of its work", "Cost of a late event.", 0, 1e6)] = 8.0
    deadline_seconds: Annotated[float, value("s", "Waiting time after which an event counts as failed.", 1e-3, 1e6)] = (
        60.0
    )
    window_seconds: Annotated[float, value("s", "Length of a forecast window.", 1e-3, 1e7)] = 60.0
    interval_seconds: Annotated[float, value("s", "Time between decisions; tasks change no more often.", 1e-3, 1e7)] = (
        60.0
    )
    pause_seconds: Annotated[float, value("s", "Time that a change stops all processing.", 0, 1e5)] = 20.0
    change_seconds: Annotated[float, value("s", "Additional cost of a change, over all tasks.", 0, 1e5)] = 5.0
    tasks_of: Annotated[
        dict[str, Annotated[int, value("tasks", "Tasks of this operator.", 1, MAX_TASKS)]],
        value("tasks", "Tasks by operator, as set by a user."),
    ] = {}
    effective_share: Annotated[
        float, value("share", "Share of the expected gain below which a rescale has failed.", 0, 1)
    ] = 0.3
    blocked_seconds: Annotated[float, value("s", "Time until an ineffective change is tried again.", 0, 1e7)] = 1800.0

    @property
    def steps_per_window(self) -> int:
        """Return the forecast steps between two decisions."""
        return max(1, round(float(self.interval_seconds) / float(self.window_seconds)))


class JointRow(msgspec.Struct, frozen=True, kw_only=True):
    tasks: Annotated[int, value("tasks", "Current tasks.", 1, MAX_TASKS)]
    rate_per_second: Annotated[
        float | None, value("events/s", "Load offered to all its tasks; null: not measured.")
    ] = None
    service_seconds: Annotated[
        float | None, value("s", "Service time of an event in a task; null: not measured.", 0, 1e6)
    ] = None
    backlog_events: Annotated[float, value("events", "Events waiting for the operator.", 0, 1e15)] = 0.0
    variability: Annotated[float, value("mean of c²", "Variability of arrivals and service.", 0, 1e6)] = 1.0
    latency_seconds: Annotated[
        float, value("s", "Time that an event spends in the operator besides waiting.", 0, 1e6)
    ] = 0.0
    minimum: PlantMinimum = 1
    maximum: PlantMaximum = MAX_TASKS

    @property
    def is_measured(self) -> bool:
        return self.rate_per_second is not None and self.service_seconds is not None

    @property
    def rate(self) -> float:
        """Return the rate of a measured operator."""
        return self.rate_per_second or 0.0

    @property
    def service(self) -> float:
        """Return the service time of a measured operator."""
        return self.service_seconds or 0.0


class JointObservation(msgspec.Struct, frozen=True, kw_only=True):
    at_seconds: Annotated[float, value("s", "Time of the observation.")]
    source_per_second: Annotated[float, value("events/s", "Load offered now.")]
    failed_per_second: Annotated[
        float | None, value("events/s", "Failed events that are sent again; null: not measured.")
    ] = None
    forecast_per_second: Annotated[
        tuple[float, ...] | None, value("events/s", "Expected load in each window.", most=1_000)
    ] = None
    deviation_per_second: Annotated[tuple[float, ...] | None, value("events/s", "Standard deviation of the load.")] = (
        None
    )
    change_pause_seconds: Annotated[
        float | None,
        value("s", "Measured time that a change stops processing, such as a rebalance; null: not measured.", 0, 1e5),
    ] = None
    paths: Paths
    operators: Annotated[
        dict[str, Annotated[JointRow, value("operator", "Measurements of one operator.")]],
        value("by name", "Measurements by operator."),
    ]

    def forecast(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return means and deviations; without a forecast, the current load continues for a while."""
        means, deviations = self.forecast_per_second or (), self.deviation_per_second or ()
        return (means, deviations) if means or deviations else ([self.source_per_second] * GOES_ON, [0.0] * GOES_ON)


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


@dataclass(frozen=True)
class PlannedOperator:
    """An operator as the plan sees it."""

    name: str
    row: JointRow
    curve: ScalingCurve
    share: float
    blocked_at: int | None  # more tasks than this did not help
    minimum: int
    maximum: int

    @property
    def limit(self) -> int:
        """Return the maximum tasks now."""
        return self.maximum if self.blocked_at is None else self.blocked_at

    def build_queueing_operator(self, source_per_second: float, least: int) -> QueueingOperator:
        service = self.curve.compute_service_seconds(least)
        load = source_per_second * self.share * service
        weight = load * service * self.row.variability
        return QueueingOperator(self.name, self.row.tasks, weight, load, self.row.latency_seconds, least, self.maximum)


def build_demand(
    parameters: JointParameters, observation: JointObservation, known: Sequence[PlannedOperator]
) -> Demand:
    """Return the load that may be offered.

    A rate is never below 0 and errs by a factor rather than a sum, so its distribution is log-normal; that of the first
    step is at least the current load.
    """
    means, deviations = (np.asarray(window) for window in observation.forecast())
    means = np.maximum(means, 1e-9)
    spread = np.sqrt(np.log1p((deviations / means) ** 2))
    rates = means * np.exp(DEVIATIONS[:, None] * spread - spread**2 / 2)
    # The largest backlog in events of the source; backlogs further down come out of it.
    backlogs = {
        operator.name: operator.row.backlog_events / operator.share if operator.share else 0.0 for operator in known
    }
    waiting = max(backlogs[name] for path in observation.paths for name in path)
    # Failed events return: as measured, or everything waiting beyond the deadline, once per deadline.
    if observation.failed_per_second is not None:
        again = float(observation.failed_per_second)
    else:
        now = compute_capacity_per_second(known, np.asarray([operator.row.tasks for operator in known]))
        again = max(0.0, waiting / float(parameters.deadline_seconds) - now)
    present = max(0.0, observation.source_per_second - again)
    rates[:, 0] = np.maximum(rates[:, 0], present)
    return Demand(rates, CHANCES / CHANCES.sum(), parameters.window_seconds, present, waiting, again)


def build_lateness(parameters: JointParameters, known: Sequence[PlannedOperator]) -> Lateness:
    """Return what an event costs; its work is that with the current tasks."""
    work = math.fsum(operator.share * operator.curve.compute_service_seconds(operator.row.tasks) for operator in known)
    return Lateness(parameters.deadline_seconds, work, parameters.missed_cost)


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
        cls, parameters: JointParameters, paths: Sequence[Sequence[str]], known: Sequence[PlannedOperator], of: Demand
    ) -> "TaskNeeds":
        # The expected means between two decisions, in order.
        expected, step = of.chances @ of.rates, parameters.steps_per_window
        rates = [float(expected[at : at + step].mean()) for at in range(0, expected.size, step)]
        target = parameters.target_utilisation
        most = min(BUSY, target * (1 + parameters.tolerance))
        limits = np.asarray([operator.limit for operator in known], dtype=float)
        current = np.asarray([operator.row.tasks for operator in known])
        needed = [_keep_within_bound(parameters, paths, known, rate, target) for rate in rates]
        enough = [np.minimum(_compute_tasks(known, rate, most), limits) for rate in rates]
        asked = [operator.curve.compute_fewest_tasks(rates[0] * operator.share, most) for operator in known]
        may_stay = all(operator.minimum <= operator.row.tasks <= operator.maximum for operator in known)
        # Tasks for capacities from the forecast's minimum to all that may come with the backlog.
        least_rate = max(1e-9, float(of.rates.min()))
        most_rate = float(of.rates.max()) * 1.5 + of.backlog_events / of.step_seconds
        choices = np.geomspace(least_rate, max(most_rate, 1.01 * least_rate), LEVELS)
        rows = [np.minimum(_compute_tasks(known, rate, BUSY), limits) for rate in choices]
        levels = np.unique(np.asarray(rows, dtype=np.int64), axis=0)
        blocked = [
            operator.name
            for operator, need in zip(known, np.max(needed, axis=0), strict=True)
            if operator.blocked_at is not None and need > operator.blocked_at
        ]
        return cls(
            np.minimum(needed, limits).astype(np.int64),
            [may_stay and bool((window <= current).all()) for window in enough],
            levels,
            np.asarray([compute_capacity_per_second(known, level) for level in levels]),
            compute_capacity_per_second(known, current),
            blocked,
            [operator.name for operator, count in zip(known, asked, strict=True) if count > operator.limit],
        )


def compute_capacity_per_second(known: Sequence[PlannedOperator], tasks: Ints) -> float:
    """Return what all operators pass of the source's events, in events/s."""
    passes = [
        BUSY * operator.curve.compute_capacity_per_second(count) / operator.share
        for operator, count in zip(known, tasks.tolist(), strict=True)
        if operator.share
    ]
    return max(1e-9, min([UNLIMITED, *passes]))


def _compute_tasks(known: Sequence[PlannedOperator], source: float, utilisation: float) -> Floats:
    wanted = [operator.curve.compute_fewest_tasks(source * operator.share, utilisation) for operator in known]
    return np.clip(wanted, [operator.minimum for operator in known], [operator.maximum for operator in known])


def _keep_within_bound(
    parameters: JointParameters,
    paths: Sequence[Sequence[str]],
    known: Sequence[PlannedOperator],
    source: float,
    target: float,
) -> Floats:
    """Return the tasks for the target, and as many more as keep the paths' bound, if any number does."""
    least = _compute_tasks(known, source, target)
    operators = {
        operator.name: operator.build_queueing_operator(source, int(count))
        for operator, count in zip(known, least, strict=True)
    }
    ways = []
    for path in paths:
        spent = math.fsum(operators[name].latency_seconds for name in path)
        ways.append(Path(tuple(path), parameters.bound_seconds - spent))
    kept = [way for way in ways if find_lacking_path(operators, [way]) is None]
    if not kept:
        return least
    tasks = allocate_fewest_tasks(operators, kept)
    return np.asarray([max(tasks[operator.name], int(count)) for operator, count in zip(known, least, strict=True)])


def estimate_slowest_path_seconds(
    observation: JointObservation, known: Sequence[PlannedOperator], tasks: Ints
) -> float | None:
    """Return the expected latency on the slowest path with these tasks and the current load.

    Return None if an operator can't keep up.
    """
    source, seconds = observation.source_per_second, dict[str, float]()
    for operator, count in zip(known, tasks.tolist(), strict=True):
        wait = operator.build_queueing_operator(source, count).wait_seconds(count)
        seconds[operator.name] = operator.row.latency_seconds + wait
    slowest = max(math.fsum(seconds[name] for name in path) for path in observation.paths)
    return round(slowest, 6) if math.isfinite(slowest) else None
