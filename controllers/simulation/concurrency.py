"""The lab's scenario `concurrency`: the final threads of each law on queueing models, without noise.

| model | stations (Tang, Figure 4) |
|---|---|
| repairman | one of `cpus` servers and 1 s, a delay of `ratio` s |
| escalation | two of `cpus` servers, 1 s and `ratio` s |
| enrichment | three of `cpus` servers, 1 s, `ratio` s, and `ratio` s |
| section-4.8 | two of 2 servers, 1 ms and 2 ms, a delay of 25 ms |

Throughput comes from the model: every sample is the mean. `p` selects a row of Table 1. A law runs until it is steady
(a baseline: until it stays for `SETTLED` steps, at most `MAX_STEPS`).

threads, utilisation    at the end; utilization of the busiest station
steps                   configurations measured until first steady
warm_steps              and in the next exploration (null for baselines)
share                   of a contended station, if a competitor has as many threads as this law without
                        one and keeps it busy; 0.4955 is the bound of Theorem 1 for p = 0.25
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from common.errors import BadInput
from common.parameter import Parameter, build
from controllers.baselines.concurrency_limits import BASELINES, Limit, LimitStep, get_envoy_threads
from controllers.concurrency.law import Concurrency
from controllers.concurrency.parameters import ConcurrencyObservation, ConcurrencyParameters
from controllers.design.friendliness import TABLE_1
from controllers.design.queueing_models import Station, compute_throughput
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome

MODELS = ("repairman", "escalation", "enrichment", "section-4.8")
MAX_THREADS, MAX_STEPS, SETTLED = 600, 3_000, 30
# The minimum service time of a Pareto distribution with k = 2.5, over its mean.
MIN_OF_MEAN = (2.5 - 1) / 2.5
SETTINGS = (
    Parameter("model", "choice", "Queueing network.", "repairman", kind="choice", choices=MODELS),
    Parameter("ratio", "service time of the first station", "Service time of the other stations.", 1.0, 0.001, 1_000),
    Parameter("cpus", "servers", "Servers of each station.", 8, 1, 64, "integer"),
    Parameter("p", "share", "Row of Table 1: 0.10, 0.15, … 0.50, or as a percentage.", 0.25, 0.1, 50),
)


@dataclass(frozen=True)
class ClosedNetwork:
    """A closed network and its throughput for 1, 2, … threads."""

    stations: tuple[Station, ...]
    delay_seconds: float

    @property
    def curve(self) -> Floats:
        return _curve(self.stations, self.delay_seconds)

    @property
    def capacity_per_second(self) -> float:
        return min(station.servers / station.demand_seconds for station in self.stations)

    def evaluate(self, threads: int) -> float:
        return float(self.curve[min(threads, MAX_THREADS) - 1])

    @property
    def idle_seconds(self) -> float:
        return self.delay_seconds + sum(station.demand_seconds for station in self.stations)

    @property
    def least_seconds(self) -> float:
        return self.delay_seconds + MIN_OF_MEAN * sum(station.demand_seconds for station in self.stations)


@lru_cache(maxsize=64)
def _curve(stations: tuple[Station, ...], delay_seconds: float) -> Floats:
    return compute_throughput(stations, MAX_THREADS, delay_seconds)


def model(settings: Mapping[str, Any]) -> ClosedNetwork:
    cpus, ratio = int(settings["cpus"]), float(settings["ratio"])
    one, other = Station("engine", cpus, 1.0), Station("other", cpus, ratio)
    return {
        "repairman": ClosedNetwork((one,), ratio),
        "escalation": ClosedNetwork((one, other), 0.0),
        "enrichment": ClosedNetwork((one, other, Station("source", cpus, ratio)), 0.0),
        "section-4.8": ClosedNetwork((Station("engine", 2, 0.001), Station("web", 2, 0.002)), 0.025),
    }[str(settings["model"])]


def get_table_row(p: float) -> tuple[float, float, float]:
    """Return p, q, and w of a row of Table 1. Raise `BadInput` if there is none."""
    share = round(p / 100 if p > 1 else p, 4)
    if share not in TABLE_1:
        rows = ", ".join(f"{value:g}" for value in TABLE_1)
        raise BadInput("--set p", f"must be a row of Table 1 ({rows}), not {p:g}")
    return share, *TABLE_1[share]


@dataclass(frozen=True)
class ExplorationResult:
    """The threads at which a law first became steady, and its number of configurations.

    The configurations are those until then and in the next cycle.
    """

    threads: int
    steps: int
    warm_steps: int | None
    series: Floats


def explore(method: str, yields: Callable[[int], float], p: float) -> ExplorationResult:
    """Run a law of Weir on a curve until it has been steady twice."""
    law, (share, q, w) = Concurrency(), get_table_row(p)
    given = {"method": method, "p": share, "q": q, "w": w, "maximum": MAX_THREADS, "steady_seconds": 1.0}
    parameters = build(ConcurrencyParameters, given)
    state, threads, path, rests = law.start(parameters), 1, list[int](), list[tuple[int, int]]()
    while len(rests) < 2 and len(path) < MAX_STEPS:
        path.append(threads)
        samples = [1 / yields(threads)] * parameters.initial_samples
        before = state.exploration.phase
        seen = ConcurrencyObservation(threads=threads, interdeparture_seconds=samples, seconds=1.0)
        state, decision = law.decide(parameters, state, seen)
        exploration = state.exploration
        if exploration.phase == "steady" and before != "steady":
            rests.append((exploration.threads, exploration.steps))
        threads = threads if decision.action is None else int(decision.action["threads"])
    (first, cold), (_, warm) = rests
    return ExplorationResult(first, cold, warm - cold, np.asarray(path, dtype=float))


def follow(baseline: str, network: ClosedNetwork) -> ExplorationResult:
    """Run a baseline until its threads stay the same."""
    limit, path = Limit(), list[int]()
    while len(path) < MAX_STEPS:
        threads = min(get_envoy_threads(limit) if baseline == "envoy" else limit.threads, MAX_THREADS)
        path.append(threads)
        if len(path) > SETTLED and len(set(path[-SETTLED:])) == 1:
            break
        rate = network.evaluate(threads)
        limit = BASELINES[baseline](
            limit, LimitStep(threads, rate, threads / rate, network.least_seconds, network.idle_seconds)
        )
    steps = len(path) if len(path) == MAX_STEPS else max(1, len(path) - SETTLED)
    return ExplorationResult(round(float(np.median(path[-SETTLED:]))), steps, None, np.asarray(path, dtype=float))


ExploreCurve = Callable[[Callable[[int], float]], ExplorationResult]


def compute_contended_share(explore_curve: ExploreCurve, network: ClosedNetwork, others: int) -> float:
    """Return the share of a saturated station that a law takes next to permanent threads."""
    capacity = network.capacity_per_second

    def yields(threads: int) -> float:
        return min(network.evaluate(threads), capacity * threads / (threads + others))

    return yields(explore_curve(yields).threads) / capacity


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run one law on one network, without randomness and arrivals."""
    if trace is not None:
        raise BadInput("--trace", "is not supported: this scenario always runs at full load")
    network, p = model(settings), float(settings["p"])
    get_table_row(p)  # Baselines don't use it, but it has to be valid for them, too.
    if law not in ("tcc", "explorer"):
        return summarize(network, follow(law, network), None)

    def explore_curve(yields: Callable[[int], float]) -> ExplorationResult:
        return explore(law, yields, p)

    return summarize(network, explore_curve(network.evaluate), explore_curve)


def summarize(network: ClosedNetwork, result: ExplorationResult, explore_curve: ExploreCurve | None) -> ScenarioOutcome:
    """Return the metrics; the share of a contended station needs a second exploration."""
    share = None if explore_curve is None else compute_contended_share(explore_curve, network, result.threads)
    metrics = {
        "threads": result.threads,
        "utilisation": round(network.evaluate(result.threads) / network.capacity_per_second, 5),
        "steps": result.steps,
        "warm_steps": result.warm_steps,
        "share": None if share is None else round(share, 5),
    }
    return ScenarioOutcome(metrics, {"threads": result.series}, 1.0)


SCENARIO = Scenario(
    "concurrency",
    "Number of threads chosen by throughput, on queueing models without noise (Tang, section 3.2).",
    ("tcc", "explorer", *BASELINES),
    SETTINGS,
    ("threads", "utilisation", "steps"),
    run,
    steers={name: ("concurrency", {"method": name}) for name in ("tcc", "explorer")},
)
