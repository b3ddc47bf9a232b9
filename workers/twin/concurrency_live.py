"""The shipped run of the scenario `concurrency-live`: worker hosts whose events pass through the engines."""

from collections.abc import Mapping
from typing import Any

from common.errors import BadInput
from controllers.simulation import concurrency_live
from controllers.simulation.concurrency_live import SimulatedEngines
from controllers.simulation.scenario import Floats, ScenarioOutcome
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_pool import ReportedPool, build_twin


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the loops of one or several hosts. Raise `BadInput` for settings that a plant can't have."""
    if trace is not None:
        raise BadInput("--trace", "is not supported: this scenario always runs at full load")
    if settings["drift"]:
        raise BadInput("--set drift", "must be 0 with --shipped: a worker host always has engines")
    if settings["servers"] > 1 and not settings["together"]:
        raise BadInput("--set together", "must be 1 with --shipped: hosts always know of each other's explorations")
    engines = concurrency_live.build_engines(settings, seed)
    hosts = {f"jobs@{number}": concurrency_live.get_start(settings) for number in range(len(engines.engine.pools))}
    twin = build_twin(hosts, {})
    pools = [EnginePoolHost(ReportedPool(twin, host), engines, number) for number, host in enumerate(hosts)]
    return concurrency_live.simulate(settings, engines, pools, twin.pass_time)


class EnginePoolHost:
    """The worker host of one engine, for the simulation."""

    def __init__(self, pool: ReportedPool, engines: SimulatedEngines, number: int) -> None:
        self.pool, self.rests = pool, pool.rests
        self._engine, self._last = engines.engine.pools[number], 0.0

    @property
    def threads(self) -> int:
        return self.pool.threads

    @property
    def is_steady(self) -> bool:
        return self.pool.is_steady

    @property
    def epoch(self) -> int:
        return self.pool.epoch

    def check(self, now: float, gaps: list[float], seconds: float, epoch: int | None = None) -> None:
        completed_at = []
        for gap in gaps:
            self._last += gap
            completed_at.append(self._last)
        self.pool.report(self._engine.alive, completed_at, now)


SHIPPED = ShippedRun(concurrency_live.SCENARIO, run, "explorer", "utilisation")
