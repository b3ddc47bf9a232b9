"""Bench of the laws on a real plant: apply each paper's disturbance, and compare each law with its baseline.

The bench starts a plant (./run) once, and applies the disturbances one after the other. Each disturbance runs with the
loops as they ship (in auto) and with its baseline, on the same processes. `--seconds` is the length of each part, at
least `MIN_SECONDS`. A disturbance that fails, or for which no time is left, has no figures; `failed` has the reason.

    burst         worker rate: one sine of arrivals; the manager of Houtman's thesis
    bottleneck    concurrency: a handler that waits, then one that computes; a fixed pool (Tang)
    hog           flow and balance: a CPU hog; equal shares without a limit (Xu)
    ramp          parallelism: a rising load; fixed tasks (Stutz)
    surplus       shedding: ten surplus events for each match, half of the work is shed; the same share of all (Röger)
    lost_node     placement: a frozen node; a publisher that asks the nodes every 5 s (Houtman)
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.laws.on_plant.disturbed_plant import DisturbedPlant
from bench.laws.on_plant.metrics import Comparison, summarize
from bench.laws.on_plant.on_jobs import measure_bottleneck, measure_burst, measure_lost_node
from bench.laws.on_plant.on_pipeline import measure_hog, measure_ramp, measure_surplus

MIN_SECONDS, MAX_SECONDS = 40.0, 1_500.0  # of one part; of the whole bench
Disturbance = Callable[[DisturbedPlant, float], list[Comparison]]
DISTURBANCES: Mapping[str, Disturbance] = {
    "burst": measure_burst,
    "bottleneck": measure_bottleneck,
    "hog": measure_hog,
    "ramp": measure_ramp,
    "surplus": measure_surplus,
    "lost_node": measure_lost_node,
}


def run(seconds: float, names: tuple[str, ...] = tuple(DISTURBANCES)) -> dict[str, Any]:
    """Measure these disturbances."""
    with DisturbedPlant() as plant:
        plant.open()
        return apply(plant, {name: DISTURBANCES[name] for name in names}, max(MIN_SECONDS, seconds))


def apply(
    plant: DisturbedPlant,
    disturbances: Mapping[str, Disturbance],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Apply the disturbances in order, also after a failure. Start none after MAX_SECONDS."""
    comparisons: list[Comparison] = []
    failed: dict[str, str] = {}
    deadline = clock() + max(MAX_SECONDS, 2 * len(disturbances) * seconds)
    for name, disturb in disturbances.items():
        if clock() > deadline:
            failed[name] = "no time was left"
            continue
        try:
            plant.sign_in()
            comparisons += disturb(plant, seconds)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error)[:300]}"
            sys.stderr.write(f"laws: {name} failed: {failed[name]}\n")
    return {**summarize(comparisons), "failed": failed}
