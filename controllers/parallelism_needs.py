"""What each operator needs in each window foreseen, and whether the present tasks do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from controllers.law import Values
from controllers.parallelism_plan import Ints
from controllers.scaling_curve import ScalingCurve
from controllers.task_allocation import Path, fewest_tasks, lacking
from controllers.topology import Operator

Floats = npt.NDArray[np.float64]
# Of a task that works off what piled up: any less than always busy.
BUSY = 0.99


@dataclass(frozen=True)
class Known:
    """An operator as the plan sees it."""

    name: str
    row: Mapping[str, Any]
    curve: ScalingCurve
    share: float
    is_blocked: bool


def forecast(observation: Values) -> tuple[list[float], list[float]]:
    """Means and deviations; without a forecast what is offered now goes on."""
    means = observation["forecast_per_second"] or []
    deviations = observation["deviation_per_second"] or []
    return (means, deviations) if means or deviations else ([observation["source_per_second"]], [0.0])


@dataclass(frozen=True)
class Needs:
    """Tasks needed, windows by operators, and whether the present ones do in each window."""

    steady: Ints
    after_change: Ints
    keeps: list[bool]
    blocked: list[str]

    @classmethod
    def of(cls, parameters: Values, observation: Values, known: Sequence[Known]) -> "Needs":
        means, deviations = forecast(observation)
        present = observation["source_per_second"]
        high = [mean + parameters["deviations"] * each for mean, each in zip(means, deviations, strict=True)]
        high[0] = max(high[0], present)
        target = parameters["target_utilisation"]
        wanted = [_tasks(parameters, known, rate, target) for rate in high]
        expected = [means[0] if present <= high[0] else present, *means[1:]]
        steady = [
            _within_bound(parameters, observation["paths"], known, rate, least)
            for rate, least in zip(expected, wanted, strict=True)
        ]
        after = [_tasks_after_change(parameters, known, rate, at == 0) for at, rate in enumerate(high)]
        most = min(BUSY, target * (1 + parameters["tolerance"]))
        enough = [_tasks(parameters, known, rate, most) for rate in high]
        enough[0] = np.maximum(enough[0], _tasks_for_backlog(parameters, known, high[0]))
        limits = [_limit(parameters, each) for each in known]
        current = np.asarray([each.row["tasks"] for each in known])
        blocked = [
            each.name
            for each, need in zip(known, np.max(steady, axis=0), strict=True)
            if each.is_blocked and need > each.row["tasks"]
        ]
        return cls(
            np.minimum(steady, limits).astype(np.int64),
            np.minimum(np.maximum(after, steady), limits).astype(np.int64),
            [bool((np.minimum(each, limits) <= current).all()) for each in enough],
            blocked,
        )


def _limit(parameters: Values, each: Known) -> float:
    return float(each.row["tasks"] if each.is_blocked else parameters["maximum"])


def _tasks(parameters: Values, known: Sequence[Known], source: float, utilisation: float) -> Floats:
    wanted = [each.curve.tasks_for(source * each.share, utilisation) for each in known]
    return np.clip(wanted, parameters["minimum"], parameters["maximum"])


def _tasks_after_change(parameters: Values, known: Sequence[Known], source: float, is_first: bool) -> Floats:
    """That also work off what a pause piles up, and before the first change what is there."""
    drain, pause = parameters["drain_seconds"], parameters["pause_seconds"]
    upstream, rates = 0.0, []
    for each in known:
        # What waits further up comes down here.
        upstream = max(upstream, each.row["backlog_events"] / each.share if is_first and each.share else 0.0)
        rates.append((source * (1 + pause / drain) + upstream / drain) * each.share)
    wanted = [each.curve.tasks_for(rate, BUSY) for each, rate in zip(known, rates, strict=True)]
    return np.clip(wanted, parameters["minimum"], parameters["maximum"])


def _tasks_for_backlog(parameters: Values, known: Sequence[Known], source: float) -> Floats:
    """That work off what is there within the window, as far as it is more than passes in a second."""
    upstream, wanted = 0.0, []
    for each in known:
        upstream = max(upstream, each.row["backlog_events"] / each.share if each.share else 0.0)
        extra = max(0.0, upstream - source) / parameters["window_seconds"]
        wanted.append(each.curve.tasks_for((source + extra) * each.share, BUSY))
    return np.clip(wanted, parameters["minimum"], parameters["maximum"])


def _within_bound(
    parameters: Values, paths: Sequence[Sequence[str]], known: Sequence[Known], source: float, least: Floats
) -> Floats:
    """As many more as keep the paths' bound; without them where no number does."""
    operators = {
        each.name: _operator(parameters, each, source, int(count))
        for each, count in zip(known, least, strict=True)
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


def _operator(parameters: Values, each: Known, source: float, least: int) -> Operator:
    service = each.curve.service_seconds(least)
    load = source * each.share * service
    weight = load * service * each.row["variability"]
    latency = each.row["latency_seconds"]
    return Operator(each.name, int(each.row["tasks"]), weight, load, latency, least, parameters["maximum"])
