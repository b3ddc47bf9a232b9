"""The lab's scenario `concurrency-live`: engines that explore while they work, event by event.

| bottleneck | simulation (Tang, 4.2 to 4.5) |
|---|---|
| cpu | engine 1 ms and web 1.3 ms on 2 CPUs each (1.5 ms if engines share it), `delay_ms` between |
| memory | engine 8 ms, web 1 ms on 8 CPUs each, 50 ms; beyond 48 threads the web machine swaps; from 16 |
| disk | engine 1 ms on 8 CPUs, the web's one disk 4 ms, 3 % more for each waiting request, 20 ms |
| network | engine 1.5 ms and web 1 ms on 2 CPUs each, a link that takes 0.95 ms |
| engine | engine 4 ms on 2 CPUs, database and event source 0.2 ms on 8 CPUs each (4.1) |

With an `onset`, the memory or disk is the bottleneck only from then on: until then it is a CPU (4.3: memory for all
threads; 4.4: the web takes 2 ms on 8 CPUs).

`competitor` is the rate of an open stream at the web's station, as a share of its capacity, from `COMPETES` to
`RELIEVED` seconds. With `servers` engines on one web station, each runs its law, and they explore `together` or
independently. With `drift` 1 the engines are replaced by a box, X(n) = 100 n / (1 + 0.02 (n-1) + κ n (n-1)), κ from
0.0005 to 0.002 half way, measured through windows of 100 completions (10 % noise); Weir's law then aims at the peak.

threads_first, seconds_to_first   the first steady state
threads_later, threads_last       mean of the later ones, and the last one
utilisation                       of the bottleneck, while steady
share                             the first engine's share of the bottleneck's work, while the competitor or
                                  the other engines are present
peak_fraction_before, _after      throughput over the peak's, in the second half of each part (drift only)
windows_to_recover                after the change until 0.95 of the new peak is kept (drift only)
linear_share                      events of all engines, over those of as many saturated engines (engine only)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from common.errors import BadInput
from common.parameter import Parameter, build
from controllers.baselines.concurrency_limits import BASELINES, Limit, LimitStep, get_envoy_threads
from controllers.concurrency.law import Concurrency
from controllers.concurrency.parameters import ConcurrencyObservation, ConcurrencyParameters
from controllers.simulation import scenario
from controllers.simulation.thread_engine import EnginePool, EngineStation, ThreadEngine

SECONDS, TICK_SECONDS, STEADY_SECONDS = 900.0, 1.0, 50.0
COMPETES, RELIEVED = 300.0, 600.0
DRIFT_WINDOWS, WINDOW_SAMPLES = 400, 100
# One thread gets 17 events/s through a delay of 50 ms: enough samples for a step would take minutes.
START = {"memory": 16}
ONSET_START = 16
SETTINGS = (
    Parameter(
        "bottleneck",
        "choice",
        "Resource that saturates.",
        "cpu",
        kind="choice",
        choices=("cpu", "memory", "disk", "network", "engine"),
    ),
    Parameter("onset", "s", "Time at which memory or disk becomes the bottleneck.", 0.0, 0, 86_400),
    Parameter("competitor", "share of capacity", "Rate of the competing stream.", 0.0, 0, 0.95),
    Parameter("servers", "engines", "Number of engines that share the web machine.", 1, 1, 4, "integer"),
    Parameter("together", "0 or 1", "1: engines are notified of each other's explorations.", 1, 0, 1, "integer"),
    Parameter("delay_ms", "ms", "Delay between engine and web machine; only for the CPU bottleneck.", 7.0, 0, 1_000),
    Parameter("drift", "0 or 1", "1: a simulated pool with drift replaces the engines.", 0, 0, 1, "integer"),
    Parameter("seconds", "s", "Duration of the run.", SECONDS, 100, 86_400),
)


@dataclass
class Candidate:
    method: str
    more: Mapping[str, Any]
    threads: int = 1
    rests: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.law = Concurrency()
        given = {"method": self.method, "steady_seconds": STEADY_SECONDS, **self.more}
        self.parameters = build(ConcurrencyParameters, given)
        self.state = self.law.start(self.parameters)

    @property
    def is_steady(self) -> bool:
        return self.state.exploration.phase == "steady"

    @property
    def epoch(self) -> int:
        return self.state.epoch

    def check(self, now: float, gaps: list[float], seconds: float, epoch: int | None = None) -> int:
        was_steady = self.is_steady
        seen = ConcurrencyObservation(threads=self.threads, interdeparture_seconds=gaps, seconds=seconds, epoch=epoch)
        self.state, decision = self.law.decide(self.parameters, self.state, seen)
        if decision.action is not None:
            self.threads = int(decision.action["threads"])
        if self.is_steady and not was_steady:
            self.rests.append((now, self.threads))
        return self.threads


@dataclass
class Baseline:
    """A baseline: one step per check. It is never steady, so every tenth check counts as a steady state."""

    baseline: str
    idle_seconds: float
    least_seconds: float
    limit: Limit = field(default_factory=Limit)
    checks: int = 0
    rests: list[tuple[float, int]] = field(default_factory=list)
    is_steady: bool = True
    epoch: int = 0

    @property
    def threads(self) -> int:
        return get_envoy_threads(self.limit) if self.baseline == "envoy" else min(self.limit.threads, 1_000)

    def check(self, now: float, gaps: list[float], seconds: float, epoch: int | None = None) -> int:
        self.checks += 1
        total = math.fsum(gaps)
        if total > 0:
            rate = len(gaps) / total
            seen = LimitStep(self.threads, rate, self.threads / rate, self.least_seconds, self.idle_seconds)
            self.limit = BASELINES[self.baseline](self.limit, seen)
        if self.checks % 10 == 0:
            self.rests.append((now, self.threads))
        return self.threads


class Hand(Protocol):
    """The controller of a pool's size. rests: the time and the size at the start of each steady state."""

    rests: list[tuple[float, int]]

    @property
    def threads(self) -> int: ...
    @property
    def is_steady(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    def check(self, now: float, gaps: list[float], seconds: float, epoch: int | None = None) -> object: ...


@dataclass(frozen=True)
class SimulatedEngines:
    engine: ThreadEngine
    bottleneck: EngineStation
    idle_seconds: float
    least_seconds: float
    becomes: EngineStation  # at the onset, what the first shared station is from then on

    def turn(self) -> None:
        station = self.engine.shared[0]
        station.servers, station.service_seconds = self.becomes.servers, self.becomes.service_seconds
        station.stretch, station.crowd = self.becomes.stretch, self.becomes.crowd


def build_engines(settings: Mapping[str, Any], seed: int) -> SimulatedEngines:
    chance = scenario.create_random_generator(seed, "engine")
    kind, servers = settings["bottleneck"], int(settings["servers"])
    cpus = 8 if kind in ("memory", "disk") else 2
    own = {"cpu": 0.001, "memory": 0.008, "disk": 0.001, "network": 0.0015, "engine": 0.004}[kind]
    delay = {"cpu": float(settings["delay_ms"]) / 1_000, "memory": 0.05, "disk": 0.02}.get(kind, 0.0)
    pools = [EnginePool(EngineStation(cpus, own)) for _ in range(servers)]
    # Beyond 48 threads memory is full, and pages come from disk. A disk's head moves further with more requests.
    late = EngineStation(8, 0.001 if kind == "memory" else 0.002)
    shared = {
        "cpu": [EngineStation(2, 0.0015 if servers > 1 else 0.0013)],
        "memory": [EngineStation(8, 0.001, crowd=lambda threads: 1.0 if threads <= 48 else 40.0 * (threads - 48))],
        "disk": [EngineStation(1, 0.004, stretch=lambda there: 1 + 0.03 * (there - 1))],
        "network": [EngineStation(1, 0.00095), EngineStation(2, 0.001)],
        "engine": [EngineStation(8, 0.0002), EngineStation(8, 0.0002)],
    }[kind]
    becomes = shared[0]
    if settings["onset"] and kind in ("memory", "disk"):
        shared = [late]
    bottleneck = pools[0].own if kind in ("memory", "engine") else shared[0]
    work = own + sum(place.service_seconds for place in shared)
    engine = ThreadEngine(pools, shared, delay, chance)
    return SimulatedEngines(engine, bottleneck, delay + work, delay + 0.6 * work, becomes)


def run(law: str, settings: Mapping[str, Any], seed: int, trace: scenario.Floats | None) -> scenario.ScenarioOutcome:
    if trace is not None:
        raise BadInput("--trace", "is not supported: this scenario always runs at full load")
    if settings["drift"]:
        return _run_with_drift(law, seed)
    plant, start = build_engines(settings, seed), get_start(settings)
    hands: list[Hand] = [
        Candidate(law, {"start": start}, start)
        if law in ("tcc", "explorer")
        else Baseline(law, plant.idle_seconds, plant.least_seconds)
        for _ in plant.engine.pools
    ]
    return simulate(settings, plant, hands)


def get_start(settings: Mapping[str, Any]) -> int:
    """Return the threads that each engine starts with."""
    return ONSET_START if settings["onset"] else START.get(settings["bottleneck"], 1)


def simulate(
    settings: Mapping[str, Any],
    plant: SimulatedEngines,
    hands: Sequence[Hand],
    end_tick: Callable[[], object] = lambda: None,
) -> scenario.ScenarioOutcome:
    """Run the engines with these controllers. `end_tick` is called after all of them have been checked."""
    engine, bottleneck, station = plant.engine, plant.bottleneck, plant.engine.shared[-1]
    capacity = bottleneck.servers / bottleneck.service_seconds * TICK_SECONDS
    threads, utilisation, steady, shares = (list[float]() for _ in range(4))
    last, busy_before = [0.0] * len(hands), 0.0
    for tick in range(int(float(settings["seconds"]) / TICK_SECONDS)):
        now = tick * TICK_SECONDS
        if now == settings["onset"] > 0:
            plant.turn()
        rate = float(settings["competitor"]) * station.servers / station.service_seconds
        engine.compete(rate if COMPETES <= now < RELIEVED else 0.0)
        for at, hand in enumerate(hands):
            engine.resize(at, hand.threads)
        completed_before = engine.pools[0].completed
        engine.run(now + TICK_SECONDS)
        # Every law gets the times between its pool's completions, and the latest epoch of the explorations.
        epoch = max(hand.epoch for hand in hands) if settings["together"] and len(hands) > 1 else None
        for at, (hand, pool) in enumerate(zip(hands, engine.pools, strict=True)):
            times = [last[at], *pool.completions]
            last[at], pool.completions = times[-1], []
            hand.check(now + TICK_SECONDS, np.diff(times).tolist(), TICK_SECONDS, epoch)
        end_tick()
        used = (bottleneck.busy_seconds - busy_before) / TICK_SECONDS / bottleneck.servers
        busy_before = bottleneck.busy_seconds
        threads.append(float(hands[0].threads))
        utilisation.append(used)
        if all(hand.is_steady for hand in hands) and now > 60:
            steady.append(used)
        competes = settings["competitor"] > 0 and COMPETES + 100 <= now < RELIEVED
        if competes or (len(hands) > 1 and now > COMPETES):
            shares.append((engine.pools[0].completed - completed_before) / capacity)
    rests = hands[0].rests
    later = [count for _, count in rests[1:]]
    metrics = {
        "threads_first": rests[0][1] if rests else None,
        "threads_later": round(float(np.mean(later)), 2) if later else None,
        "utilisation": round(float(np.mean(steady)), 4) if steady else None,
        "seconds_to_first": rests[0][0] if rests else None,
        "share": round(float(np.mean(shares)), 4) if shares else None,
        **dict.fromkeys(("peak_fraction_before", "peak_fraction_after", "windows_to_recover")),
        "threads_least": min(later) if later else None,
        "threads_most": max(later) if later else None,
        "threads_last": rests[-1][1] if rests else None,
    }
    if settings["bottleneck"] == "engine":
        linear = len(hands) * capacity * settings["seconds"]
        metrics["linear_share"] = round(sum(pool.completed for pool in engine.pools) / linear, 4)
    series = {"threads": np.asarray(threads), "utilisation": np.asarray(utilisation)}
    return scenario.ScenarioOutcome(metrics, series, TICK_SECONDS)


def compute_box_throughput(threads: int, coherence: float) -> float:
    """Return X(n) of the drifting box."""
    return 100 * threads / (1 + 0.02 * (threads - 1) + coherence * threads * (threads - 1))


def _run_with_drift(law: str, seed: int) -> scenario.ScenarioOutcome:
    chance, half = scenario.create_random_generator(seed, "box"), DRIFT_WINDOWS // 2
    aims = {"aim": "peak", "initial_samples": WINDOW_SAMPLES, "probe_error": 0.1, "steady_seconds": 1e6}
    hand: Hand = Candidate(law, aims) if law in ("tcc", "explorer") else Baseline(law, 0.01, 0.006)
    fractions, threads = [], []
    for window in range(DRIFT_WINDOWS):
        coherence = 0.0005 if window < half else 0.002
        rate = compute_box_throughput(hand.threads, coherence)
        peak = max(compute_box_throughput(n, coherence) for n in range(1, 200))
        fractions.append(rate / peak)
        threads.append(float(hand.threads))
        gaps = chance.exponential(1 / rate, WINDOW_SAMPLES).tolist()
        hand.check(float(window), gaps, math.fsum(gaps))
    after = np.asarray(fractions[half:])
    # The first window from which on nine of ten are good.
    good = after >= 0.95
    stable = (at for at in range(half) if good[at] and np.mean(good[at : at + 20]) >= 0.9)
    metrics = {
        "threads_first": hand.rests[0][1] if hand.rests else None,
        "threads_later": hand.rests[-1][1] if hand.rests else None,
        "utilisation": None,
        "seconds_to_first": hand.rests[0][0] if hand.rests else None,
        "share": None,
        "peak_fraction_before": round(float(np.mean(fractions[half // 2 : half])), 4),
        "peak_fraction_after": round(float(np.mean(after[half // 2 :])), 4),
        "windows_to_recover": next(stable, half),
    }
    return scenario.ScenarioOutcome(metrics, {"threads": np.asarray(threads), "fraction": np.asarray(fractions)}, 1.0)


def estimate_cost(settings: Mapping[str, Any]) -> scenario.SimulationCost:
    """By the simulated time of all engines; fitted to runs of 900 and 2,000 s."""
    return scenario.SimulationCost(4.0 + 1.5e-3 * settings["seconds"] * settings["servers"], 0.0)


SCENARIO = scenario.Scenario(
    "concurrency-live",
    "Engines that find their number of threads under load, with competition and drift (Tang, section 4).",
    ("tcc", "explorer", *BASELINES),
    SETTINGS,
    (
        "threads_first",
        "threads_later",
        "utilisation",
        "seconds_to_first",
        "share",
        "peak_fraction_before",
        "peak_fraction_after",
        "windows_to_recover",
    ),
    run,
    steers={name: ("concurrency", {"method": name}) for name in ("tcc", "explorer")},
    size=scenario.SimulationSize(("seconds", "servers"), "Reduce seconds or servers.", estimate_cost),
)
