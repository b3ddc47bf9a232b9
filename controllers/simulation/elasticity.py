"""The lab's scenario `elasticity`: a compressed week of events through a chain with tasks set by a law.

Events arrive by day and week with bursts and noise, at most `PEAK_PER_SECOND`; or as a trace that covers `days`, with
at most that rate for `common_share` of the time. `elastic_chain` is the plant. After each `interval_seconds` without a
pause, the law gets the measurements of their last three fifths (Stutz, 9.5); a change of tasks stops the chain for
`pause_seconds`. All laws start with the tasks for the first minute at a utilization of .7.

tasks_mean            of all operators together
latency_mean_seconds  from arrival to departure, of events that were in time
error_rate            failed events over all that ended, in time or not
rescales              changes of tasks, each with a pause
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.parameter import Parameter
from controllers.baselines.parallelism import (
    Hpa,
    MeasuredInterval,
    Record,
    SeenPath,
    Tasks,
    ThesisRegression,
    apply_dhalion,
    apply_ds2,
    apply_static_peak,
    apply_wt,
    compute_sufficient_tasks,
)
from controllers.design.forecast import Forecaster, compute_bucket_averages, compute_missed_events, is_rejected
from controllers.framework.decision import Decision
from controllers.framework.law import NoState
from controllers.parallelism.forecast_law import ForecastObservation, ForecastParameters, ParallelismForecast
from controllers.parallelism.joint_law import JointParallelism, JointState
from controllers.parallelism.needs import JointObservation, JointParameters, JointRow
from controllers.parallelism.queueing_law import (
    QueueingObservation,
    QueueingParallelism,
    QueueingParameters,
    QueueingRow,
    QueueingState,
)
from controllers.simulation.elastic_chain import BUFFER_EVENTS, TIMEOUT_SECONDS, TREES, Chain, OperatorTree
from controllers.simulation.scenario import (
    Floats,
    Scenario,
    ScenarioOutcome,
    SimulationCost,
    SimulationSize,
    create_random_generator,
    resample_by_mean,
)

# Buckets per day; instants per window; windows.
BUCKETS, INSTANTS, MAX_WINDOWS, MIN_POINTS = 32, 6, 24, 8
# Costs of the forecast law: of a task, over the events it passes; of a change, over those its pause delays.
TARGET_UTILISATION, TASK_COST, CHANGE_COST, MAX_DEVIATION = 0.85, 0.1, 1.0, 0.3
PEAK_PER_SECOND, MINIMUM, MAXIMUM = 6_000.0, 1, 20
DAY_SECONDS, START_SECONDS, MEASURED = 86_400.0, 60, 0.6
# The minimum over the maximum of a day, the decrease at a weekend, and the height and duration of bursts (in days).
NIGHT, WEEKEND, BURST, BURST_DAYS, BURSTS = 0.4, 0.08, 0.12, 0.1, 4
# Standard deviation of the minutes' noise, and its duration (in days).
NOISE, NOISE_DAYS = 0.02, 0.05
SETTINGS = (
    Parameter("compression", "times", "Speed of the week relative to real time.", 84.0, 1, 1_000),
    Parameter("pause_seconds", "s", "Pause caused by each change of tasks.", 20, 0, 300, "integer"),
    Parameter("interval_seconds", "s", "Time between decisions.", 300, 5, 86_400, "integer"),
    Parameter("bound_seconds", "s", "Maximum latency for the queueing laws.", 0.01, 0.004, 60),
    Parameter("days", "days", "Period that the run or trace covers.", 7, 1, 60, "integer"),
    Parameter(
        "common_share",
        "share of the time",
        "Share of time in which the trace stays within the maximum rate. Below 1, rare spikes exceed it.",
        1.0,
        0.5,
        1.0,
    ),
    Parameter(
        "topology",
        "choice",
        "Operators: a chain of four, or Stutz's tree.",
        "chain",
        kind="choice",
        choices=tuple(TREES),
    ),
    Parameter(
        "overflow",
        "choice",
        "What happens while the buffer is full: events are dropped, or the source stops.",
        "drop",
        kind="choice",
        choices=("drop", "back-pressure"),
    ),
    Parameter("buffer_events", "events", "Maximum number of events that wait in the operators.", BUFFER_EVENTS, 1, 1e9),
)
# The measurements, and the arrivals so far per second.
Law = Callable[[SeenPath, Floats], Tasks]


@dataclass(frozen=True)
class Course:
    """One run: its settings, the new arrivals of each second, and the length of a day."""

    settings: Mapping[str, Any]
    fresh: Floats
    day_seconds: float
    seed: int

    @property
    def tree(self) -> OperatorTree:
        return TREES[self.settings["topology"]]


def _build_rg_law(course: Course) -> Law:
    """Return RG, trained on WT's decisions on the same events, as in the thesis (9.6)."""
    records: dict[str, list[Record]] = {kind.name: [] for kind in course.tree.kinds}
    window = float(course.settings["interval_seconds"])

    def record(seen: SeenPath, past: Floats) -> Tasks:
        for operator in seen.operators:
            records[operator.name].append(
                Record(seen.at_seconds, operator.tasks, operator.executed_events, operator.emitted_events)
            )
        return _apply_wt_by_path(seen, course)

    run_with_law(record, replace(course, seed=course.seed + 1))
    trained = ThesisRegression(records, window)
    return lambda seen, past: trained.decide(seen)


def _build_static_peak(course: Course) -> Law:
    greatest = float(course.fresh.max())
    peaks = {name: greatest * share for name, share in course.tree.share_of.items()}
    set_once: dict[str, int] = {}

    def decide(seen: SeenPath, past: Floats) -> Tasks:
        # Its peak does not depend on later measurements.
        if not set_once:
            set_once.update(apply_static_peak(seen, peaks))
        return set_once

    return decide


def _build_queueing_law(course: Course) -> Law:
    def decide(seen: SeenPath, past: Floats) -> Tasks:
        rows = {
            operator.name: QueueingRow(
                tasks=operator.tasks,
                # Without arrivals, the interval between two decisions lies between two of them.
                arrival_interval_seconds=operator.tasks
                / (operator.rate_per_second or 1 / float(course.settings["interval_seconds"])),
                service_seconds=operator.service_seconds,
                latency_seconds=operator.service_seconds,
            )
            for operator in seen.operators
        }
        parameters = QueueingParameters(
            bound_seconds=course.settings["bound_seconds"],
            batching_share=1.0,
            minimum=seen.minimum,
            maximum=seen.maximum,
        )
        observation = QueueingObservation(paths=course.tree.paths, operators=rows)
        return _apply_decision(seen, QueueingParallelism().decide(parameters, QueueingState(), observation)[1])

    return decide


def _build_forecast_law(course: Course) -> Law:
    """Return the forecast law, with missed events from the forecast of arrivals at the source.

    While that forecast is too uncertain, DS2's rule applies.
    """
    law, foresee = ParallelismForecast(), ArrivalForecasts(course)

    def decide(seen: SeenPath, past: Floats) -> Tasks:
        mean, deviation = foresee.compute_window_maxima(past)
        if is_rejected(mean, deviation, MAX_DEVIATION):
            return apply_ds2(seen)
        return {operator.name: choose_tasks(seen, operator, mean, deviation) for operator in seen.operators}

    def choose_tasks(seen: SeenPath, of: MeasuredInterval, mean: Floats, deviation: Floats) -> int:
        share = course.tree.share_of[of.name]
        counts = np.arange(seen.minimum, seen.maximum + 1, dtype=float)
        rate = TARGET_UTILISATION / of.service_seconds
        missed = compute_missed_events(mean * share, deviation * share, counts, rate, foresee.window_seconds)
        parameters = ForecastParameters(
            minimum=seen.minimum,
            cost_task=TASK_COST * rate * foresee.window_seconds,
            cost_change=CHANGE_COST * course.settings["pause_seconds"] * of.rate_per_second,
        )
        observation = ForecastObservation(missed=tuple(map(tuple, missed.tolist())), current=of.tasks)
        _, decision = law.decide(parameters, NoState(), observation)
        return of.tasks if decision.action is None else int(decision.action["tasks"])

    return decide


def _build_joint_law(course: Course) -> Law:
    foresee, state = ArrivalForecasts(course), JointState()

    def decide(seen: SeenPath, past: Floats) -> Tasks:
        nonlocal state
        # The joint law keeps the timeout and few changes of busy tasks; the bound of the queueing laws would cost it
        # about three tasks more.
        parameters = JointParameters(
            bound_seconds=1.0,
            target_utilisation=0.95,
            tolerance=0.1,
            window_seconds=foresee.window_seconds / INSTANTS,
            interval_seconds=foresee.window_seconds,
            pause_seconds=course.settings["pause_seconds"],
            deadline_seconds=float(TIMEOUT_SECONDS),
            minimum=seen.minimum,
            maximum=seen.maximum,
        )
        mean, deviation = foresee.build_steps(past)
        state, tasks = decide_jointly(
            parameters, state, seen, tuple(mean.tolist()), tuple(deviation.tolist()), course.tree.paths
        )
        return tasks

    return decide


def decide_jointly(
    parameters: JointParameters,
    state: JointState,
    seen: SeenPath,
    mean: tuple[float, ...] | None = None,
    deviation: tuple[float, ...] | None = None,
    paths: tuple[tuple[str, ...], ...] | None = None,
) -> tuple[JointState, Tasks]:
    """Return the law's next state and the tasks it sets, for the forecast or for the current load."""
    rows = {
        operator.name: JointRow(
            tasks=operator.tasks,
            rate_per_second=operator.rate_per_second,
            service_seconds=operator.service_seconds,
            backlog_events=operator.backlog_events,
            latency_seconds=operator.service_seconds,
        )
        for operator in seen.operators
    }
    observation = JointObservation(
        at_seconds=seen.at_seconds,
        source_per_second=seen.operators[0].rate_per_second,
        failed_per_second=seen.failed_per_second,
        forecast_per_second=mean,
        deviation_per_second=deviation,
        paths=paths or (tuple(rows),),
        operators=rows,
    )
    state, decision = JointParallelism().decide(parameters, state, observation)
    return state, _apply_decision(seen, decision)


class ArrivalForecasts:
    """The forecast of future windows from the arrivals: the maximum rate in each, and its deviation."""

    def __init__(self, course: Course) -> None:
        self.window_seconds = float(course.settings["interval_seconds"] + course.settings["pause_seconds"])
        self._bucket = max(1, round(course.day_seconds / BUCKETS))
        self._count = min(MAX_WINDOWS, max(2, math.ceil(course.day_seconds / self.window_seconds)))
        self._forecaster = Forecaster(course.day_seconds)

    def build_steps(self, past: Floats) -> tuple[Floats, Floats]:
        steps = (np.arange(self._count * INSTANTS) + 0.5) * self.window_seconds / INSTANTS
        return self.predict(past, steps)

    def predict(self, past: Floats, steps: Floats) -> tuple[Floats, Floats]:
        """Return the rates and their deviations at these times from now, s."""
        # A short past has finer buckets: a handful of values doesn't show the variability.
        at, rates = compute_bucket_averages(past, min(self._bucket, max(1, past.size // MIN_POINTS)))
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


def _apply_wt_by_path(seen: SeenPath, course: Course) -> Tasks:
    """Return the tasks of WT, path by path; an operator on several paths gets the most of them (E33)."""
    tasks: dict[str, int] = {}
    for path in course.tree.paths:
        part = replace(seen, operators=[operator for operator in seen.operators if operator.name in path])
        for name, count in apply_wt(part, course.settings["bound_seconds"]).items():
            tasks[name] = max(count, tasks.get(name, 0))
    return tasks


def _without_past(rule: Callable[[SeenPath], Tasks]) -> Law:
    return lambda seen, past: rule(seen)


LAWS: Mapping[str, Callable[[Course], Law]] = {
    "joint": _build_joint_law,
    "queueing": _build_queueing_law,
    "forecast": _build_forecast_law,
    "wt": lambda course: _without_past(lambda seen: _apply_wt_by_path(seen, course)),
    "rg": _build_rg_law,
    "ds2": lambda course: _without_past(apply_ds2),
    "hpa": lambda course: _without_past(Hpa().decide),
    "dhalion": lambda course: _without_past(apply_dhalion),
    "static-peak": _build_static_peak,
}


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    fresh = generate_new_arrivals(settings, seed, trace)
    course = Course(settings, fresh, DAY_SECONDS / settings["compression"], seed)
    return summarize(run_with_law(LAWS[law](course), course))


def summarize(chain: Chain) -> ScenarioOutcome:
    """Return the outcome of a plant after all events arrived."""
    latency, in_time = chain.compute_latencies()
    failed, done = float(chain.failed.sum()), float(in_time.sum())
    metrics = {
        "tasks_mean": round(float(chain.counts.mean()), 4),
        "latency_mean_seconds": round(float((latency * in_time).sum() / max(done, 1.0)), 6),
        "error_rate": round(failed / max(failed + done, 1.0), 8),
        "rescales": chain.rescales,
    }
    series = {
        "arrived_per_second": chain.arrived,
        "left_per_second": chain.left,
        "failed_per_second": chain.failed,
        "tasks": chain.counts,
        "latency_seconds": latency,
    }
    return ScenarioOutcome(metrics, series, 1.0)


def run_with_law(law: Law, course: Course) -> Chain:
    """Return the plant after all events arrived."""
    chain = build_chain(course)
    interval, pause = int(course.settings["interval_seconds"]), int(course.settings["pause_seconds"])
    waited, measured_from = 0, round(interval * (1 - MEASURED))
    for fresh in course.fresh.tolist():
        waited = 0 if chain.paused_seconds > 0 else waited + 1
        chain.run(fresh)
        if waited == measured_from:
            chain.start_measurement()
        if waited >= interval:
            failed = float(chain.failed[max(0, chain.second - TIMEOUT_SECONDS) : chain.second].mean())
            seen = SeenPath(chain.measure(), float(chain.second), MINIMUM, MAXIMUM, failed)
            waited = 0
            chain.rescale(law(seen, course.fresh[: chain.second]), pause)
    return chain


def build_chain(course: Course) -> Chain:
    """Return the plant with the tasks of the first minute."""
    rate = float(course.fresh[:START_SECONDS].mean())
    first = {
        kind.name: min(max(compute_sufficient_tasks(rate * service), MINIMUM), MAXIMUM)
        for kind, service in zip(course.tree.kinds, course.tree.services, strict=True)
    }
    settings = course.settings
    has_back_pressure = settings["overflow"] == "back-pressure"
    return Chain(course.fresh.size, first, course.seed, course.tree, settings["buffer_events"], has_back_pressure)


def generate_new_arrivals(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> Floats:
    """Return the new arrivals per second, without repeated ones."""
    chance = create_random_generator(seed, "elasticity")
    day = DAY_SECONDS / settings["compression"]
    seconds = round(settings["days"] * day)
    if trace is not None:
        shape = resample_by_mean(trace, seconds)
        peak = np.quantile(shape, settings["common_share"]) or shape.max()
    else:
        at = np.arange(seconds) / day
        shape = NIGHT + (1 - NIGHT) * (1 - np.cos(2 * np.pi * at)) / 2
        shape = shape * np.where(at % 7 >= 5, 1 - WEEKEND, 1.0)
        for begins in chance.uniform(0, seconds / day, BURSTS):
            shape = shape * (1 + BURST * ((at >= begins) & (at < begins + BURST_DAYS)))
        # Noise with a limited memory: a new value after each period, with straight lines between them.
        knots = chance.standard_normal(int(seconds / (NOISE_DAYS * day)) + 2) * NOISE
        shape = shape * np.exp(np.interp(np.arange(seconds) / (NOISE_DAYS * day), np.arange(knots.size), knots))
        peak = shape.max()
    return np.asarray(chance.poisson(PEAK_PER_SECOND * shape / peak), dtype=float)


def estimate_cost(settings: Mapping[str, Any]) -> SimulationCost:
    """By the simulated seconds and the decisions; fitted to runs of 7,200 and 60,480 s."""
    seconds = settings["days"] * DAY_SECONDS / settings["compression"]
    cpu_seconds = 1e-5 * seconds + 0.04 * seconds / settings["interval_seconds"]
    return SimulationCost(cpu_seconds, 50e6 + 160.0 * seconds)


SCENARIO = Scenario(
    "elasticity",
    "A compressed week of load on a chain of four operators: tasks, latency, and failures.",
    tuple(LAWS),
    SETTINGS,
    ("tasks_mean", "latency_mean_seconds", "error_rate", "rescales"),
    run,
    steers={name: (f"parallelism_{name}", {}) for name in ("joint", "queueing", "forecast")},
    size=SimulationSize(
        ("days", "compression", "interval_seconds"),
        "Reduce days, or raise compression or interval_seconds.",
        estimate_cost,
    ),
)
