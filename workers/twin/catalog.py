"""The shipped runs of the lab's scenarios: the modules in this folder with `SHIPPED = ShippedRun(…)`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import django
from django.apps import apps

from common.errors import BadInput
from controllers.framework.discovery import import_modules
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome, get_metric
from workers import twin

NAME = "shipped"  # name of the result, next to the laws' names
Run = Callable[[Mapping[str, Any], int, Floats | None], ScenarioOutcome]


@dataclass(frozen=True)
class ShippedRun:
    """The run of a scenario with the loops as they ship; `run(settings, seed, trace)` runs it.

    law: the pure law of the scenario that the run is compared with; "": the first law. metric: the metric of this
    comparison; "": the first metric of which higher or lower values are better.
    """

    scenario: Scenario
    run: Run
    law: str = ""
    metric: str = ""

    def get_law(self) -> str:
        return self.law or self.scenario.laws[0]

    def get_metric(self) -> str:
        judged = (name for name in self.scenario.metrics if get_metric(name).better != "none")
        return self.metric or next(judged)


@lru_cache(maxsize=1)
def find_shipped_runs() -> Mapping[str, ShippedRun]:
    """Return scenario → its shipped run. Raise `ValueError` if a scenario has two."""
    if not apps.ready:  # The loops are Django models, which the command `lab` does not load otherwise.
        django.setup()
    runs: dict[str, ShippedRun] = {}
    for module in import_modules(twin):
        if isinstance(shipped := getattr(module, "SHIPPED", None), ShippedRun):
            name = shipped.scenario.name
            if name in runs:
                raise ValueError(f"the scenario {name} has two shipped runs")
            runs[name] = shipped
    return dict(sorted(runs.items()))


def add_shipped_run(scenario: Scenario) -> Scenario:
    """Return the scenario with `shipped` as its last law. Raise `BadInput` if it has no shipped run."""
    runs = find_shipped_runs()
    if scenario.name not in runs:
        known = ", ".join(runs)
        raise BadInput(
            "--shipped", f"is not available for the scenario {scenario.name} yet. Available scenarios: {known}"
        )
    shipped = runs[scenario.name]

    def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
        return shipped.run(settings, seed, trace) if law == NAME else scenario.run(law, settings, seed, trace)

    return replace(scenario, laws=(*scenario.laws, NAME), run=run)


def list_laws(scenario: Scenario) -> tuple[str, ...]:
    """Return the scenario's laws, and `shipped` if it has a shipped run."""
    return (*scenario.laws, NAME) if scenario.name in find_shipped_runs() else tuple(scenario.laws)
