"""The lab's scenario `concurrency`: how many threads each law ends with on queueing models, without noise.

| model | stations (Tang, Figure 4) |
|---|---|
| repairman | one of `cpus` servers and 1 s, a delay of `ratio` s |
| escalation | two of `cpus` servers, 1 s and `ratio` s |
| enrichment | three of `cpus` servers, 1 s, `ratio` s and `ratio` s |
| section-4.8 | two of 2 servers, 1 ms and 2 ms, a delay of 25 ms |

Throughput comes from the model: every sample is the mean. `p` chooses a row of Table 1. A law runs until it
is steady (a rival: until it stays for `SETTLED` steps, at most `MOST_STEPS`).

threads, utilisation    where it ends; of the busiest station
steps                   configurations measured until first steady
warm_steps              and in the next exploration (null for rivals)
share                   of a contended station, when a competitor has as many threads as this law without
                        one and keeps it busy; 0.4955 is the bound of Theorem 1 for p = 0.25
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from controllers.concurrency.law import Concurrency
from controllers.design.friendliness import TABLE_1
from controllers.design.queueing_models import Station, throughput
from controllers.framework.parameter import Parameter
from controllers.rivals.concurrency_limits import RIVALS, Limit, LimitStep, envoy_threads
from controllers.simulation.model.scenario import Floats, Scenario, ScenarioOutcome
from queues.errors import BadInput

MODELS = ("repairman", "escalation", "enrichment", "section-4.8")
MOST_THREADS, MOST_STEPS, SETTLED = 600, 3_000, 30
# The least service of a Pareto distribution with k = 2.5, over its mean.
LEAST_OF_MEAN = (2.5 - 1) / 2.5
SETTINGS = (
    Parameter("model", "choice", "Which network.", "repairman", kind="choice", choices=MODELS),
    Parameter("ratio", "service time over the first's", "Of the other stations.", 1.0, 0.001, 1_000),
    Parameter("cpus", "servers", "Of each station.", 8, 1, 64, "integer"),
    Parameter("p", "share", "A row of Table 1: 0.10, 0.15, … 0.50, or in per cent.", 0.25, 0.1, 50),
)


@dataclass(frozen=True)
class ClosedNetwork:
    """A closed network and what it yields for 1, 2, … threads."""

    stations: tuple[Station, ...]
    delay_seconds: float

    @property
    def curve(self) -> Floats:
        """Passes per second."""
        return _curve(self.stations, self.delay_seconds)

    @property
    def capacity_per_second(self) -> float:
        """Of the bottleneck."""
        return min(each.servers / each.demand_seconds for each in self.stations)

    def at(self, threads: int) -> float:
        """Passes per second with so many threads."""
        return float(self.curve[min(threads, MOST_THREADS) - 1])

    @property
    def idle_seconds(self) -> float:
        """A pass when nobody else is there."""
        return self.delay_seconds + sum(each.demand_seconds for each in self.stations)

    @property
    def least_seconds(self) -> float:
        """The luckiest pass."""
        return self.delay_seconds + LEAST_OF_MEAN * sum(each.demand_seconds for each in self.stations)


@lru_cache(maxsize=64)
def _curve(stations: tuple[Station, ...], delay_seconds: float) -> Floats:
    return throughput(stations, MOST_THREADS, delay_seconds)


def model(settings: Mapping[str, Any]) -> ClosedNetwork:
    """The network that the settings name."""
    cpus, ratio = int(settings["cpus"]), float(settings["ratio"])
    one, other = Station("engine", cpus, 1.0), Station("other", cpus, ratio)
    return {
        "repairman": ClosedNetwork((one,), ratio),
        "escalation": ClosedNetwork((one, other), 0.0),
        "enrichment": ClosedNetwork((one, other, Station("source", cpus, ratio)), 0.0),
        "section-4.8": ClosedNetwork((Station("engine", 2, 0.001), Station("web", 2, 0.002)), 0.025),
    }[str(settings["model"])]


def row(p: float) -> tuple[float, float, float]:
    """p, q and w of a row of Table 1. Raises `BadInput`."""
    share = round(p / 100 if p > 1 else p, 4)
    if share not in TABLE_1:
        rows = ", ".join(f"{each:g}" for each in TABLE_1)
        raise BadInput("--set p", f"takes a row of Table 1 ({rows}), not {p:g}")
    return share, *TABLE_1[share]


@dataclass(frozen=True)
class Explored:
    """Where a law first came to rest, and after how many configurations; the same for its next cycle."""

    threads: int
    steps: int
    warm_steps: int | None
    series: Floats


def explore(method: str, yields: Callable[[int], float], p: float) -> Explored:
    """Our law on a curve until it has been steady twice."""
    law, (share, q, w) = Concurrency(), row(p)
    parameters = {each.name: each.default for each in law.parameters} | {
        "method": method,
        "p": share,
        "q": q,
        "w": w,
        "maximum": MOST_THREADS,
        "steady_seconds": 1.0,
    }
    state, threads, path, rests = law.initial_state(parameters), 1, list[int](), list[tuple[int, int]]()
    while len(rests) < 2 and len(path) < MOST_STEPS:
        path.append(threads)
        samples = [1 / yields(threads)] * int(parameters["initial_samples"])
        before = state["machine"]["phase"]
        state, decision = law.decide(
            parameters, state, {"threads": threads, "interdeparture_seconds": samples, "seconds": 1.0}
        )
        machine = state["machine"]
        if machine["phase"] == "steady" and before != "steady":
            rests.append((machine["threads"], machine["steps"]))
        threads = threads if decision.action is None else int(decision.action["threads"])
    (first, cold), (_, warm) = rests
    return Explored(first, cold, warm - cold, np.asarray(path, dtype=float))


def follow(rival: str, network: ClosedNetwork) -> Explored:
    """A rival until it stays where it is."""
    limit, path = Limit(), list[int]()
    while len(path) < MOST_STEPS:
        threads = min(envoy_threads(limit) if rival == "envoy" else limit.threads, MOST_THREADS)
        path.append(threads)
        if len(path) > SETTLED and len(set(path[-SETTLED:])) == 1:
            break
        rate = network.at(threads)
        limit = RIVALS[rival](
            limit, LimitStep(threads, rate, threads / rate, network.least_seconds, network.idle_seconds)
        )
    steps = len(path) if len(path) == MOST_STEPS else max(1, len(path) - SETTLED)
    return Explored(round(float(np.median(path[-SETTLED:]))), steps, None, np.asarray(path, dtype=float))


def contended_share(method: str, network: ClosedNetwork, p: float, others: int) -> float:
    """The share of a saturated station that a law takes beside threads that are always there."""
    capacity = network.capacity_per_second

    def yields(threads: int) -> float:
        return min(network.at(threads), capacity * threads / (threads + others))

    threads = explore(method, yields, p).threads
    return yields(threads) / capacity


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """One law on one network; there is no chance in it, and no arrivals."""
    if trace is not None:
        raise BadInput("--trace", "is not taken: in this scenario there is always work")
    network, p = model(settings), float(settings["p"])
    row(p)  # rivals have no use for it, and it has to be one for them too
    ours = law in ("tcc", "explorer")
    found = explore(law, network.at, p) if ours else follow(law, network)
    metrics = {
        "threads": found.threads,
        "utilisation": round(network.at(found.threads) / network.capacity_per_second, 5),
        "steps": found.steps,
        "warm_steps": found.warm_steps,
        "share": round(contended_share(law, network, p, found.threads), 5) if ours else None,
    }
    return ScenarioOutcome(metrics, {"threads": found.series}, 1.0)


SCENARIO = Scenario(
    "concurrency",
    "Threads by throughput on queueing models, without noise (Tang, section 3.2).",
    ("tcc", "explorer", *RIVALS),
    SETTINGS,
    ("threads", "utilisation", "steps"),
    run,
    steers={name: ("concurrency", {"method": name}) for name in ("tcc", "explorer")},
)
