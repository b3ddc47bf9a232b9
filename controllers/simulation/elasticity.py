"""The lab's scenario `elasticity`: a compressed week of events through a chain with tasks set by a law.

Events arrive by day and week with bursts and noise, at most `PEAK_PER_SECOND`; or as a trace that covers `days`, with
at most that rate for `common_share` of the time. `elastic_chain` is the plant. After each `interval_seconds` without a
pause, the law gets the measurements of their last three fifths (Stutz, 9.5); a change of tasks stops the chain for
`pause_seconds`. All laws start with the tasks for the first minute at a utilization of .7. `elastic_laws` adapts the
laws of the lab.

tasks_mean            of all operators together
latency_mean_seconds  from arrival to departure, of events that were in time
error_rate            failed events over all that ended, in time or not
rescales              changes of tasks, each with a pause
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from common.parameter import Parameter
from controllers.baselines.parallelism_rules import SeenPath, compute_sufficient_tasks
from controllers.simulation.model import arrivals
from controllers.simulation.model.elastic_chain import KINDS, SERVICES, TIMEOUT_SECONDS, Chain
from controllers.simulation.model.elastic_laws import LAWS, Course, Law
from controllers.simulation.model.scenario import (
    Floats,
    Scenario,
    ScenarioOutcome,
    SimulationCost,
    SimulationSize,
    create_random_generator,
)

PEAK_PER_SECOND, MINIMUM, MAXIMUM = 6_000.0, 1, 20
DAY_SECONDS, START_SECONDS, MEASURED = 86_400.0, 60, 0.6
# The minimum over the maximum of a day, the decrease at a weekend, and the height and duration of bursts (in
# days).
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
)


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    chance = create_random_generator(seed, "elasticity")
    day = DAY_SECONDS / settings["compression"]
    seconds = round(settings["days"] * day)
    shape = _generate_week(seconds, day, chance) if trace is None else arrivals.resample_by_mean(trace, seconds)
    peak = shape.max() if trace is None else np.quantile(shape, settings["common_share"]) or shape.max()
    fresh = np.asarray(chance.poisson(PEAK_PER_SECOND * shape / peak), dtype=float)
    course = Course(settings, fresh, DAY_SECONDS / settings["compression"], seed)
    return _build_outcome(run_with_law(LAWS[law](course, run_with_law), course))


def run_with_law(law: Law, course: Course) -> Chain:
    chain = Chain(course.fresh.size, _compute_first_tasks(course.fresh), course.seed)
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


def _compute_first_tasks(fresh: Floats) -> dict[str, int]:
    rate = float(fresh[:START_SECONDS].mean())
    return {
        kind.name: min(max(compute_sufficient_tasks(rate * service), MINIMUM), MAXIMUM)
        for kind, service in zip(KINDS, SERVICES, strict=True)
    }


def _generate_week(seconds: int, day: float, chance: np.random.Generator) -> Floats:
    at = np.arange(seconds) / day
    shape = NIGHT + (1 - NIGHT) * (1 - np.cos(2 * np.pi * at)) / 2
    shape = shape * np.where(at % 7 >= 5, 1 - WEEKEND, 1.0)
    for begins in chance.uniform(0, seconds / day, BURSTS):
        shape = shape * (1 + BURST * ((at >= begins) & (at < begins + BURST_DAYS)))
    return np.asarray(shape * np.exp(_generate_noise(seconds, NOISE_DAYS * day, chance)))


def _generate_noise(seconds: int, lasting_seconds: float, chance: np.random.Generator) -> Floats:
    """Return noise with a limited memory: a new value after each period, with straight lines between them."""
    knots = chance.standard_normal(int(seconds / lasting_seconds) + 2) * NOISE
    return np.asarray(np.interp(np.arange(seconds) / lasting_seconds, np.arange(knots.size), knots))


def _build_outcome(chain: Chain) -> ScenarioOutcome:
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
