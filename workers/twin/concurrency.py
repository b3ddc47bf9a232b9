"""The shipped run of the scenario `concurrency`: a worker host whose samples are the means of a queueing network."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from common.errors import BadInput
from controllers.simulation import concurrency
from controllers.simulation.concurrency import ExplorationResult
from controllers.simulation.scenario import Floats, ScenarioOutcome
from workers.documents.hosts import PoolWork
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_pool import ReportedPool, build_twin

HOST = "jobs@twin"
SAMPLES_PER_SECOND = 8  # maximum that a host counts (`workers.pool.departures`)
MAX_SECONDS = 3_000


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the loop of one host until it has been steady twice."""
    if trace is not None:
        raise BadInput("--trace", "is not supported: this scenario always runs at full load")
    p, q, w = concurrency.get_table_row(float(settings["p"]))
    network = concurrency.model(settings)

    def explore(yields: Callable[[int], float]) -> ExplorationResult:
        return explore_curve(yields, {"p": p, "q": q, "w": w, "maximum": concurrency.MAX_THREADS})

    return concurrency.summarize(network, explore(network.evaluate), explore)


def explore_curve(yields: Callable[[int], float], parameters: Mapping[str, Any]) -> ExplorationResult:
    """Return the size at which the loop first becomes steady on a curve, and its steps before and after that."""
    twin = build_twin({HOST: 1}, parameters)
    pool, path, steps, sampled, full_seconds = ReportedPool(twin, HOST), list[float](), list[int](), 0, 0.0
    for second in range(MAX_SECONDS):
        before, rests = pool.threads, len(pool.rests)
        twin.pass_time()
        pool.note_rest(float(second))
        if len(pool.rests) > rests:
            steps.append(int(pool.machine["steps"]))
            if len(steps) == 2:
                break
        path.append(float(before))
        sampled, full_seconds = sampled + SAMPLES_PER_SECOND, full_seconds + 1.0
        samples = [] if pool.threads != before else [1 / yields(before)] * SAMPLES_PER_SECOND
        pool.host.done = PoolWork(seq=sampled, full_seconds=full_seconds, recent_seconds=samples)
    warm = steps[1] - steps[0] if len(steps) == 2 else None
    return ExplorationResult(pool.rests[0][1], steps[0], warm, np.asarray(path))


SHIPPED = ShippedRun(concurrency.SCENARIO, run, "explorer", "utilisation")
