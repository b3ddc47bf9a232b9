"""Adapters for the laws of the lab's scenario `elasticity`: their inputs and their answers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controllers import catalog
from controllers.baselines.parallelism_rules import (
    Hpa,
    MeasuredInterval,
    SeenPath,
    Tasks,
    apply_dhalion,
    apply_ds2,
    apply_static_peak,
)
from controllers.baselines.thesis_queueing import apply_wt
from controllers.baselines.thesis_regression import Record, ThesisRegression
from controllers.design.forecast import Forecaster, compute_bucket_averages, compute_missed_events, is_rejected
from controllers.framework.decision import Decision, Json
from controllers.parallelism.forecast_law import ParallelismForecast
from controllers.parallelism.joint_law import JointParallelism
from controllers.parallelism.queueing_law import QueueingParallelism
from controllers.simulation.model.elastic_chain import KINDS, SHARES, TIMEOUT_SECONDS, Chain
from controllers.simulation.model.scenario import Floats

# Buckets per day; instants per window; windows.
BUCKETS, INSTANTS, MAX_WINDOWS, MIN_POINTS = 32, 6, 24, 8
# Costs of the forecast law: of a task, over the events it passes; of a change, over those its pause delays.
TARGET_UTILISATION, TASK_COST, CHANGE_COST, MAX_DEVIATION = 0.85, 0.1, 1.0, 0.3
# The joint law keeps the timeout and few changes of busy tasks; the bound of the queueing laws would cost it
# about three tasks more.
JOINT: Mapping[str, float] = {"bound_seconds": 1.0, "target_utilisation": 0.95, "tolerance": 0.1}
SHARE_OF = {kind.name: share for kind, share in zip(KINDS, SHARES, strict=True)}
# The measurements, and the arrivals so far per second.
Law = Callable[[SeenPath, Floats], Tasks]


@dataclass(frozen=True)
class Course:
    """One run: its settings, the new arrivals of each second, and the length of a day."""

    settings: Mapping[str, Any]
    fresh: Floats
    day_seconds: float
    seed: int


Steered = Callable[[Law, Course], Chain]


def _wt(course: Course, steered: Steered) -> Law:
    return lambda seen, past: apply_wt(seen, course.settings["bound_seconds"])


def _build_rg_law(course: Course, steered: Steered) -> Law:
    """Return RG, trained on WT's decisions on the same events, as in the thesis (9.6)."""
    records: dict[str, list[Record]] = {kind.name: [] for kind in KINDS}
    window = float(course.settings["interval_seconds"])

    def record(seen: SeenPath, past: Floats) -> Tasks:
        for operator in seen.operators:
            records[operator.name].append(
                Record(seen.at_seconds, operator.tasks, operator.executed_events, operator.emitted_events)
            )
        return apply_wt(seen, course.settings["bound_seconds"])

    steered(record, replace(course, seed=course.seed + 1))
    trained = ThesisRegression(records, window)
    return lambda seen, past: trained.decide(seen)


def _build_ds2_law(course: Course, steered: Steered) -> Law:
    return lambda seen, past: apply_ds2(seen)


def _hpa(course: Course, steered: Steered) -> Law:
    hpa = Hpa()
    return lambda seen, past: hpa.decide(seen)


def _dhalion(course: Course, steered: Steered) -> Law:
    return lambda seen, past: apply_dhalion(seen)


def _build_static_peak_law(course: Course, steered: Steered) -> Law:
    greatest = float(course.fresh.max())
    peaks = {kind.name: greatest * share for kind, share in zip(KINDS, SHARES, strict=True)}
    set_once: dict[str, int] = {}

    def decide(seen: SeenPath, past: Floats) -> Tasks:
        # Its peak does not depend on later measurements.
        if not set_once:
            set_once.update(apply_static_peak(seen, peaks))
        return set_once

    return decide


def _decide_queueing(course: Course, steered: Steered) -> Law:
    law = QueueingParallelism()

    def decide(seen: SeenPath, past: Floats) -> Tasks:
        parameters = catalog.read_parameters(
            law,
            {
                "bound_seconds": course.settings["bound_seconds"],
                "batching_share": 1.0,
                "minimum": seen.minimum,
                "maximum": seen.maximum,
            },
        )
        rows = {
            operator.name: {
                "tasks": operator.tasks,
                "arrival_interval_seconds": _compute_interval_seconds(operator, course),
                "service_seconds": operator.service_seconds,
                "latency_seconds": operator.service_seconds,
            }
            for operator in seen.operators
        }
        observation = {"paths": [list(rows)], "operators": rows}
        _, decision = law.decide(parameters, {}, catalog.read_observation(law, observation))
        return _apply_decision(seen, decision)

    return decide


def _compute_interval_seconds(of: MeasuredInterval, course: Course) -> float:
    """Return the time between arrivals at one task; without arrivals, the interval lies between two."""
    rate = of.rate_per_second or 1 / float(course.settings["interval_seconds"])
    return of.tasks / rate


def _forecast(course: Course, steered: Steered) -> Law:
    """Return the forecast law, with missed events from the forecast of arrivals at the source.

    While that forecast is too uncertain, DS2's rule applies.
    """
    law, foresee = ParallelismForecast(), _Forecasts(course)

    def decide(seen: SeenPath, past: Floats) -> Tasks:
        mean, deviation = foresee.compute_window_maxima(past)
        if is_rejected(mean, deviation, MAX_DEVIATION):
            return apply_ds2(seen)
        return {operator.name: choose_tasks(seen, operator, mean, deviation) for operator in seen.operators}

    def choose_tasks(seen: SeenPath, of: MeasuredInterval, mean: Floats, deviation: Floats) -> int:
        share = SHARE_OF[of.name]
        counts = np.arange(seen.minimum, seen.maximum + 1, dtype=float)
        rate = TARGET_UTILISATION / of.service_seconds
        missed = compute_missed_events(mean * share, deviation * share, counts, rate, foresee.window_seconds)
        parameters = catalog.read_parameters(
            law,
            {
                "minimum": seen.minimum,
                "cost_task": TASK_COST * rate * foresee.window_seconds,
                "cost_change": CHANGE_COST * course.settings["pause_seconds"] * of.rate_per_second,
            },
        )
        observation = {"missed": missed.tolist(), "current": of.tasks}
        _, decision = law.decide(parameters, {}, catalog.read_observation(law, observation))
        return int((decision.action or {"tasks": of.tasks})["tasks"])

    return decide


def _build_joint_law(course: Course, steered: Steered) -> Law:
    law, foresee = JointParallelism(), _Forecasts(course)
    state = law.build_initial_state({})
    given = {
        **JOINT,
        "window_seconds": foresee.window_seconds / INSTANTS,
        "interval_seconds": foresee.window_seconds,
        "pause_seconds": course.settings["pause_seconds"],
        "deadline_seconds": TIMEOUT_SECONDS,
    }

    def decide(seen: SeenPath, past: Floats) -> Tasks:
        nonlocal state
        mean, deviation = foresee.build_steps(past)
        limits = {"minimum": seen.minimum, "maximum": seen.maximum}
        state, tasks = decide_jointly(law, {**given, **limits}, state, seen, mean, deviation)
        return tasks

    return decide


def decide_jointly(
    law: JointParallelism,
    law_parameters: Mapping[str, float],
    state: Json,
    seen: SeenPath,
    mean: Floats | None,
    deviation: Floats | None,
) -> tuple[Json, Tasks]:
    """Return the law's next state and the tasks it sets, for the forecast or for the current load."""
    rows = {
        operator.name: {
            "tasks": operator.tasks,
            "rate_per_second": operator.rate_per_second,
            "service_seconds": operator.service_seconds,
            "backlog_events": operator.backlog_events,
            "latency_seconds": operator.service_seconds,
        }
        for operator in seen.operators
    }
    observation = {
        "at_seconds": seen.at_seconds,
        "source_per_second": seen.operators[0].rate_per_second,
        "failed_per_second": seen.failed_per_second,
        "forecast_per_second": None if mean is None else mean.tolist(),
        "deviation_per_second": None if deviation is None else deviation.tolist(),
        "paths": [list(rows)],
        "operators": rows,
    }
    parameters = catalog.read_parameters(law, law_parameters)
    state, decision = law.decide(parameters, state, catalog.read_observation(law, observation))
    return state, _apply_decision(seen, decision)


class _Forecasts:
    """The forecast of future windows from the arrivals: the maximum rate in each, and its deviation."""

    def __init__(self, course: Course) -> None:
        self.window_seconds = float(course.settings["interval_seconds"] + course.settings["pause_seconds"])
        self._bucket = max(1, round(course.day_seconds / BUCKETS))
        self._count = min(MAX_WINDOWS, max(2, math.ceil(course.day_seconds / self.window_seconds)))
        self._forecaster = Forecaster(course.day_seconds)

    def build_steps(self, past: Floats) -> tuple[Floats, Floats]:
        # A short past has finer buckets: a handful of values doesn't show the variability.
        at, rates = compute_bucket_averages(past, min(self._bucket, max(1, past.size // MIN_POINTS)))
        steps = (np.arange(self._count * INSTANTS) + 0.5) * self.window_seconds / INSTANTS
        return self._forecaster.predict_ahead(at, rates, past.size + steps)

    def compute_window_maxima(self, past: Floats) -> tuple[Floats, Floats]:
        mean, deviation = self.build_steps(past)
        rows = mean.reshape(-1, INSTANTS), deviation.reshape(-1, INSTANTS)
        greatest = (rows[0] + rows[1]).argmax(axis=1)[:, None]
        picked = [np.take_along_axis(row, greatest, axis=1)[:, 0] for row in rows]
        return picked[0], picked[1]


def _apply_decision(seen: SeenPath, decision: Decision) -> Tasks:
    now = {operator.name: operator.tasks for operator in seen.operators}
    return now if decision.action is None else {**now, **decision.action["tasks"]}


LAWS: Mapping[str, Callable[[Course, Steered], Law]] = {
    "joint": _build_joint_law,
    "queueing": _decide_queueing,
    "forecast": _forecast,
    "wt": _wt,
    "rg": _build_rg_law,
    "ds2": _build_ds2_law,
    "hpa": _hpa,
    "dhalion": _dhalion,
    "static-peak": _build_static_peak_law,
}
