"""What each operator needs in each forecast window, whether the present tasks do, and what may be chosen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from controllers.framework.law import Values
from controllers.parallelism.fluid_backlog import Demand, Lateness
from controllers.parallelism.plan import Ints
from controllers.parallelism.queueing_topology import QueueingOperator
from controllers.parallelism.scaling_curve import ScalingCurve
from controllers.parallelism.task_allocation import Path, fewest_tasks, lacking

Floats = npt.NDArray[np.float64]
# Of a task that works off what piled up: any less than always busy.
BUSY = 0.99
# Capacities to choose among, between the least and the most that may be of use.
LEVELS = 48
# Windows for which what is offered is taken to go on where there is no forecast.
GOES_ON = 10
# What passes, events/s, where nothing is offered to anybody.
UNLIMITED = 1e15
# Five points that stand for a normal spread (Gauss-Hermite): exact for what is a polynomial of degree 9.
DEVIATIONS, CHANCES = np.polynomial.hermite_e.hermegauss(5)


@dataclass(frozen=True)
class Known:
    """An operator as the plan sees it."""

    name: str
    row: Mapping[str, Any]
    curve: ScalingCurve
    share: float
    blocked_at: int | None  # tasks than which more did not help
    minimum: int
    maximum: int

    @property
    def limit(self) -> int:
        """The most tasks now."""
        return self.maximum if self.blocked_at is None else self.blocked_at

    def is_within(self, tasks: int) -> bool:
        """Whether it may have so many."""
        return self.minimum <= tasks <= self.maximum


def forecast(observation: Values) -> tuple[list[float], list[float]]:
    """Means and deviations; without a forecast what is offered now goes on for a while."""
    means = observation["forecast_per_second"] or []
    deviations = observation["deviation_per_second"] or []
    return (
        (means, deviations)
        if means or deviations
        else ([observation["source_per_second"]] * GOES_ON, [0.0] * GOES_ON)
    )


def demand(parameters: Values, observation: Values, known: Sequence[Known]) -> Demand:
    """What may be offered. A rate is never below 0 and errs by a factor rather than by a sum, so its spread
    is that of a logarithm; the first step's is at least what is offered now."""
    means, deviations = (np.asarray(each) for each in forecast(observation))
    means = np.maximum(means, 1e-9)
    spread = np.sqrt(np.log1p((deviations / means) ** 2))
    rates = means * np.exp(DEVIATIONS[:, None] * spread - spread**2 / 2)
    waiting = backlog_events(observation["paths"], known)
    again = _again_per_second(parameters, observation, known, waiting)
    present = max(0.0, observation["source_per_second"] - again)
    rates[:, 0] = np.maximum(rates[:, 0], present)
    return Demand(rates, CHANCES / CHANCES.sum(), parameters["window_seconds"], present, waiting, again)


def _again_per_second(
    parameters: Values, observation: Values, known: Sequence[Known], backlog_events: float
) -> float:
    """What failed and comes again: measured, or all that waits beyond the deadline, once in each deadline."""
    failed = observation["failed_per_second"]
    if failed is not None:
        return float(failed)
    deadline = float(parameters["deadline_seconds"])
    tasks = np.asarray([each.row["tasks"] for each in known])
    return max(0.0, backlog_events / deadline - capacity_per_second(known, tasks))


def backlog_events(paths: Sequence[Sequence[str]], known: Sequence[Known]) -> float:
    """What waits where most does, in events of the source; what is further down comes out of it."""
    waiting = {each.name: each.row["backlog_events"] / each.share if each.share else 0.0 for each in known}
    return max(waiting[name] for path in paths for name in path)


def lateness(parameters: Values, known: Sequence[Known]) -> Lateness:
    """What an event costs; its work is that with the present tasks."""
    work = math.fsum(each.share * each.curve.service_seconds(each.row["tasks"]) for each in known)
    return Lateness(parameters["deadline_seconds"], work, parameters["missed_cost"])


@dataclass(frozen=True)
class TaskNeeds:
    """Tasks needed, windows by operators, and whether the present ones do in each, as far as more are
    allowed; levels by operators, and what each passes (events/s of the source). short: operators of which the
    first window needs more than are allowed."""

    needed: Ints
    keeps: list[bool]
    levels: Ints
    capacities: Floats
    capacity_now: float
    blocked: list[str]
    short: list[str]

    @classmethod
    def of(cls, parameters: Values, observation: Values, known: Sequence[Known], of: Demand) -> "TaskNeeds":
        rates = window_means(parameters, of)
        target = parameters["target_utilisation"]
        most = min(BUSY, target * (1 + parameters["tolerance"]))
        limits = np.asarray([each.limit for each in known], dtype=float)
        current = np.asarray([each.row["tasks"] for each in known])
        needed = [_within_bound(parameters, observation["paths"], known, rate, target) for rate in rates]
        enough = [np.minimum(_tasks(known, rate, most), limits) for rate in rates]
        asked = [each.curve.tasks_for(rates[0] * each.share, most) for each in known]
        may_stay = all(each.is_within(each.row["tasks"]) for each in known)
        levels = _levels(known, of, limits)
        blocked = [
            each.name
            for each, need in zip(known, np.max(needed, axis=0), strict=True)
            if each.blocked_at is not None and need > each.blocked_at
        ]
        return cls(
            np.minimum(needed, limits).astype(np.int64),
            [may_stay and bool((each <= current).all()) for each in enough],
            levels,
            np.asarray([capacity_per_second(known, level) for level in levels]),
            capacity_per_second(known, current),
            blocked,
            [each.name for each, count in zip(known, asked, strict=True) if count > each.limit],
        )


def steps_per_window(parameters: Values) -> int:
    """Steps of the forecast from one decision to the next."""
    return max(1, round(float(parameters["interval_seconds"]) / float(parameters["window_seconds"])))


def window_means(parameters: Values, of: Demand) -> list[float]:
    """What is expected between two decisions, one after the other."""
    expected, step = of.chances @ of.rates, steps_per_window(parameters)
    return [float(expected[at : at + step].mean()) for at in range(0, expected.size, step)]


def _levels(known: Sequence[Known], of: Demand, limits: Floats) -> Ints:
    """Tasks for capacities from the least of the forecast to all that may come with what waits."""
    least = max(1e-9, float(of.rates.min()))
    most = float(of.rates.max()) * 1.5 + of.backlog_events / of.step_seconds
    rows = [
        np.minimum(_tasks(known, rate, BUSY), limits)
        for rate in np.geomspace(least, max(most, 1.01 * least), LEVELS)
    ]
    return np.unique(np.asarray(rows, dtype=np.int64), axis=0)


def capacity_per_second(known: Sequence[Known], tasks: Ints) -> float:
    """What all of them pass of what comes from the source, events/s."""
    passes = [
        BUSY * each.curve.capacity_per_second(count) / each.share
        for each, count in zip(known, tasks.tolist(), strict=True)
        if each.share
    ]
    return max(1e-9, min([UNLIMITED, *passes]))


def _tasks(known: Sequence[Known], source: float, utilisation: float) -> Floats:
    wanted = [each.curve.tasks_for(source * each.share, utilisation) for each in known]
    return np.clip(wanted, [each.minimum for each in known], [each.maximum for each in known])


def _within_bound(
    parameters: Values, paths: Sequence[Sequence[str]], known: Sequence[Known], source: float, target: float
) -> Floats:
    """For the target, and as many more as keep the paths' bound; without them where no number does."""
    least = _tasks(known, source, target)
    operators = {
        each.name: _operator(each, source, int(count)) for each, count in zip(known, least, strict=True)
    }
    ways = []
    for path in paths:
        spent = math.fsum(operators[name].latency_seconds for name in path)
        ways.append(Path(tuple(path), parameters["bound_seconds"] - spent))
    kept = [way for way in ways if lacking(operators, [way]) is None]
    if not kept:
        return least
    tasks = fewest_tasks(operators, kept)
    return np.asarray([max(tasks[each.name], int(count)) for each, count in zip(known, least, strict=True)])


def _operator(each: Known, source: float, least: int) -> QueueingOperator:
    service = each.curve.service_seconds(least)
    load = source * each.share * service
    weight = load * service * each.row["variability"]
    latency = each.row["latency_seconds"]
    return QueueingOperator(each.name, int(each.row["tasks"]), weight, load, latency, least, each.maximum)


def slowest_path_seconds(observation: Values, known: Sequence[Known], tasks: Ints) -> float | None:
    """Expected of an event on the slowest path, with these tasks and what is offered now; None where some
    operator can't keep up."""
    source, seconds = observation["source_per_second"], dict[str, float]()
    for each, count in zip(known, tasks.tolist(), strict=True):
        wait = _operator(each, source, count).wait_seconds(count)
        seconds[each.name] = each.row["latency_seconds"] + wait
    slowest = max(math.fsum(seconds[name] for name in path) for path in observation["paths"])
    return round(slowest, 6) if math.isfinite(slowest) else None
