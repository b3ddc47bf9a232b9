"""The lab's scenario `manager`: one container and its short-lived workers, for 12,000 s (Houtman, 4.2.2).

Events arrive along `cycles` sines from zero to `max_rate` and back (or as a trace, with the same maximum); with
`poisson`, each second's count is random. A worker takes up to `events_per_worker` and ends. The workers of one
evaluation run at the next one, on the events waiting then, and the manager sees the rest (ERRATA E41, E42).

| law | evaluates every | starts |
|---|---|---|
| worker_rate | 1 s (`interval_seconds`) | Weir's law, by forecast |
| thesis | 5 s | its rate, regardless of the queue |
| static | 1 s | the workers of `max_rate`, all the time |

Metrics: the queue length after the workers of an instant ran, summed every 5 s and every second; the worker runs needed
to process all events (the tables' caption), including those for the events left at the end; and the minimum: events /
events_per_worker. In addition to the contract: the greatest length, and the greatest age of an event. The thesis has no
bound on that; Weir's is `max_wait_seconds`. And the minimum of runs that keep that bound if all arrivals are known
(`runs_in_time`): with few arrivals, these are more than the minimum.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from common.parameter import Parameter
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome, create_random_generator, resample
from controllers.worker_rate.law import WorkerRate
from controllers.worker_rate.shared import WorkerRateObservation, WorkerRateParameters
from controllers.worker_rate.thesis_manager import Static

SECONDS, SAMPLE_SECONDS = 12_000, 5
THESIS_INTERVAL_SECONDS = 5
# The thesis' rate may fall until almost no worker starts.
THESIS: Mapping[str, Any] = {"method": "thesis", "start_when": "always", "minimum_rate": 0.01}
SETTINGS = (
    Parameter("max_rate", "events/s", "Maximum rate of events.", 1_000.0, 0.001, 1e6),
    Parameter(
        "events_per_worker", "events", "Number of events that a worker processes before it ends.", 50, 1, 1e7, "integer"
    ),
    Parameter("upper_limit", "events", "Allowed queue length.", 1_000.0, 1, 1e9),
    Parameter("cycles", "cycles", "Number of rate cycles.", 1, 1, 1_000, "integer"),
    Parameter("poisson", "0 or 1", "1: the number of events per second is random (Poisson).", 0, 0, 1, "integer"),
    Parameter("interval_seconds", "s", "Time between evaluations of Weir's law.", 1, 1, 60, "integer"),
    Parameter("max_wait_seconds", "s", "Maximum time that events wait to fill a worker.", 300.0, 0, 86_400),
)


class ManagedPool(Protocol):
    """A manager, which decides every `interval_seconds`; `under_way` workers were started before."""

    interval_seconds: int
    under_way: int

    def start(self, length: float, removed: float, ran: int) -> int:
        """Return the number of workers to start.

        It depends on the queue length, and on what was removed and ran since the last time.
        """
        ...


class ShippedManager:
    """The shipped law by one of its methods, with its state."""

    def __init__(self, interval_seconds: int, parameters: WorkerRateParameters) -> None:
        self.law, self.interval_seconds, self.parameters = WorkerRate(), interval_seconds, parameters
        self.state, self.under_way = self.law.start(parameters), 0

    def start(self, length: float, removed: float, ran: int) -> int:
        seen = WorkerRateObservation(queue_length=float(length), removed=float(removed), started=float(ran))
        self.state, decision = self.law.decide(self.parameters, self.state, seen)
        return int(decision.action["start"]) if decision.action else 0


class StaticWorkers:
    interval_seconds = 1

    def __init__(self, max_rate: float, events_per_worker: int) -> None:
        self.static, self.under_way = Static(max_rate / events_per_worker).start()

    def start(self, length: float, removed: float, ran: int) -> int:
        self.static, count = self.static.start()
        return count


def build_manager(law: str, settings: Mapping[str, Any]) -> ManagedPool:
    """Return the manager by the law's name."""
    if law == "static":
        return StaticWorkers(settings["max_rate"], settings["events_per_worker"])
    interval_seconds = THESIS_INTERVAL_SECONDS if law == "thesis" else int(settings["interval_seconds"])
    parameters = WorkerRateParameters(
        events_per_worker=int(settings["events_per_worker"]),
        upper_limit=settings["upper_limit"],
        interval_seconds=float(interval_seconds),
        lead_seconds=float(interval_seconds),
        max_wait_seconds=settings["max_wait_seconds"],
        start_when="always",
        maximum_rate=1e6,  # the pool of the model is unlimited
    )
    return ShippedManager(interval_seconds, replace(parameters, **THESIS) if law == "thesis" else parameters)


def generate_events_per_second(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> Floats:
    """Return the arrivals of each second; the same for all laws of a seed."""
    if trace is None:
        shape = (1 - np.cos(2 * np.pi * settings["cycles"] * np.arange(SECONDS) / SECONDS)) / 2
    else:
        shape = resample(trace, SECONDS)
    rates = settings["max_rate"] * shape
    if settings["poisson"]:
        return np.asarray(create_random_generator(seed, "arrivals").poisson(rates), dtype=float)
    return np.asarray(rates)


@dataclass
class WorkerTally:
    """Per second, the events that wait and the workers that ran; `left`: the workers needed for the rest."""

    waiting: Floats
    ran: Floats
    left: int = 0


def simulate(who: ManagedPool, inflow: Floats, events_per_worker: int) -> WorkerTally:
    """Let events arrive every second; at each evaluation, the workers of the previous one run first."""
    tally = WorkerTally(np.zeros(len(inflow)), np.zeros(len(inflow)))
    queue, submitted, every = 0.0, who.under_way, who.interval_seconds
    for second, events in enumerate(inflow.tolist()):
        queue += events
        if (second + 1) % every == 0:
            removed = compute_removed(queue, submitted, events_per_worker)
            queue -= removed
            tally.ran[second] = submitted
            submitted = who.start(queue, removed, submitted)
        tally.waiting[second] = queue
    tally.left = count_workers(queue, events_per_worker)
    return tally


def compute_removed(waiting: float, workers: int, events_per_worker: int) -> float:
    """Return the events that these workers remove; they end before the next evaluation."""
    return min(waiting, float(workers * events_per_worker))


def count_workers(events: float, events_per_worker: int) -> int:
    """Return the workers that these events need."""
    return math.ceil(events / events_per_worker)


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    inflow = generate_events_per_second(settings, seed, trace)
    tally = simulate(build_manager(law, settings), inflow, int(settings["events_per_worker"]))
    return summarize(settings, inflow, tally)


def summarize(settings: Mapping[str, Any], inflow: Floats, tally: WorkerTally) -> ScenarioOutcome:
    """Return the metrics and series of a run."""
    size = int(settings["events_per_worker"])
    metrics = {
        "waiting_5s_post": round(float(tally.waiting[SAMPLE_SECONDS - 1 :: SAMPLE_SECONDS].sum())),
        "waiting_1s_post": round(float(tally.waiting.sum())),
        "worker_runs": round(float(tally.ran.sum() + tally.left)),
        "minimum_runs": round(float(inflow.sum()) / size, 2),
        "minimum_runs_in_time": runs_in_time(inflow, size, float(settings["max_wait_seconds"])),
        "waiting_greatest": round(float(tally.waiting.max()), 1),
        "wait_greatest_seconds": int(compute_event_ages(inflow, tally.waiting).max()),
    }
    series = {"arrivals_per_second": inflow, "waiting_events": tally.waiting, "worker_runs": tally.ran}
    return ScenarioOutcome(metrics, series, 1.0)


def runs_in_time(inflow: Floats, events_per_worker: int, max_wait_seconds: float) -> int:
    """Return the fewest runs that leave nothing older than the bound at a second's end, with known arrivals.

    A worker starts when its events fill it, or when the oldest must not wait longer. This is earliest deadline first,
    and no order needs fewer runs.
    """
    inserted, taken, runs, oldest = np.cumsum(inflow).tolist(), 0.0, 0, 0
    for second, there in enumerate(inserted):
        # All that are certainly full at once; the last ones by the rule below.
        full = max(0, math.floor((there - taken) / events_per_worker) - 1)
        runs, taken = runs + full, taken + full * events_per_worker
        while True:
            while oldest <= second and inserted[oldest] <= taken + 1e-3:
                oldest += 1
            filled = there - taken >= events_per_worker - 1e-9
            if oldest > second or not (filled or second - oldest >= max_wait_seconds):
                break
            runs, taken = runs + 1, min(there, taken + events_per_worker)
    return runs + math.ceil((inserted[-1] - taken) / events_per_worker - 1e-9) if inserted else 0


def compute_event_ages(inflow: Floats, waiting: Floats) -> npt.NDArray[np.int64]:
    """Return the age of the oldest waiting event at the end of each second (0: none), first come, first served."""
    inserted = np.cumsum(inflow)
    # A thousandth of an event is a rounding error and does not wait.
    oldest = np.searchsorted(inserted, inserted - waiting + 1e-3, side="right")
    return np.where(waiting > 1e-3, np.arange(len(inflow)) - oldest, 0)


SCENARIO = Scenario(
    "manager",
    "Workers of a container under a sinusoidal daily load (thesis, section 4.2.2).",
    ("worker_rate", "thesis", "static"),
    SETTINGS,
    ("waiting_5s_post", "waiting_1s_post", "worker_runs", "minimum_runs"),
    run,
    {"worker_rate": ("worker_rate", {"method": "forecast"}), "thesis": ("worker_rate", {"method": "thesis"})},
)
